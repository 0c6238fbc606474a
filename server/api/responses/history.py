"""What a request refers to by ids, in its place: the conversation of an earlier response, and
single items.

Owns which responses a caller may refer to: those that are stored and have ended well. A request is
kept with what it referred to, so that a conversation goes on when its beginnings are given up.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ...errors import RequestError, StreamNotFoundError
from ...kept.kept import Kept
from ...lease.waiter import Waiter
from ...schema.responses import InputItem, PromptOfResponse
from ...service import Service
from .ids import RESPONSE, input_id, response_of
from .output import output_text

Body = TypeVar("Body", bound=PromptOfResponse)

WIRE = "responses"
# JSON of conversations is about so many times longer than its packed form.
_PACKED = 4
_HINT = "it was not stored, or has been given up or deleted since"


def stored_response(service: Service, key: str, id_: str) -> Kept:
    """The caller's stored response. Raises StreamNotFoundError."""
    kept = service.kept.answer(key, id_) if id_.startswith(RESPONSE) else None
    if kept is None or kept.id != id_ or kept.request.wire != WIRE:
        raise StreamNotFoundError(f"no such response: {_HINT}")
    return kept


async def with_history(service: Service, body: Body, waiter: Waiter) -> tuple[Body, Waiter]:
    """The body with a whole conversation as its `input`, and the waiter with its new length.
    Raises RequestError.
    """
    items, id_ = items_of(body.input), body.previous_response_id
    references = {
        i: _referred(service, waiter.key, item, f"input[{i}].id")
        for i, item in enumerate(items)
        if item.type == "item_reference"
    }
    if id_ is None and not references:
        return body, waiter
    previous = None if id_ is None else _previous(service, waiter.key, id_)
    read = [*references.values(), *([] if previous is None else [previous])]
    n_bytes = waiter.n_body + sum(map(unpacked_length, read))

    def whole() -> list[InputItem]:
        earlier: list[InputItem] = []
        if previous is not None:
            earlier = _validated([*input_items(previous), *output_items(previous)])
        named = [
            _stored_item(references[i], item.id, f"input[{i}].id") if i in references else item
            for i, item in enumerate(items)
        ]
        return [*earlier, *named]

    conversation = await service.large_bodies.run(whole, n_bytes)
    return body.model_copy(update={"input": conversation}), replace(waiter, n_body=n_bytes)


def unpacked_length(kept: Kept) -> int:
    """About how many bytes of JSON a response and its request are."""
    return _PACKED * (len(kept.request.body) + len(kept.whole))


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


def _referred(service: Service, key: str, item: InputItem, path: str) -> Kept:
    """The response that has the item."""
    response_id = response_of(item.id or "")
    try:
        kept = None if response_id is None else stored_response(service, key, response_id)
    except StreamNotFoundError:
        kept = None
    if kept is None or not kept.whole:
        raise _no_item(path)
    return kept


def _stored_item(kept: Kept, id_: str | None, path: str) -> InputItem:
    for item in (*output_items(kept), *input_items(kept)):
        if item["id"] == id_:
            return InputItem.model_validate(item)
    raise _no_item(path)


def _no_item(path: str) -> RequestError:
    return RequestError(
        f"{path} names no item of a stored response: {_HINT}; send the item itself", param=path
    )


def _validated(items: Sequence[Mapping[str, Any]]) -> list[InputItem]:
    return [InputItem.model_validate(item) for item in items]
