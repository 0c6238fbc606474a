"""llm, as a command and as a library, against a live server; prints what it saw as JSON.

usage: python with_llm.py BASE_URL MODEL      (LLM_USER_PATH names its settings folder)
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

URL, MODEL = sys.argv[1:]
OWN_MODELS = f"""
- model_id: chat
  model_name: {MODEL}
  api_base: {URL}
  api_key_name: own
- model_id: legacy
  model_name: {MODEL}
  api_base: {URL}
  api_key_name: own
  completion: true
"""
home = Path(os.environ["LLM_USER_PATH"])
(home / "extra-openai-models.yaml").write_text(OWN_MODELS)
(home / "keys.json").write_text(json.dumps({"own": "key"}))

import llm  # noqa: E402 - it reads these files when it is imported
from llm.cli import cli  # noqa: E402


def command(*words: str) -> Result:
    return CliRunner().invoke(cli, ["openai", "endpoint", URL, "--key", "key", *words])


def answer_of(model: str, prompt: str, **options: Any) -> dict[str, Any]:
    response = llm.get_model(model).prompt(prompt, max_tokens=16, temperature=0, **options)
    text = response.text()
    return {"text": text, "usage": response.usage().output, "json": response.response_json}


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "legs": {"type": "integer", "minimum": 0, "maximum": 8},
    },
    "required": ["name", "legs"],
    "additionalProperties": False,
}
draw = ("-m", MODEL, "-o", "max_tokens", "300", "-o", "temperature", "1", "-o", "seed", "7")
ask = ("-m", MODEL, "-o", "max_tokens", "16", "-o", "temperature", "0", "A story about a frog.")
wrong = command("-m", "none", "A story.")
print(
    json.dumps(
        {
            "models": command("--models").stdout.split(),
            "streamed": command(*ask).stdout,
            "whole": command("--no-stream", *ask).stdout,
            "json": command("--schema", json.dumps(SCHEMA), *draw, "A frog.").stdout,
            "error": [wrong.exit_code, wrong.stderr],
            "chat": answer_of("chat", "A story about a frog."),
            "legacy": answer_of("legacy", "Once upon a time", logprobs=3),
        }
    )
)
