"""What request and response models are made of.

Requests are strict: no bool for an integer, no "5" for 5, no NaN.
"""

import math
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import PydanticCustomError


class RequestModel(BaseModel):
    """A part of a request body. Fields that it does not know are kept, to be answered for."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


def _finite(value: dict[str, Any]) -> dict[str, Any]:
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
        elif isinstance(item, float) and not math.isfinite(item):
            raise PydanticCustomError("finite", "must hold finite numbers only")
    return value


JsonObject = Annotated[dict[str, Any], AfterValidator(_finite)]
"""Any JSON object. Python's reader of JSON knows NaN and infinity too; these are no JSON."""


class ResponseModel(BaseModel):
    """A part of an answer: exactly these fields."""

    model_config = ConfigDict(extra="forbid")


def one_message(message: str, *, max_items: int | None = None) -> WrapValidator:
    """Answer a value that fits no branch of a union with one sentence instead of one per branch.

    A list or object of more than `max_items` is answered so before any item of it is looked at.
    """

    def validate(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        if max_items is not None and isinstance(value, list | dict) and len(value) > max_items:
            raise PydanticCustomError("union", message)
        try:
            return handler(value)
        except ValidationError as error:
            raise PydanticCustomError("union", message) from error

    return WrapValidator(validate)
