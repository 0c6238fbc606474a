"""What request and response models are made of.

Requests are strict: no bool for an integer, no "5" for 5, no NaN.
"""

from typing import Any

from pydantic import (
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


class ResponseModel(BaseModel):
    """A part of an answer: exactly these fields."""

    model_config = ConfigDict(extra="forbid")


def one_message(message: str) -> WrapValidator:
    """Answer a value that fits no branch of a union with one sentence instead of one per branch."""

    def validate(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError as error:
            raise PydanticCustomError("union", message) from error

    return WrapValidator(validate)
