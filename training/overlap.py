"""Finds the longest runs of words that samples share with a body of texts.

Owns the search. Knows nothing of models or of where the texts come from.

Runs of n words grow to runs of n + 1: a run of n + 1 words can only begin where one of n began, so
after a few words little of the texts is left to look at. Runs are compared by number, and equal
numbers mean equal words: nothing is hashed, so nothing can collide.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.int64]
NO_WORD = -1
"""Ends a text, and stands for every word that no sample has."""


@dataclass(frozen=True, slots=True)
class Run:
    """Words of a sample that occur in some text in this order, without a gap."""

    words: str
    n_words: int


def words_of(text: str) -> list[str]:
    """Lower-case words; punctuation and control tokens are left out."""
    return re.findall(r"[\w']+", re.sub(r"<\|\w+\|>", " ", text.lower()))


def longest_runs(samples: Sequence[str], texts: Iterable[str]) -> list[Run]:
    """For every sample, the longest run of its words that occurs in one of the texts."""
    sample_words = [words_of(sample) for sample in samples]
    numbers: dict[str, int] = {}
    for word in (word for words in sample_words for word in words):
        numbers.setdefault(word, len(numbers))
    mine = _laid_end_to_end(sample_words, numbers)
    theirs = _laid_end_to_end((words_of(text) for text in texts), numbers)
    lengths = _run_lengths(mine, theirs, len(numbers))
    runs = []
    start = 0
    for words in sample_words:
        here = lengths[start : start + len(words)]
        begin = int(here.argmax()) if words else 0
        n_words = int(here[begin]) if words else 0
        runs.append(Run(" ".join(words[begin : begin + n_words]), n_words))
        start += len(words) + 1
    return runs


def _laid_end_to_end(texts: Iterable[Sequence[str]], numbers: dict[str, int]) -> Words:
    """The numbers of the words, with NO_WORD after every text."""
    parts = [
        np.array([*(numbers.get(word, NO_WORD) for word in words), NO_WORD], np.int64)
        for words in texts
    ]
    return np.concatenate(parts) if parts else np.array([NO_WORD], np.int64)


def _run_lengths(mine: Words, theirs: Words, n_words: int) -> Words:
    """At every position of `mine`, the length of the longest run from there found in `theirs`."""
    lengths = np.zeros(len(mine), np.int64)
    my_starts, my_runs = np.arange(len(mine)), np.zeros(len(mine), np.int64)
    their_starts, their_runs = np.arange(len(theirs)), np.zeros(len(theirs), np.int64)
    n = 0
    while len(my_starts) and len(their_starts):
        my_starts, my_keys = _longer_by_one(mine, my_starts, my_runs, n, n_words)
        their_starts, their_keys = _longer_by_one(theirs, their_starts, their_runs, n, n_words)
        n += 1
        common = np.intersect1d(my_keys, their_keys)
        my_starts, my_runs = _among(common, my_starts, my_keys)
        their_starts, their_runs = _among(common, their_starts, their_keys)
        lengths[my_starts] = n
    return lengths


def _longer_by_one(
    words: Words, starts: Words, runs: Words, n: int, n_words: int
) -> tuple[Words, Words]:
    """The starts whose run of n continues, and for each a number that names the run of n + 1."""
    inside = starts + n < len(words)
    starts, runs = starts[inside], runs[inside]
    following = words[starts + n]
    goes_on = following != NO_WORD
    return starts[goes_on], runs[goes_on] * n_words + following[goes_on]


def _among(common: Words, starts: Words, keys: Words) -> tuple[Words, Words]:
    """The starts whose key is common, each with the index of its key among the common ones."""
    if not len(common):
        return starts[:0], keys[:0]
    places = np.minimum(np.searchsorted(common, keys), len(common) - 1)
    found = common[places] == keys
    return starts[found], places[found]
