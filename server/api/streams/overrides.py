"""A stream's request with some fields changed, and what that changes of its settings.

Owns that a field replaces the other names of its setting. What no field changes stays as it is in
the stream, whatever its request said: controls may have changed it since.
"""

import json
import zlib
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from ...kept.kept import Kept
from ...request.aliases import settings_by_name
from ...schema.common import GenerationRequest
from ...schema.sampling import SamplingFields

T = TypeVar("T", bound=Any)
Body = TypeVar("Body", bound=BaseModel)


def stored_fields(kept: Kept) -> dict[str, Any]:
    """The body of its request."""
    sent: dict[str, Any] = json.loads(zlib.decompress(kept.request.body))
    return sent


def overridden(
    model: type[GenerationRequest], sent: Mapping[str, Any], changes: Mapping[str, Any]
) -> GenerationRequest:
    """`sent` with `changes`. Raises RequestValidationError, as for a body."""
    names = settings_by_name(model)
    changed = {names.get(name, name) for name in changes}
    kept = {name: value for name, value in sent.items() if names.get(name, name) not in changed}
    return validated(model, {**kept, **changes})


def validated(model: type[Body], body: Mapping[str, Any]) -> Body:
    """The body of that route. Raises RequestValidationError."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError(
            [{**wrong, "loc": ("body", *wrong["loc"])} for wrong in errors], body=body
        ) from None


def with_changes(current: T, before: T, after: T, sent: Collection[str]) -> T:
    """`current` with the fields in which `after` differs from `before`, and with those that are
    named by the fields `sent`: a control may have changed these meanwhile.
    """
    named = {setting for name in sent for setting in _SETTINGS.get(name, (name,))}
    changed = {
        field.name: getattr(after, field.name)
        for field in fields(current)
        if field.name in named or getattr(before, field.name) != getattr(after, field.name)
    }
    return replace(current, **changed) if changed else current


def _settings() -> dict[str, tuple[str, ...]]:
    """Field of a request -> the engine's fields that it says."""
    names = {
        **{name: (setting,) for name, setting in settings_by_name(SamplingFields).items()},
        "bad_words": ("banned_strings",),
        "ban_eos_token": ("banned_tokens",),
    }
    ends = ("temperature", "min_temperature", "max_temperature")
    return {**names, "dynatemp_range": ends, "dynamic_temperature": ends}


_SETTINGS = _settings()
