"""Makes questions look as people type them.

Owns marks, capitals and the rare typing mistake. Knows nothing of what is asked.
"""

from random import Random

from .word_list import spaced

_QUESTION_WORDS = frozenset(
    spaced(
        "can could will would do have how what who whose where when why which are is does did "
        "may am what's who's where's how's should shall"
    )
)


def typed(rng: Random, text: str) -> str:
    """Mostly with capitals and a mark at the end, often with neither."""
    if text.split()[0].lower() in _QUESTION_WORDS and text[-1] not in ".!?":
        text += rng.choice(("?", "?", "?", ""))
    elif text[-1].isalnum():
        text += rng.choice((".", ".", "!", "", ""))
    if rng.random() < 0.18:
        text = text.lower().rstrip(".!?")
    if rng.random() < 0.02:
        text = _mistyped(rng, text)
    return text


def _mistyped(rng: Random, text: str) -> str:
    """Two letters inside a longer word change places."""
    words = text.split(" ")
    long = [i for i, word in enumerate(words) if len(word) > 4 and word.isalpha()]
    if long:
        index = rng.choice(long)
        word = words[index]
        at = rng.randrange(1, len(word) - 2)
        words[index] = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return " ".join(words)
