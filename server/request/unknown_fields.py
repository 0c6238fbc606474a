"""Fields that the schema does not declare: refused, quietly accepted, or reported.

A field of OpenAI's API that would change the answer, and that this server cannot honour, is a 400
unless its value is the one that changes nothing. A field that asks nothing of the model is accepted
in silence. Every other unknown field is answered with a warning, or with `strict` refused; none is
dropped in silence.
"""

import json
from collections.abc import Iterable
from typing import Any

from ..errors import RequestError
from ..schema.parts import RequestModel
from .unserved_fields import INSTEAD, QUIET, REFUSED, WARNED, WHY

MAX_UNKNOWN_FIELDS = 64
MAX_PARAM_LENGTH = 256

Warnings = list[dict[str, str]]


def check_unknown_fields(
    body: RequestModel, nested: Iterable[tuple[str, RequestModel]], *, strict: bool
) -> Warnings:
    """The warnings for a body's unknown fields; raises RequestError for an unsupported one.

    `nested`: the parts of the body, each with its path, such as ("messages[0]", message).
    `strict`: what would be a warning is a RequestError.
    """
    warnings: dict[str, dict[str, str]] = {}
    for path, part in [("", body), *nested]:
        for name, value in (part.model_extra or {}).items():
            param = f"{path}.{name}" if path else name
            if _is_silent(_generic(param), value, param=param):
                continue
            if len(warnings) == MAX_UNKNOWN_FIELDS and param not in warnings:
                raise RequestError(
                    f"the body has more than {MAX_UNKNOWN_FIELDS} unknown fields", param=None
                )
            message = WHY.get(param, "this server does not know the field; it had no effect")
            warnings[param] = warning(param, message, strict=strict)
    return list(warnings.values())


def refuse_unknown_fields(body: RequestModel) -> None:
    """For a body that has something done, whose answer has no room for warnings. Raises
    RequestError.
    """
    unknown = next((name for name in body.model_extra or {} if name not in QUIET), None)
    if unknown is not None:
        param, fields = unknown[:MAX_PARAM_LENGTH], ", ".join(type(body).model_fields)
        raise RequestError(f"{param} is no field of this route, which has {fields}", param=param)


def warning(param: str, message: str, *, strict: bool) -> dict[str, str]:
    """A warning for a field without effect; with `strict` a RequestError instead."""
    param = param[:MAX_PARAM_LENGTH]
    if strict:
        raise RequestError(f"{param}: {message} (strict)", param=param)
    return {"param": param, "action": "ignored", "message": message}


def _is_silent(name: str, value: Any, *, param: str) -> bool:
    """Whether the field needs no warning; raises RequestError when it cannot be honoured."""
    if name in QUIET:
        return True
    neutral = REFUSED.get(name)
    if neutral is None:
        return name in WARNED and (value is None or _is_one_of(value, WARNED[name]))
    if value is None or _is_one_of(value, neutral):
        return True
    if name in INSTEAD:
        raise RequestError(f"{param} is not supported: {INSTEAD[name]}", param=param)
    allowed = " or ".join([*(json.dumps(same) for same in neutral), "null"])
    raise RequestError(f"{param} is not supported: leave it out, or send {allowed}", param=param)


def _is_one_of(value: Any, values: tuple[Any, ...]) -> bool:
    """JSON's equality: 1 and true are two values."""
    return any(type(value) is type(same) and value == same for same in values)


def _generic(param: str) -> str:
    """messages[3].audio -> messages[].audio"""
    head, bracket, rest = param.partition("[")
    return f"{head}[]{rest.partition(']')[2]}" if bracket and head == "messages" else param
