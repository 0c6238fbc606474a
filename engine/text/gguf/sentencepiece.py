"""SentencePiece's BPE: of all pieces that two neighbours can form, the one with the highest score
is formed first, until there is none.

Owns how that becomes an ordered list of merges, which the `tokenizers` library wants. Knows no key
of a file.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import models, normalizers

SPACE = "\u2581"


def sentencepiece_backend(
    ids: Mapping[str, int],
    merges: list[tuple[str, str]],
    *,
    add_prefix: bool,
    trim: bool,
) -> tokenizers.Tokenizer:
    """A tokenizer of pieces and bytes.

    `add_prefix`: a space comes before each text. `trim`: spaces around a text, and all but one of
    several in a row, are dropped.
    """
    backend = tokenizers.Tokenizer(models.BPE(dict(ids), merges, byte_fallback=True))
    steps: list[normalizers.Normalizer] = []
    if trim:
        steps += [
            normalizers.Replace(tokenizers.Regex(r"\A +| +\z"), ""),
            normalizers.Replace(tokenizers.Regex(" {2,}"), " "),
        ]
    if add_prefix:
        steps.append(normalizers.Prepend(SPACE))
    steps.append(normalizers.Replace(" ", SPACE))
    backend.normalizer = normalizers.Sequence(steps)
    return backend


def merges_of(pieces: Sequence[str], scores: npt.NDArray[np.float64]) -> list[tuple[str, str]]:
    """Every way to form a piece of two others, in the order in which they are tried: by score, then
    by place in `pieces`, then with the shorter left part first.
    """
    known = set(pieces)
    merges: list[tuple[str, str]] = []
    for index in np.argsort(-scores, kind="stable").tolist():
        piece = pieces[index]
        for cut in range(1, len(piece)):
            left = piece[:cut]
            if left in known and (right := piece[cut:]) in known:
                merges.append((left, right))
    return merges
