"""A lower bound on the number of tokens of a text, without encoding it.

If joined tokens give the text, every byte of the text is a byte of one of its tokens. Let a byte
weigh 1/n if the longest token that contains it has n bytes. Then the bytes of a token weigh at most
1 together, so a text has at least as many tokens as it weighs. If several texts become one token,
as U+2581 and a space do, the shortest and the longest count: one in between weighs no more than
they do. There is no bound for a tokenizer that drops or shortens text.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers

_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class TokenBound:
    """The bound for one vocabulary."""

    weights: npt.NDArray[np.float64]  # (256,), of each byte
    ascii_only: bool
    """Whether non-ASCII text may become shorter before it becomes tokens."""

    def least(self, text: str) -> int:
        """The least number of tokens that `text` can have; 0 if it is unknown."""
        if self.ascii_only and not text.isascii():
            return 0
        data = np.frombuffer(text.encode(), np.uint8)
        counts = np.bincount(data, minlength=256)
        return math.ceil(float(counts @ self.weights) * (1 - _ROUNDING))


def token_bound(backend: tokenizers.Tokenizer, tokens: Iterable[bytes]) -> TokenBound | None:
    """The bound of a tokenizer that turns these texts into tokens; None if it may lose text."""
    added = backend.get_added_tokens_decoder().values()
    if any(token.lstrip or token.rstrip for token in added):
        return None  # such a token swallows the blanks around it
    normalizers = _steps(_state(backend.normalizer), "normalizers")
    splitters = _steps(_state(backend.pre_tokenizer), "pretokenizers")
    if not (_spells_everything(backend, splitters) and all(map(_keeps, splitters))):
        return None
    kinds = {step["type"] for step in normalizers}
    if not all(step["type"] == "NFC" or _lengthens(step) for step in normalizers):
        return None
    return TokenBound(_weights(tokens), ascii_only="NFC" in kinds)


def _weights(tokens: Iterable[bytes]) -> npt.NDArray[np.float64]:
    longest = np.ones(256)
    unseen = set(range(256))
    for data in sorted(set(tokens), key=len, reverse=True):
        new = unseen.intersection(data)
        longest[list(new)] = len(data)
        unseen -= new
        if not unseen:
            break
    return 1 / longest


def _spells_everything(backend: tokenizers.Tokenizer, splitters: list[Mapping[str, Any]]) -> bool:
    """Whether every text can be spelled, so that no token stands for unknown text."""
    pieces: list[str]
    if any(step["type"] == "ByteLevel" for step in splitters):
        pieces = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    elif getattr(backend.model, "byte_fallback", False):
        pieces = _BYTES
    else:
        return False
    models = (tokenizers.models.BPE, tokenizers.models.Unigram)
    known = all(backend.token_to_id(piece) is not None for piece in pieces)
    return known and isinstance(backend.model, models)


def _keeps(splitter: Mapping[str, Any]) -> bool:
    """Whether its pieces, joined, contain the whole text."""
    if splitter["type"] == "Split":
        return str(splitter["behavior"]) != "Removed"
    return splitter["type"] in ("ByteLevel", "Digits", "Metaspace")


def _lengthens(normalizer: Mapping[str, Any]) -> bool:
    """Whether it never shortens text; a space may become one other character."""
    if normalizer["type"] != "Replace":
        return str(normalizer["type"]) == "Prepend"
    return bool(normalizer["pattern"] == {"String": " "} and len(normalizer["content"]) == 1)


def _state(part: Any) -> Mapping[str, Any] | None:
    return None if part is None else json.loads(part.__getstate__())


def _steps(state: Mapping[str, Any] | None, inner: str) -> list[Mapping[str, Any]]:
    if state is None:
        return []
    if state["type"] != "Sequence":
        return [state]
    return [step for part in state[inner] for step in _steps(part, inner)]
