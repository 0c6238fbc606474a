"""Did you mean …: the known name nearest to a misspelt one. Knows no kind of name."""

from collections.abc import Iterable
from difflib import get_close_matches

# Nobody misspells more than this, and the comparison takes the square of it.
_LONGEST = 64


def did_you_mean(word: str, known: Iterable[str], *, prefix: str = "", cutoff: float = 0.6) -> str:
    """The end of an error message: "; did you mean --port?", or "" if no name is near.

    `prefix` begins all names, so it does not count. `cutoff`: how near the name must be, up to 1.
    """
    near = get_close_matches(word[:_LONGEST], list(known), n=1, cutoff=cutoff)
    return f"; did you mean {prefix}{near[0]}?" if near else ""
