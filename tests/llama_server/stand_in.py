#!/usr/bin/env python3
"""Starts this server from llama-server's flags: the program that llama.cpp's own tests start.

It serves the built-in model in place of theirs, which no registry has that the tests may use. What
the flags ask that this server cannot be asked ends it, and so the test.
"""

import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILT_IN = ROOT / "engine" / "default_model"
MODELS = ("ggml-org/test-model-stories260K", "ggml-org/test-model-stories260K-infill")
LONGEST = 1024  # the context of the built-in model
# Other names under which the tests of a file ask for the model; see plugin.py.
NAMES = "STAND_IN_NAMES"
# Flags without a value here: none of them turns anything on or off that this server could.
_SWITCHES = frozenset(
    {
        "--offline", "--no-slots", "--slots", "--jinja", "--no-jinja", "--metrics", "--verbose",
        "--cont-batching",
    }
)  # fmt: skip
# Flags whose values change no answer, or that nothing here corresponds to.
_WITHOUT_MEANING = frozenset(
    {"--hf-file", "--batch-size", "--seed", "--n-predict", "--n-gpu-layers"}
)
_SAME = {
    "--port": "--port",
    "--host": "--host",
    "--api-key": "--api-keys",
    "--slot-save-path": "--slot-save-path",
    "--chat-template-file": "--chat-template",
    "--cors-origins": "--allow-origins",
}


def main() -> None:
    flags = dict(_flags(sys.argv[1:]))
    if flags.pop("--hf-repo", MODELS[0]) not in MODELS:
        sys.exit("the model is not here")
    options = []
    for flag, option in _SAME.items():
        if flag in flags:
            options += [option, flags.pop(flag)]
    names = [flags.pop("--alias", ""), os.environ.get(NAMES, "")]
    options += ["--served-model-name", ",".join(filter(None, names))]
    per_slot = int(flags.pop("--ctx-size", LONGEST)) // int(flags.pop("--parallel", 1))
    options += ["--max-seq-len", str(min(per_slot, LONGEST))]
    model = _model(float(flags.pop("--temp")))
    if unknown := set(flags) - _WITHOUT_MEANING:
        sys.exit(f"no option of this server is {' or '.join(sorted(unknown))}")
    python = str(ROOT / ".venv" / "bin" / "python")
    os.execv(python, [python, "-m", "server", "serve", str(model), *options])


def _flags(words: list[str]):  # type: ignore[no-untyped-def]
    left = iter(words)
    for flag in left:
        if flag not in _SWITCHES:
            yield flag, next(left, "")


def _model(temperature: float) -> Path:
    """The built-in model, with the temperature of requests that send none."""
    model = ROOT / "build" / "llama-server-tests" / f"temperature-{temperature}"
    model.mkdir(parents=True, exist_ok=True)
    for file in BUILT_IN.iterdir():
        if file.name != "generation_config.json" and not (model / file.name).exists():
            (model / file.name).symlink_to(file)
    settings = json.loads((BUILT_IN / "generation_config.json").read_text())
    settings["temperature"] = temperature
    (model / "generation_config.json").write_text(json.dumps(settings))
    return model


if __name__ == "__main__":
    main()
