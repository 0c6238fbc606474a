"""One question and its answer, drawn from a table of wordings.

Owns the drawing alone.
"""

from collections.abc import Sequence
from random import Random

from .grammar import fill
from .typed import typed

Topic = tuple[tuple[str, ...], tuple[str, ...]]
"""The wordings of a question, and the wordings of its answer."""


def draw(rng: Random, topics: Sequence[Topic]) -> tuple[str, str]:
    questions, answers = rng.choice(topics)
    return typed(rng, fill(rng, rng.choice(questions), {})), fill(rng, rng.choice(answers), {})
