"""Fields that the schema does not declare: refused, quietly accepted, or reported.

A field of OpenAI's API that would change the answer, and that this server cannot honour, is a 400
unless its value is the one that changes nothing. A field that asks nothing of the model is accepted
in silence. Every other unknown field is answered with a warning; none is dropped unsaid.
"""

import json
from collections.abc import Iterable
from typing import Any

from ..errors import RequestError
from .common import GenerationRequest, RequestModel

MAX_UNKNOWN_FIELDS = 64

# Field -> the values, besides null, that ask for nothing.
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"], []),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "continue_final_message": (False,),
    "add_generation_prompt": (True,),
    "documents": ([],),
    "prompt_embeds": (),
    "stream_options.include_obfuscation": (False,),
    "messages[].tool_calls": ([],),
    "messages[].function_call": (),
    "messages[].audio": (),
    "messages[].refusal": ("",),
    "messages[].annotations": ([],),
}

_QUIET = frozenset(
    {
        "metadata",
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
    }
)


def check_unknown_fields(
    body: GenerationRequest, nested: Iterable[tuple[str, RequestModel]]
) -> list[dict[str, str]]:
    """The warnings for a body's unknown fields; raises RequestError for an unsupported one.

    `nested`: the parts of the body, each with its path, such as ("messages[0]", message).
    """
    warnings: list[dict[str, str]] = []
    for path, part in [("", body), *nested]:
        for name, value in (part.model_extra or {}).items():
            param = f"{path}.{name}" if path else name
            if _is_silent(_generic(param), value, param=param):
                continue
            if len(warnings) == MAX_UNKNOWN_FIELDS:
                raise RequestError(
                    f"the body has more than {MAX_UNKNOWN_FIELDS} unknown fields", param=None
                )
            message = "this server does not know the field; it had no effect"
            warnings.append({"param": param[:256], "action": "ignored", "message": message})
    return warnings


def _is_silent(name: str, value: Any, *, param: str) -> bool:
    """Whether the field needs no word; raises RequestError when it cannot be honoured."""
    if name in _QUIET:
        return True
    neutral = _UNSUPPORTED.get(name)
    if neutral is None:
        return False
    if value is None or any(type(value) is type(same) and value == same for same in neutral):
        return True
    allowed = " or ".join([*(json.dumps(same) for same in neutral), "null"])
    raise RequestError(f"{param} is not supported: leave it out, or send {allowed}", param=param)


def _generic(param: str) -> str:
    """messages[3].audio -> messages[].audio"""
    head, bracket, rest = param.partition("[")
    return f"{head}[]{rest.partition(']')[2]}" if bracket and head == "messages" else param
