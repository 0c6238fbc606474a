"""litellm against a live server; prints what it saw as one line of JSON.

usage: python with_litellm.py BASE_URL MODEL
"""

import json
import sys
from typing import Any

import litellm

litellm.suppress_debug_info = True  # or it would go to standard output
URL, MODEL = sys.argv[1:]
MESSAGES = [{"role": "user", "content": "A story about a frog, please."}]
SERVER = {"api_base": URL, "api_key": "key", "max_retries": 0, "num_retries": 0}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}


def text_of(chunks: list[Any]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def error_of(**request: Any) -> list[Any]:
    wanted = {"model": f"openai/{MODEL}", "messages": MESSAGES, "max_tokens": 4, **SERVER}
    try:
        litellm.completion(**{**wanted, **request})
    except Exception as error:  # noqa: BLE001 - its class is what the test asks for
        return [type(error).__name__, getattr(error, "status_code", None)]
    return ["none", None]


seen: dict[str, Any] = {}
chat = {"messages": MESSAGES, "max_tokens": 16, "temperature": 0, **SERVER}
for provider in ("openai", "hosted_vllm"):
    whole = litellm.completion(model=f"{provider}/{MODEL}", logprobs=True, top_logprobs=2, **chat)
    chunks = list(litellm.completion(model=f"{provider}/{MODEL}", **chat, **USAGE))
    seen[provider] = {
        "whole": whole.choices[0].message.content,
        "finish_reason": whole.choices[0].finish_reason,
        "logprobs": [entry.token for entry in whole.choices[0].logprobs.content],
        "usage": whole.usage.total_tokens,
        "streamed": text_of(chunks),
        "streamed_usage": [c.usage.total_tokens for c in chunks if getattr(c, "usage", None)],
    }

legacy = {
    "model": f"text-completion-openai/{MODEL}",
    "prompt": "Once upon a time",
    "max_tokens": 16,
    "temperature": 0,
    **SERVER,
}
whole = litellm.text_completion(logprobs=2, **legacy)
pieces = list(litellm.text_completion(**legacy, stream=True))
seen["completion"] = {
    "whole": whole.choices[0].text,
    "tokens": whole.choices[0].logprobs.tokens,
    "usage": whole.usage.total_tokens,
    "streamed": "".join(piece.choices[0].text or "" for piece in pieces if piece.choices),
}

words = {"type": "string", "maxLength": 12}
schema = {
    "type": "object",
    "properties": {"name": words, "legs": {"type": "integer", "minimum": 0, "maximum": 8}},
    "required": ["name", "legs"],
    "additionalProperties": False,
}
ask = {**chat, "model": f"openai/{MODEL}", "max_tokens": 300, "temperature": 1, "seed": 7}
# With tools it imports a package that it does not require, unless this is set.
tools = {
    "_skip_mcp_handler": True,
    "tools": [{"type": "function", "function": {"name": "animal", "parameters": schema}}],
    "tool_choice": "required",
    "parallel_tool_calls": False,
}
form = {"type": "json_schema", "json_schema": {"name": "animal", "schema": schema}}
called = litellm.completion(**ask, **tools)
parts = [
    call
    for chunk in litellm.completion(**ask, **tools, **USAGE)
    if chunk.choices
    for call in chunk.choices[0].delta.tool_calls or []
]
seen["tools"] = {
    "calls": [
        [call.function.name, call.function.arguments]
        for call in called.choices[0].message.tool_calls
    ],
    "finish_reason": called.choices[0].finish_reason,
    "streamed": [
        "".join(part.function.name or "" for part in parts),
        "".join(part.function.arguments or "" for part in parts),
    ],
    "ids": [part.id for part in parts if part.id],
}
seen["json"] = {
    "whole": litellm.completion(**ask, response_format=form).choices[0].message.content,
    "streamed": text_of(list(litellm.completion(**ask, response_format=form, **USAGE))),
}
seen["errors"] = {
    "model": error_of(model="openai/none"),
    "context": error_of(max_tokens=1_000_000),
    "value": error_of(temperature=-1),
    "key": error_of(api_key="wrong"),
}
print(json.dumps(seen))
