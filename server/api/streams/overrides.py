"""A stream's request with some fields changed, and what that changes of its settings.

Owns that a field replaces the other names of its setting. What no field changes stays as it is in
the stream, whatever its request said: controls may have changed it since.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from ...kept.kept import Kept
from ...request.aliases import settings_by_name
from ...schema.common import GenerationRequest

T = TypeVar("T", bound=Any)


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


def validated(model: type[GenerationRequest], body: Mapping[str, Any]) -> GenerationRequest:
    """The body of that route. Raises RequestValidationError."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError(
            [{**wrong, "loc": ("body", *wrong["loc"])} for wrong in errors], body=body
        ) from None


def with_changes(current: T, before: T, after: T) -> T:
    """`current` with the fields in which `after` differs from `before`."""
    changed = {
        field.name: getattr(after, field.name)
        for field in fields(current)
        if getattr(before, field.name) != getattr(after, field.name)
    }
    return replace(current, **changed) if changed else current
