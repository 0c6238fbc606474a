"""What keys and values of few bits cost a real model, on some of its own kind of text."""

import pytest

from bench.kv_quality import Loss, measure
from engine import DEFAULT_MODEL

STORY = """Once upon a time there was a little girl who lived near a big forest. Every morning she
walked to the river with her dog, and they looked for smooth stones. One day the dog found a small
box under a tree. The girl opened it and saw a silver key. "What does it open?" she asked. The dog
barked and ran to an old house behind the hill. The door was locked, but the key fit. Inside there
was a table with bread, honey and a letter. The letter said: "Thank you for coming. Please eat and
be happy." The girl smiled, shared the bread with her dog, and went home to tell her mother.
"""


@pytest.fixture(scope="module")
def losses() -> dict[str, Loss]:
    formats = ["float32", "bfloat16", "8bit", "k8v4", "4bit"]
    return {loss.format: loss for loss in measure(DEFAULT_MODEL, 2 * STORY, formats, 256)}


@pytest.mark.parametrize(
    ("format_", "share", "nats"),
    [
        ("bfloat16", 0.0005, 1e-5),
        ("8bit", 0.001, 1e-4),
        ("k8v4", 0.005, 6e-3),
        ("4bit", 0.015, 9e-3),
    ],
)
def test_the_perplexity_of_a_story(
    losses: dict[str, Loss], format_: str, share: float, nats: float
) -> None:
    loss, exact = losses[format_], losses["float32"].perplexity
    assert loss.n_tokens > 200
    assert loss.perplexity < (1 + share) * exact
    assert 0 < loss.divergence / loss.n_tokens < nats


def test_fewer_bits_are_fewer_bytes(losses: dict[str, Loss]) -> None:
    n_bytes = [loss.n_bytes for loss in losses.values()]
    assert n_bytes == sorted(n_bytes, reverse=True)
    assert len(set(n_bytes)) == len(n_bytes)
