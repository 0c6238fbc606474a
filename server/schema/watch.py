"""The wire of `watch`: tokens whose probability is reported, whether or not they are drawn."""

from typing import Annotated

from pydantic import Field

from .parts import RequestModel

MAX_WATCHES = 64
MAX_WATCHED = 256
MAX_NAME_LENGTH = 64


class Watch(RequestModel):
    """Some tokens under one name. One of `token_ids` and `strings`, or both."""

    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH)] = Field(
        description="The key of their probability in the answer."
    )
    token_ids: (
        Annotated[list[int], Field(min_length=1, max_length=MAX_WATCHED, fail_fast=True)] | None
    ) = Field(default=None, description="Ids of the tokens.")
    strings: (
        Annotated[
            list[Annotated[str, Field(max_length=MAX_WATCHED)]],
            Field(min_length=1, max_length=MAX_WATCHED, fail_fast=True),
        ]
        | None
    ) = Field(
        default=None,
        description="Texts of the tokens, with the space before a word; each must be the whole "
        "text of a token.",
    )


Watches = Annotated[
    list[Watch],
    Field(min_length=1, max_length=MAX_WATCHES, fail_fast=True),
]
