"""Biases of texts: each token of the text gets it, as in llama-server."""

from collections.abc import Mapping
from typing import TypeVar

from engine import Tokenizer

from ...request.sampling import is_token_id
from ...request.text import check_text
from ...schema.sampling import SamplingFields

Body = TypeVar("Body", bound=SamplingFields)


def with_token_biases(body: Body, tokenizer: Tokenizer) -> Body:
    """The body with token ids in the place of texts."""
    wire = body.logit_bias
    if wire is None:
        return body
    if isinstance(wire, Mapping):
        pairs = [(int(key) if is_token_id(key) else key, bias) for key, bias in wire.items()]
    else:
        pairs = list(wire)
    if not any(isinstance(key, str) for key, _ in pairs):
        return body
    found: list[tuple[int | str, float | bool]] = []
    for key, bias in pairs:
        if isinstance(key, str):
            check_text(key, param="logit_bias")
            ids = tokenizer.encode(key, add_special_tokens=False)
            found += [(token_id, bias) for token_id in ids]
        else:
            found.append((key, bias))
    return body.model_copy(update={"logit_bias": found})
