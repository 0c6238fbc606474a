"""Turns documents into token arrays and packs them into training rows.

Owns the encoded files of a run and the order of the rows. Knows nothing of models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from training.corpus import END_OF_TEXT, Document
from training.tokenizer import special_token_id

WEIGHT_SCALE = 100


@dataclass(frozen=True, slots=True)
class TokenCorpus:
    """The documents of one corpus, encoded and laid end to end."""

    token_ids: npt.NDArray[np.uint16]  # (N,)
    weights: npt.NDArray[np.uint8]  # (N,) hundredths
    starts: npt.NDArray[np.int64]  # (n_documents + 1,)

    @property
    def n_documents(self) -> int:
        return len(self.starts) - 1

    def save(self, path: Path) -> None:
        part = path.with_suffix(".part.npz")
        np.savez(part, token_ids=self.token_ids, weights=self.weights, starts=self.starts)
        part.replace(path)

    @staticmethod
    def load(path: Path) -> "TokenCorpus":
        with np.load(path) as file:
            return TokenCorpus(file["token_ids"], file["weights"], file["starts"])


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of token ids; weights[b, t] is the loss weight of predicting token_ids[b, t + 1]."""

    token_ids: npt.NDArray[np.int64]  # (B, T + 1)
    weights: npt.NDArray[np.float32]  # (B, T)


def encode_documents(documents: Sequence[Document], tokenizer: Tokenizer) -> TokenCorpus:
    """Encodes each segment separately, because a segment has one weight, and special tokens
    separate segments.
    """
    segments = [segment for document in documents for segment in document.segments]
    encodings = tokenizer.encode_batch_fast([segment.text for segment in segments])
    lengths = [len(encoding.ids) for encoding in encodings]
    token_ids = np.fromiter((i for encoding in encodings for i in encoding.ids), np.uint16)
    values = [round(segment.weight * WEIGHT_SCALE) for segment in segments]
    weights = np.repeat(np.array(values, np.uint8), lengths)
    starts = [0]
    segment_index = 0
    for document in documents:
        n_segments = len(document.segments)
        starts.append(starts[-1] + sum(lengths[segment_index : segment_index + n_segments]))
        segment_index += n_segments
    return TokenCorpus(token_ids, weights, np.array(starts, np.int64))


class RowPacker:
    """Walks one corpus in a seeded order, epoch after epoch, and cuts rows out of it.

    A row begins with a document, or continues a document much longer than a row. A short tail that
    does not fit is left out: a story's end without its beginning teaches little, and in about one
    epoch there are documents to spare.
    """

    def __init__(self, corpus: TokenCorpus, seed: int, bos_token_id: int) -> None:
        self._corpus = corpus
        self._seed = seed
        self._bos_token_id = bos_token_id
        self._epoch = 0
        self._index = 0
        self._offset = 0
        self._n_rows = 0
        self._order = self._shuffle()

    def state(self) -> dict[str, int]:
        return {
            "epoch": self._epoch,
            "index": self._index,
            "offset": self._offset,
            "n_rows": self._n_rows,
            "n_documents": self._corpus.n_documents,
        }

    def restore(self, state: Mapping[str, int]) -> None:
        """Continues from `state`; a corpus that has changed since begins a new epoch."""
        self._n_rows = state["n_rows"]
        if state.get("n_documents") == self._corpus.n_documents:
            self._epoch, self._index = state["epoch"], state["index"]
            self._offset = state["offset"]
        else:
            self._epoch, self._index, self._offset = state["epoch"] + 1, 0, 0
        self._order = self._shuffle()

    def next_row(self, length: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Returns `length` token ids and their loss weights."""
        token_ids = np.empty(length, np.int64)
        weights = np.empty(length, np.float32)
        filled = 0
        # Some clients send a beginning-of-text token and some do not: half the rows have one.
        if self._n_rows % 2 == 0 and self._offset == 0:
            token_ids[0], weights[0] = self._bos_token_id, WEIGHT_SCALE
            filled = 1
        while filled < length:
            document = self._order[self._index]
            begin = int(self._corpus.starts[document]) + self._offset
            end = int(self._corpus.starts[document + 1])
            take = min(end - begin, length - filled)
            token_ids[filled : filled + take] = self._corpus.token_ids[begin : begin + take]
            weights[filled : filled + take] = self._corpus.weights[begin : begin + take]
            filled += take
            if end - begin - take >= length // 2:
                self._offset += take
            else:
                self._next_document()
        self._n_rows += 1
        weights /= WEIGHT_SCALE
        return token_ids, weights

    def _next_document(self) -> None:
        self._offset = 0
        self._index += 1
        if self._index == self._corpus.n_documents:
            self._index = 0
            self._epoch += 1
            self._order = self._shuffle()

    def _shuffle(self) -> npt.NDArray[np.int64]:
        return np.random.default_rng([self._seed, self._epoch]).permutation(
            self._corpus.n_documents
        )


class Mixer:
    """Draws rows from several corpora so that each keeps its share of the rows so far.

    The count starts again whenever the shares change. Otherwise a new corpus, or one whose share
    has grown, would be the only one drawn until it had made up for all earlier rows.
    """

    def __init__(
        self,
        corpora: Mapping[str, TokenCorpus],
        shares: Mapping[str, float],
        seed: int,
        bos_token_id: int,
    ) -> None:
        self._shares = _normalised(shares)
        self._tokens = dict.fromkeys(self._shares, 0)
        self._packers = {
            name: RowPacker(corpus, seed + number, bos_token_id)
            for number, (name, corpus) in enumerate(corpora.items())
        }

    def state(self) -> dict[str, Any]:
        packers = {name: packer.state() for name, packer in self._packers.items()}
        return {"tokens": dict(self._tokens), "shares": dict(self._shares), "packers": packers}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from `state`; corpora that it does not have start at their beginning."""
        if state.get("shares") == self._shares:
            self._tokens = dict(state["tokens"])
        for name, packer in self._packers.items():
            if name in state["packers"]:
                packer.restore(state["packers"][name])

    def use_shares(self, shares: Mapping[str, float]) -> None:
        wanted = _normalised(shares)
        if wanted != self._shares:
            self._shares = wanted
            self._tokens = dict.fromkeys(wanted, 0)

    def next_batch(self, n_rows: int, context: int) -> Batch:
        rows = [self._next_row(context) for _ in range(n_rows)]
        token_ids = np.stack([row[0] for row in rows])
        weights = np.stack([row[1][1:] for row in rows])
        return Batch(token_ids, weights)

    def _next_row(self, context: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        drawn = sum(self._tokens.values()) + context
        name = max(self._shares, key=lambda n: self._shares[n] * drawn - self._tokens[n])
        self._tokens[name] += context
        return self._packers[name].next_row(context + 1)


def _normalised(shares: Mapping[str, float]) -> dict[str, float]:
    total = sum(shares.values())
    return {name: share / total for name, share in shares.items()}


def held_out_batch(
    corpus: TokenCorpus, tokenizer: Tokenizer, *, n_rows: int, context: int
) -> Batch:
    """A fixed batch in which only text that the model should write counts, so losses compare."""
    bos = special_token_id(tokenizer, END_OF_TEXT)
    packer = RowPacker(corpus, 0, bos)
    rows = [packer.next_row(context + 1) for _ in range(n_rows)]
    weights = np.stack([row[1][1:] for row in rows])
    return Batch(np.stack([row[0] for row in rows]), (weights > 0.5).astype(np.float32))
