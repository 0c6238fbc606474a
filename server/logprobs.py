"""Token records in the two shapes of OpenAI's logprobs: chat, and the older one of completions.

Only tokens whose text is part of the answer have an entry. The stop token, and tokens inside a stop
string, have none: joined over all entries, the bytes are exactly the bytes of the text.
Values are raw: logarithms of the model's own probabilities, before temperature and filters.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from engine import TokenRecord, TopToken

# OpenAI's stand-in for "very unlikely"; JSON has no -inf.
_LEAST = -9999.0


class _Tokenizer(Protocol):
    def token_bytes(self, token_id: int) -> bytes: ...


def legacy_logprobs(
    records: Sequence[TokenRecord], tokenizer: _Tokenizer, n_prompt_characters: int
) -> dict[str, Any]:
    """Four parallel lists; `text_offset` counts characters from the beginning of the prompt."""
    tokens, logprobs, tops, offsets = [], [], [], []
    for record in records:
        token = _legacy_token(_name_bytes(record, tokenizer))
        logprob = _finite(record.logprob)
        # Two ids may share a name; the likelier one, which comes first, keeps it.
        top: dict[str, float] = {}
        for other in record.top:
            top.setdefault(_legacy_token(other.token_bytes), _finite(other.logprob))
        top.setdefault(token, logprob)
        tokens.append(token)
        logprobs.append(logprob)
        tops.append(top)
        offsets.append(n_prompt_characters + record.text_start)
    return {
        "tokens": tokens,
        "token_logprobs": logprobs,
        "top_logprobs": tops,
        "text_offset": offsets,
    }


def chat_logprobs(records: Sequence[TokenRecord], tokenizer: _Tokenizer) -> dict[str, Any]:
    """One entry per token. A special token that is not shown has a name, and no bytes."""
    content = [
        {
            "token": _text(_name_bytes(record, tokenizer)),
            "logprob": _finite(record.logprob),
            "bytes": list(record.token_bytes),
            "top_logprobs": [_chat_top(other) for other in record.top],
        }
        for record in records
    ]
    return {"content": content, "refusal": None}


def _chat_top(top: TopToken) -> dict[str, Any]:
    return {
        "token": _text(top.token_bytes),
        "logprob": _finite(top.logprob),
        "bytes": list(top.token_bytes),
    }


def _name_bytes(record: TokenRecord, tokenizer: _Tokenizer) -> bytes:
    return tokenizer.token_bytes(record.token_id) if record.is_special else record.token_bytes


def _text(token_bytes: bytes) -> str:
    return token_bytes.decode("utf-8", errors="replace")


def _legacy_token(token_bytes: bytes) -> str:
    r"""The text, or OpenAI's bytes:\xe2\x99 for a piece of a character: names must differ."""
    try:
        return token_bytes.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token_bytes)


def _finite(logprob: float) -> float:
    return logprob if logprob > _LEAST else _LEAST
