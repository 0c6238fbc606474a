"""GET /v1/chat/completions, and GET, POST and DELETE of one: replies that were kept."""

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request

from ...errors import StreamNotFoundError
from ...http.json_body import JsonRoute
from ...kept.kept import Kept
from ...request.storing import checked_metadata
from ...request.unknown_fields import refuse_unknown_fields
from ...schema.errors import error_responses
from ...schema.stored_chat import (
    StoredChat,
    StoredChatDeleted,
    StoredChatList,
    StoredChatUpdate,
    StoredMessageList,
)
from ...service import Service
from ..paging import After, Limit, Order, page

_ERRORS = error_responses(400, 401, 403, 404, 421)
_PATH = "/v1/chat/completions/{completion_id}"


def stored_chat_routes(service: Service) -> APIRouter:
    """The routes, over the kept streams."""
    router = APIRouter(tags=["stored chats"], route_class=JsonRoute)

    @router.get(
        "/v1/chat/completions",
        response_model=StoredChatList,
        response_model_exclude_unset=True,
        responses=_ERRORS,
    )
    async def list_stored_chats(
        request: Request,
        limit: Limit = 20,
        after: After = None,
        order: Order = "asc",
        model: Annotated[str | None, Query(description="Only replies of this model.")] = None,
    ) -> dict[str, Any]:
        """The stored replies of the caller; `metadata[NAME]=VALUE`: only those that have it."""
        wanted = _wanted_metadata(request)
        chats = [
            kept
            for kept in service.kept.answers(_caller(request))
            if _is_chat(kept)
            and model in (None, kept.request.model)
            and wanted.items() <= kept.metadata.items()
        ]
        return page(
            chats, id_of=lambda kept: kept.id, shown=_shown, limit=limit, after=after, order=order
        )

    @router.get(
        _PATH, response_model=StoredChat, response_model_exclude_unset=True, responses=_ERRORS
    )
    async def get_stored_chat(completion_id: str, request: Request) -> dict[str, Any]:
        """A stored reply."""
        return _shown(_chat(service, request, completion_id))

    @router.post(
        _PATH, response_model=StoredChat, response_model_exclude_unset=True, responses=_ERRORS
    )
    async def update_stored_chat(
        completion_id: str, body: StoredChatUpdate, request: Request
    ) -> dict[str, Any]:
        """Give a stored reply other metadata."""
        refuse_unknown_fields(body)
        kept = _chat(service, request, completion_id)
        kept.metadata = checked_metadata(body.metadata)
        service.kept.changed(kept)
        return _shown(kept)

    @router.delete(_PATH, response_model=StoredChatDeleted, responses=_ERRORS)
    async def delete_stored_chat(completion_id: str, request: Request) -> dict[str, Any]:
        """Forget a stored reply."""
        service.kept.delete(_chat(service, request, completion_id))
        return {"id": completion_id, "object": "chat.completion.deleted", "deleted": True}

    @router.get(f"{_PATH}/messages", response_model=StoredMessageList, responses=_ERRORS)
    async def list_stored_messages(
        completion_id: str,
        request: Request,
        limit: Limit = 20,
        after: After = None,
        order: Order = "asc",
    ) -> dict[str, Any]:
        """The messages that a stored reply answers."""
        return page(
            _messages(_chat(service, request, completion_id)),
            id_of=lambda message: str(message["id"]),
            shown=lambda message: message,
            limit=limit,
            after=after,
            order=order,
        )

    return router


def _chat(service: Service, request: Request, id_: str) -> Kept:
    kept = service.kept.answer(_caller(request), id_)
    if kept.id != id_ or not _is_chat(kept):
        raise StreamNotFoundError(
            "no such stored chat completion: it is not a chat, or has not ended yet"
        )
    return kept


def _is_chat(kept: Kept) -> bool:
    return kept.request.wire == "chat" and bool(kept.whole)


def _shown(kept: Kept) -> dict[str, Any]:
    return {**json.loads(zlib.decompress(kept.whole)), "metadata": kept.metadata}


def _messages(kept: Kept) -> Sequence[dict[str, Any]]:
    sent = json.loads(zlib.decompress(kept.request.body))["messages"]
    return [_message(f"{kept.id}-{i}", message) for i, message in enumerate(sent)]


def _message(id_: str, message: Mapping[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    in_parts = isinstance(content, list)
    return {
        "id": id_,
        "role": message["role"],
        "content": None if in_parts else content,
        "content_parts": content if in_parts else None,
        "name": message.get("name"),
    }


def _wanted_metadata(request: Request) -> dict[str, str]:
    """As clients write a mapping into a query: `metadata[name]=value`."""
    pairs = request.query_params.multi_items()
    return {
        name[len("metadata[") : -1]: value
        for name, value in pairs
        if name.startswith("metadata[") and name.endswith("]")
    }


def _caller(request: Request) -> str:
    return str(request.scope["state"]["caller"])
