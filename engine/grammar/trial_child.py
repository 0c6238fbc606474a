"""The program of a grammar's trial: reads a task as JSON on stdin, and writes to stdout why it
failed, or null, and the bytes that it took.

Owns nothing. Runs in an isolated interpreter, so it imports only the standard library and
llguidance's bare extension: the package around it takes longer to import than most grammars take to
compile.
"""

import json
import os
import resource
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from typing import Any

_N_BYTES = 255  # 0xFF marks special tokens and never occurs in text


class _Tokens:
    """A vocabulary of the real one's special tokens, followed by single bytes."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, n_tokens: int, special: dict[int, str]) -> None:
        self._n_tokens = n_tokens
        self.tokens = [b""] * n_tokens + [bytes([byte]) for byte in range(_N_BYTES)] + [b""]
        for token_id, text in special.items():
            self.tokens[token_id] = text.encode()
        self.eos_token_id = len(self.tokens) - 1
        self.special_token_ids = [*special, self.eos_token_id]

    def __call__(self, text: str | bytes) -> list[int]:
        data = text.encode() if isinstance(text, str) else text
        return [self._n_tokens + byte for byte in data]


def _limit(task: dict[str, Any]) -> None:
    for which, value in (
        (resource.RLIMIT_CPU, task["seconds"]),
        (resource.RLIMIT_AS, task["memory_bytes"]),
        (resource.RLIMIT_STACK, task["stack_bytes"]),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(which)
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (allowed, hard))


def _library(path: str) -> Any:
    loader = ExtensionFileLoader("llguidance._lib", path)
    spec = spec_from_loader("llguidance._lib", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def _peak() -> int:
    """The peak memory of this process in bytes; 0 if the system does not report it."""
    # Not by getrusage: on Linux its figure starts with the memory of the parent process.
    try:
        with open("/proc/self/status") as status:
            lines = [line.split() for line in status]
    except OSError:
        return 0
    return next((1024 * int(words[1]) for words in lines if words[:1] == ["VmHWM:"]), 0)


def _failure(library: Any, tokenizer: Any, task: dict[str, Any]) -> str | None:
    limits = library.LLParserLimits(**task["limits"], verbose_errors=False)
    matcher = library.LLMatcher(tokenizer, task["grammar"], log_level=0, limits=limits)
    if not matcher.is_error():
        matcher.compute_bitmask()  # shows what is wrong with the first token
    return matcher.get_error() or None


def main() -> None:
    task = json.load(sys.stdin)
    _limit(task)
    os.nice(task["nice"])
    library = _library(task["library"])
    tokenizer = library.LLTokenizer(_Tokens(task["n_tokens"], dict(task["special"])), slices=[])
    before = _peak()
    try:
        failure = _failure(library, tokenizer, task)
    except BaseException as panic:  # noqa: BLE001 - a panic of the library is not an Exception
        failure = f"panic: {panic}"
    json.dump([failure, _peak() - before], sys.stdout)


if __name__ == "__main__":
    main()
