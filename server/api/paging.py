"""A page of a list, as OpenAI's lists are paged: so many items after the one of an id."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Query

T = TypeVar("T")

Limit = Annotated[int, Query(ge=1, le=100, description="Items on the page.")]
After = Annotated[
    str | None, Query(max_length=128, description="The id of the last item of the page before.")
]
Order = Annotated[Literal["asc", "desc"], Query(description="By the time of their beginning.")]


def page(
    items: Sequence[T],
    *,
    id_of: Callable[[T], str],
    shown: Callable[[T], dict[str, Any]],
    limit: int,
    after: str | None,
    order: str,
) -> dict[str, Any]:
    """The page after the item `after`; from the beginning if there is no such item."""
    ordered = list(items) if order == "asc" else list(reversed(items))
    ids = [id_of(item) for item in ordered]
    start = ids.index(after) + 1 if after in ids else 0
    listed = ordered[start : start + limit]
    return {
        "object": "list",
        "data": [shown(item) for item in listed],
        "first_id": id_of(listed[0]) if listed else None,
        "last_id": id_of(listed[-1]) if listed else None,
        "has_more": start + limit < len(ordered),
    }
