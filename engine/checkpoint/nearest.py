"""Which family is most like a model that is not supported, and what of that model it does not know.

Owns the choice and its words. Knows no family: names, and what trying one of them shows, come from
its callers.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Sequence

from ..files import shown_name

_MAX_NAME = 100
_MAX_KEYS = 8  # in a message
_CLOSE = 0.6  # names at least this much alike are those of relatives
_KINDS = re.compile("(ForCausalLM|ForConditionalGeneration|LMHeadModel)$")

# The keys of the model that a family does not know, and whether it could read the model otherwise.
Trial = tuple[Sequence[str], bool]


def nearest(name: str, families: Iterable[str], tried: Callable[[str], Trial]) -> str:
    """Of the families with a name like this one, or of all if there is none, the one that leaves
    the fewest keys unknown; the most alike by name if none of them can read the model.
    """
    alike = sorted(families, key=lambda each: -_likeness(name, each))
    close = [each for each in alike if _likeness(name, each) >= _CLOSE]
    trials = {each: tried(each) for each in close or alike}
    found = {each: unknown for each, (unknown, is_read) in trials.items() if is_read}
    best = min(found, key=lambda each: len(found[each]), default=alike[0])
    return _said(best, trials[best][0])


def _likeness(name: str, other: str) -> float:
    one, two = (_KINDS.sub("", each[:_MAX_NAME]).lower() for each in (name, other))
    return difflib.SequenceMatcher(None, one, two).ratio()


def _said(family: str, unknown: Sequence[str]) -> str:
    if not unknown:
        return f"the nearest family is {family}"
    more = f" and {len(unknown) - _MAX_KEYS} more" if len(unknown) > _MAX_KEYS else ""
    named = ", ".join(map(shown_name, unknown[:_MAX_KEYS])) + more
    return f"the nearest family is {family}, which does not know {named}"
