"""The wire of stored chat completions, which is OpenAI's."""

from typing import Any, Literal

from pydantic import Field

from .chat import ChatCompletion
from .parts import JsonObject, RequestModel, ResponseModel


class StoredChat(ChatCompletion):
    """A reply, as it was answered, with what it can be found by."""

    metadata: dict[str, str]


class StoredChatList(ResponseModel):
    """A page of replies."""

    object: Literal["list"]
    data: list[StoredChat]
    first_id: str | None
    last_id: str | None
    has_more: bool


class StoredMessage(ResponseModel):
    """A message of the conversation."""

    id: str
    role: str
    content: str | None
    content_parts: list[dict[str, Any]] | None = Field(
        description="The parts of a message that was sent in parts; else null."
    )
    name: str | None = None


class StoredMessageList(ResponseModel):
    """A page of messages."""

    object: Literal["list"]
    data: list[StoredMessage]
    first_id: str | None
    last_id: str | None
    has_more: bool


class StoredChatUpdate(RequestModel):
    """Other metadata for a stored reply."""

    metadata: JsonObject | None = Field(description="Up to 16 strings; null: none.")


class StoredChatDeleted(ResponseModel):
    """The reply is forgotten."""

    id: str
    object: Literal["chat.completion.deleted"]
    deleted: Literal[True]
