"""Replies for tests of their readers: written tags, cut into tokens and results in any way."""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise

from engine import ReplyDelta, ReplyFormat, ReplyReader, StreamResult, TokenRecord, Tool

FIRST_TAG = 1000
TEMPLATES = {
    "hermes": "{% if tools %}<tool_call>{% endif %} </think>",
    "llama3": '{"name": function name, "parameters": dictionary} <|python_tag|> </think>',
    "mistral": "[TOOL_CALLS] [THINK][/THINK]",
    "mistral-named": "[TOOL_CALLS][ARGS] [THINK][/THINK]",
    "qwen3-coder": "<tool_call><function= </think>",
}
TAGS = (
    *("<think>", "</think>", "[THINK]", "[/THINK]", "<tool_call>", "</tool_call>"),
    *("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|python_tag|>"),
)

Part = tuple[str, int, str]
"""What a delta says: kind, call and text."""


class TagTokenizer:
    """Tags are special tokens or plain text; ids from 0 are bytes, 500 begins a turn."""

    def __init__(self, special: Sequence[str] = (), *, plain: Sequence[str] = ()) -> None:
        self.special = special
        self.tags = (*special, *plain)

    def added_token_id(self, text: str) -> int | None:
        return FIRST_TAG + self.tags.index(text) if text in self.tags else None

    def token_bytes(self, token_id: int) -> bytes:
        if token_id >= FIRST_TAG:
            return self.tags[token_id - FIRST_TAG].encode()
        return b"<|turn|>" if token_id == 500 else bytes([token_id])

    def is_special(self, token_id: int) -> bool:
        return FIRST_TAG <= token_id < FIRST_TAG + len(self.special)

    def is_control(self, token_id: int) -> bool:
        return self.is_special(token_id) or token_id == 500

    def encode(self, text: str) -> list[int]:
        """Each tag is one token and all other text is bytes; "|" begins a turn."""
        pieces = re.split("(" + "|".join(map(re.escape, self.tags)) + ")", text)
        if not self.tags:
            pieces = [text]
        found = [
            [FIRST_TAG + self.tags.index(piece)] if piece in self.tags else piece.encode()
            for piece in pieces
        ]
        return [500 if token_id == ord("|") else token_id for ids in found for token_id in ids]


def reply_format(name: str, *, special: bool = False) -> ReplyFormat:
    return ReplyFormat.of(TEMPLATES[name], TagTokenizer(TAGS if special else ()))


def record(token_id: int, text: str, start: int, *, shown: bool = True) -> TokenRecord:
    data = text.encode() if shown else b""
    end = start + len(text) if shown else start
    return TokenRecord(
        token_id, data, start, end, -0.5, 0.6, 0.6, (), token_id >= FIRST_TAG,
        0, 0.1, 0.1, 1.0, "model", None, (),
    )  # fmt: skip


def tokens(
    reply: str,
    cuts: Iterable[int] = (),
    *,
    special: bool = False,
    shown: bool = False,
    tags: Sequence[str] = TAGS,
) -> list[TokenRecord]:
    """The reply divided at `cuts`, and around `tags` that are special tokens."""
    pieces = re.split("(" + "|".join(map(re.escape, tags)) + ")", reply) if special else [reply]
    records: list[TokenRecord] = []
    cuts = set(cuts)
    position = written = 0
    for piece in pieces:
        if special and piece in tags:
            records.append(record(FIRST_TAG + tags.index(piece), piece, position, shown=shown))
            position = records[-1].text_end
        else:
            inner = sorted(cut - written for cut in cuts if 0 < cut - written < len(piece))
            for start, end in pairwise((0, *inner, len(piece))):
                if start < end:
                    records.append(record(1, piece[start:end], position))
                    position += end - start
        written += len(piece)
    return records


def results(records: Sequence[TokenRecord], ends: Iterable[int]) -> list[StreamResult]:
    """The text of the records whose text ends at these characters, result by result. A record comes
    with the last piece of its text.
    """
    text = b"".join(record.token_bytes for record in records).decode()
    waiting = list(records)
    found = []
    for start, end in pairwise((0, *sorted(min(end, len(text)) for end in ends), len(text))):
        n = next((i for i, r in enumerate(waiting) if r.text_end > end), len(waiting))
        found.append(StreamResult({"chunk": text[start:end], "tokens": tuple(waiting[:n])}))
        del waiting[:n]
    last = {"eos": True, "eos_reason": "stop_token"}
    return [*found, StreamResult(last)]


def one_by_one(records: Sequence[TokenRecord]) -> list[StreamResult]:
    """One result per token."""
    found = [StreamResult({"chunk": r.token_bytes.decode(), "tokens": (r,)}) for r in records]
    return [*found, StreamResult({"eos": True, "eos_reason": "stop_token"})]


def read(reader: ReplyReader, stream: Iterable[StreamResult]) -> list[ReplyDelta]:
    return [delta for result in stream for delta in reader.read(result)]


def parts(deltas: Iterable[ReplyDelta]) -> list[Part]:
    """What the deltas say, joined."""
    said = [delta for delta in deltas if delta.text]
    return [
        (kind, call, "".join(delta.text for delta in group))
        for (kind, call), group in groupby(said, lambda delta: (delta.kind, delta.call))
    ]


def tools(*names: str) -> list[Tool]:
    return [Tool(name) for name in names]
