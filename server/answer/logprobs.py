r"""Tokens and how likely they were, in three shapes: OpenAI's of chat, OpenAI's older one of
completions, and vLLM's of a prompt.

Values are raw: logarithms of the model's own probabilities, before temperature and filters. A token
is named by its text. Names of two tokens may be equal; as `token_id:123` they never are.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from engine import PromptToken, TopToken

# OpenAI's stand-in for "very unlikely"; JSON has no -inf.
_LEAST = -9999.0


class _Tokenizer(Protocol):
    def token_bytes(self, token_id: int) -> bytes: ...


class Token(Protocol):
    """A token of a completion, or of a prompt, whose first one has no logprob."""

    @property
    def token_id(self) -> int: ...

    @property
    def token_bytes(self) -> bytes: ...

    @property
    def text_start(self) -> int: ...

    @property
    def logprob(self) -> float | None: ...

    @property
    def top(self) -> tuple[TopToken, ...]: ...


class TokenNames:
    """Names of tokens in one answer. A token that adds nothing to the text still has a name."""

    def __init__(self, tokenizer: _Tokenizer, *, as_ids: bool = False) -> None:
        self._tokenizer = tokenizer
        self._as_ids = as_ids
        self._names: dict[bytes, str] = {}  # the distinct ones so far, if not by id

    def of(self, token: Token | TopToken) -> str:
        if self._as_ids:
            return _id_name(token)
        return self._bytes(token).decode("utf-8", errors="replace")

    def distinct(self, token: Token | TopToken) -> str:
        r"""As `of`, but bytes:\xe2\x99 for a piece of a character, as OpenAI has it: names that
        are keys of an object must differ.
        """
        name = self._names.get(token.token_bytes)
        return self._distinct(token) if name is None else name

    def _distinct(self, token: Token | TopToken) -> str:
        if self._as_ids:
            return _id_name(token)
        data = self._bytes(token)
        try:
            name = data.decode("utf-8")
        except UnicodeDecodeError:
            name = "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
        if token.token_bytes:
            self._names[data] = name
        return name

    def _bytes(self, token: Token | TopToken) -> bytes:
        return token.token_bytes or self._tokenizer.token_bytes(token.token_id)


def legacy_logprobs(
    tokens: Sequence[Token], text_offset: Sequence[int], names: TokenNames, *, n_top: int
) -> dict[str, Any]:
    """Four parallel lists. `text_offset`: where each token begins, in characters."""
    name_of = names.distinct
    named: list[str] = []
    logprobs: list[float | None] = []
    tops: list[dict[str, float] | None] = []
    for token in tokens:
        name, logprob = name_of(token), token.logprob
        named.append(name)
        if logprob is None:
            logprobs.append(None)
            tops.append(None)
            continue
        logprob = logprob if logprob > _LEAST else _LEAST
        logprobs.append(logprob)
        # Two ids may share a name; the likelier one, which comes first, keeps it.
        top: dict[str, float] = {}
        for other in token.top[:n_top]:
            top.setdefault(name_of(other), _finite(other.logprob))
        top.setdefault(name, logprob)
        tops.append(top)
    return {
        "tokens": named,
        "token_logprobs": logprobs,
        "top_logprobs": tops,
        "text_offset": text_offset,
    }


def least_finite(logprob: float | None) -> float:
    """The logprob as an answer says it: none is below OpenAI's stand-in for "very unlikely"."""
    return _finite(0.0 if logprob is None else logprob)


def chat_entries(records: Sequence[Token], names: TokenNames) -> list[dict[str, Any]]:
    """One entry per token. A special token that is not shown has a name, and no bytes."""
    return [
        {**_entry(record, names), "top_logprobs": [_entry(other, names) for other in record.top]}
        for record in records
    ]


def prompt_logprobs(
    tokens: Sequence[PromptToken], names: TokenNames, *, n_top: int
) -> list[dict[str, Any] | None]:
    """Per token of a prompt its alternatives and itself, by id; null for the first one."""
    return [
        None if token.logprob is None else _ranked(token, names, n_top=n_top) for token in tokens
    ]


def _entry(token: Token | TopToken, names: TokenNames) -> dict[str, Any]:
    return {
        "token": names.of(token),
        "logprob": least_finite(token.logprob),
        "bytes": list(token.token_bytes),
    }


def _ranked(token: PromptToken, names: TokenNames, *, n_top: int) -> dict[str, Any]:
    assert token.rank is not None
    places: list[tuple[PromptToken | TopToken, int]] = [
        *zip(token.top[:n_top], range(1, n_top + 1), strict=False)
    ]
    if token.token_id not in [other.token_id for other, _ in places]:
        places.append((token, token.rank + 1))
    return {
        str(other.token_id): {
            "logprob": least_finite(other.logprob),
            "rank": rank,
            "decoded_token": names.of(other),
        }
        for other, rank in places
    }


def _id_name(token: Token | TopToken) -> str:
    return f"token_id:{token.token_id}"


def _finite(logprob: float) -> float:
    return logprob if logprob > _LEAST else _LEAST
