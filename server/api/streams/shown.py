"""A kept stream as JSON."""

from collections.abc import Sequence
from typing import Any

from engine import Tokenizer

from ...answer.choices import sampled
from ...answer.logprobs import TokenNames, chat_entries
from ...answer.metadata import TOKEN_NAMES, Include, with_metadata
from ...kept.kept import Kept
from ...kept.registry import KeptStreams
from ...kept.streams import KeptStream
from ...stream.jobs import Step

ALL = Include.of(TOKEN_NAMES)


def summary(registry: KeptStreams, kept: Kept, stream: KeptStream) -> dict[str, Any]:
    """All but its tokens."""
    request, origin = kept.request, stream.origin
    children = [id_ for id_ in stream.children if registry.has(request.key, id_)]
    return {
        "id": stream.id,
        "object": "stream",
        "created": request.created,
        "model": request.model,
        "wire": request.wire,
        "answer_id": kept.id,
        "index": stream.index,
        "state": kept.state(stream),
        "finish": stream.finish,
        "reason": kept.reason,
        "parent": {"id": origin.parent, "at": origin.at} if origin else None,
        "children": children,
        "background": request.is_background,
        "events": kept.log.n_events,
        "prompt_tokens": len(stream.prompt_ids),
        "completion_tokens": stream.n_tokens,
        "metadata": kept.metadata,
    }


def detail(
    stream: KeptStream, steps: Sequence[Step], about: dict[str, Any], tokenizer: Tokenizer
) -> dict[str, Any]:
    """`about`, its summary, with what `steps` hold."""
    names = TokenNames(tokenizer, as_ids=False)
    tokens: list[dict[str, Any]] = []
    for step in steps:
        records = sampled(step.result)
        tokens += with_metadata(chat_entries(records, names), records, step.clock, ALL)
    return {
        **about,
        "text": "".join(step.result.chunk for step in steps),
        "prompt_token_ids": list(stream.prompt_ids),
        "token_ids": [token["token_id"] for token in tokens],
        "tokens": tokens,
    }
