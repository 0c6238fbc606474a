"""What a request refers to by ids, in its place: the conversation of an earlier response, and
single items.

Owns which responses a caller may refer to: those that are stored and have ended well. A request is
kept with what it referred to, so that a conversation goes on when its beginnings are given up.
"""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from ...errors import RequestError, StreamNotFoundError
from ...kept.kept import Kept
from ...schema.responses import InputItem, PromptOfResponse
from ...service import Service
from .ids import RESPONSE, input_id, place_of
from .output import output_text

Body = TypeVar("Body", bound=PromptOfResponse)

WIRE = "responses"
_HINT = "it was not stored, or has been given up or deleted since"


def stored_response(service: Service, key: str, id_: str) -> Kept:
    """The caller's stored response. Raises StreamNotFoundError."""
    kept = service.kept.answer(key, id_) if id_.startswith(RESPONSE) else None
    if kept is None or kept.id != id_ or kept.request.wire != WIRE:
        raise StreamNotFoundError(f"no such response: {_HINT}")
    return kept


async def with_history(service: Service, body: Body, *, key: str, n_body: int) -> Body:
    """The body with a whole conversation as its `input`. Raises RequestError."""
    items = items_of(body.input)
    is_whole = all(item.type != "item_reference" for item in items)
    if body.previous_response_id is None and is_whole:
        return body

    def referred() -> list[InputItem]:
        earlier: list[InputItem] = []
        if body.previous_response_id is not None:
            kept = _previous(service, key, body.previous_response_id)
            earlier = _validated([*input_items(kept), *output_items(kept)])
        return [*earlier, *_replaced(service, key, items)]

    whole = await service.large_bodies.run(referred, n_body)
    return body.model_copy(update={"input": whole})


def items_of(sent: str | Sequence[InputItem] | None) -> Sequence[InputItem]:
    """A string is a message of the user."""
    if not isinstance(sent, str):
        return sent or ()
    return [InputItem.model_validate(message_of(sent))]


def message_of(text: str) -> dict[str, Any]:
    """A message of the user, as OpenAI lists it."""
    return {
        "type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]
    }  # fmt: skip


def input_items(kept: Kept) -> list[dict[str, Any]]:
    """What a response answers, each item with an id."""
    sent = json.loads(zlib.decompress(kept.request.body)).get("input") or []
    items = [message_of(sent)] if isinstance(sent, str) else sent
    return [_listed(kept.id, item, i) for i, item in enumerate(items)]


def output_items(kept: Kept) -> list[dict[str, Any]]:
    """What a response that has ended well says."""
    output: list[dict[str, Any]] = json.loads(zlib.decompress(kept.whole))["output"]
    return output


def _listed(response_id: str, item: Mapping[str, Any], i: int) -> dict[str, Any]:
    """In the form that OpenAI's lists have: with a type, an id, and content in parts."""
    kind = item.get("type") or "message"
    listed = {**item, "type": kind, "id": item.get("id") or input_id(response_id, kind, i)}
    content = item.get("content")
    if isinstance(content, str):
        is_answer = item.get("role") == "assistant"
        part = output_text(content, []) if is_answer else {"type": "input_text", "text": content}
        listed["content"] = [part]
    return listed


def _previous(service: Service, key: str, id_: str) -> Kept:
    try:
        kept = stored_response(service, key, id_)
    except StreamNotFoundError:
        raise RequestError(
            f"previous_response_id names no response: {_HINT}; send all of it as input",
            param="previous_response_id",
            code="previous_response_not_found",
        ) from None
    if not kept.whole:
        raise RequestError(
            "previous_response_id names a response that failed or has not ended yet",
            param="previous_response_id",
        )
    return kept


def _replaced(service: Service, key: str, items: Sequence[InputItem]) -> Iterator[InputItem]:
    for i, item in enumerate(items):
        if item.type == "item_reference":
            yield from _validated([_stored_item(service, key, item, f"input[{i}].id")])
        else:
            yield item


def _stored_item(service: Service, key: str, item: InputItem, path: str) -> dict[str, Any]:
    place = place_of(item.id or "")
    if place is not None:
        try:
            kept = stored_response(service, key, place.response_id)
        except StreamNotFoundError:
            kept = None
        if kept is not None and kept.whole:
            found = input_items(kept) if place.is_input else output_items(kept)
            for one in found:
                if one["id"] == item.id:
                    return one
    raise RequestError(
        f"{path} names no item of a stored response: {_HINT}; send the item itself", param=path
    )


def _validated(items: Sequence[Mapping[str, Any]]) -> list[InputItem]:
    return [InputItem.model_validate(item) for item in items]
