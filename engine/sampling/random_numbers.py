"""The random numbers of sampling: counter-based, so that a text depends only on its seed.

Owns Philox and the meaning of its counter; csrc/philox.cpp computes the same in native code. Knows
no sampler and no state.
"""

import secrets

MAX_SEED = 2**64 - 1

# Purposes of a number; numbers for different purposes are independent.
DRAW = 0
XTC = 1
SEED = 2

_WORD = 0xFFFFFFFF
_SEED_BITS = 53


def random_seed() -> int:
    """A seed for a request without one; small enough for every JSON reader (< 2**53)."""
    return secrets.randbits(_SEED_BITS)


def derived_seed(seed: int, index: int) -> int:
    """The seed of text number `index` when one request wants several; `seed` itself for the first.

    The others are independent of it and of each other, and as small as those of `random_seed`, so
    that each text can be requested alone. Raises ValueError for an index below 0.
    """
    if index < 0:
        raise ValueError(f"index: {index}, allowed: 0 and up")
    return seed if index == 0 else int(uniform(seed, index, purpose=SEED) * 2**_SEED_BITS)


def uniform(seed: int, position: int, *, purpose: int = DRAW, attempt: int = 0) -> float:
    """A uniform number in [0, 1) with 53 random bits, a pure function of its arguments.

    Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). The key
    is `seed`, the counter (position, low word first; attempt; purpose). `attempt` counts the
    rewinds to this position, so that a new attempt gets a new number. The text of a seed depends
    neither on earlier draws nor on how many tokens one step yields.
    """
    key0, key1 = seed & _WORD, (seed >> 32) & _WORD
    c0, c1, c2, c3 = position & _WORD, (position >> 32) & _WORD, attempt & _WORD, purpose & _WORD
    for _ in range(10):
        product0, product1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (
            (product1 >> 32) ^ c1 ^ key0,
            product1 & _WORD,
            (product0 >> 32) ^ c3 ^ key1,
            product0 & _WORD,
        )
        key0, key1 = (key0 + 0x9E3779B9) & _WORD, (key1 + 0xBB67AE85) & _WORD
    return float(((c0 >> 5) << 26) | (c1 >> 6)) / float(1 << 53)
