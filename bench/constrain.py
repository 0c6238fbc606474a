"""The cost of constraints: building the vocabulary, compiling, and each token's mask and accept.

    python -m bench.constrain

Encodes one JSON text with the bundled vocabulary and with a made-up one of 32768 tokens, and walks
through it. Prints medians over all steps of all rounds, in microseconds.
"""

import json
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from engine import DEFAULT_MODEL, Tokenizer
from engine.grammar.compiler import ConstraintCompiler
from engine.grammar.spec import ConstraintSpec
from engine.grammar.vocabulary import ConstrainableTokenizer
from engine.text.prefix_index import PrefixIndex

N_ROUNDS = 20
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "story": {"type": "string", "maxLength": 400},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "age", "story", "tags"],
    "additionalProperties": False,
}
TEXT = json.dumps(
    {
        "name": "the otter",
        "age": 7,
        "story": "once upon a time there was a little otter who loved the cold river. " * 4,
        "tags": ["river", "otter", "warm and cold"],
    }
)
SPECS = {
    "json_object": ConstraintSpec("json_object"),
    "json_schema": ConstraintSpec("json_schema", SCHEMA),
    "regex": ConstraintSpec("regex", "(?s:.)*"),
}
_T = TypeVar("_T")


class MadeUp:
    """Bytes, then words of random letters with and without a space before them."""

    def __init__(self, size: int) -> None:
        rng = random.Random(0)
        words = {" the", "the", "otter", " otter", " river", ' "', '",', '":', '": "', '", "'}
        while len(words) < size - 256:
            word = "".join(rng.choices("etaoinshrdlucmfw", k=rng.randint(2, 9)))
            words.add(rng.choice(("", " ", " ")) + rng.choice((word, word, word.capitalize())))
        self._tokens = [bytes([byte]) for byte in range(256)] + [w.encode() for w in sorted(words)]
        self._ids = {token: token_id for token_id, token in enumerate(self._tokens)}

    def token_bytes(self, token_id: int) -> bytes:
        return self._tokens[token_id]

    def is_special(self, token_id: int) -> bool:
        return token_id == 0

    def is_control(self, token_id: int) -> bool:
        return self.is_special(token_id)

    def encode_continuation(self, text: str) -> list[int]:
        """Takes the longest token at each position."""
        data = text.encode()
        token_ids: list[int] = []
        while data:
            n = next(n for n in range(min(12, len(data)), 0, -1) if data[:n] in self._ids)
            token_ids.append(self._ids[data[:n]])
            data = data[n:]
        return token_ids


def timed(function: Callable[[], _T]) -> tuple[_T, float]:
    """The result of `function`, and its time in microseconds."""
    start = time.perf_counter()
    result = function()
    return result, (time.perf_counter() - start) * 1e6


def measure(
    name: str, tokenizer: ConstrainableTokenizer, vocab_size: int, eos: tuple[int, ...]
) -> None:
    for token_id in range(vocab_size):
        tokenizer.token_bytes(token_id)  # the tokenizer keeps them
    compiler = ConstraintCompiler(tokenizer, vocab_size, eos)
    _, cost = timed(lambda: compiler.compile(SPECS["json_object"]))
    print(f"{name} tokens: vocabulary {cost / 1e3:.0f} ms")
    for kind, spec in SPECS.items():
        measure_steps(kind, compiler, spec, tokenizer.encode_continuation(TEXT))
    index = PrefixIndex(tokenizer, vocab_size)
    ids, cost = timed(lambda: index.ids_starting_with(b" "))
    print(f"  healing: index {cost / 1e3:.0f} ms")
    for kind, spec in SPECS.items():
        constraint = compiler.compile(spec)
        heal = partial(constraint.mask_after, index, b" ")
        middle = statistics.median(timed(heal)[1] for _ in range(5)) / 1e3
        print(f"  {kind:12} mask of {len(ids)} healed candidates {middle:.1f} ms")


def measure_steps(
    kind: str, compiler: ConstraintCompiler, spec: ConstraintSpec, token_ids: list[int]
) -> None:
    _, first = timed(lambda: compiler.compile(spec))
    compiles, masks, accepts, rollbacks = [], [], [], []
    for _ in range(N_ROUNDS):
        constraint, cost = timed(lambda: compiler.compile(spec))
        compiles.append(cost)
        for token_id in token_ids:
            masks.append(timed(constraint.mask)[1])
            accepts.append(timed(partial(constraint.accept, token_id))[1])
        rollbacks.append(timed(partial(constraint.rollback, len(token_ids) - 8))[1])
    print(
        f"  {kind:12} compile {first / 1e3:.1f} ms, again {statistics.median(compiles) / 1e3:.1f};"
        f" {len(token_ids)} tokens: mask {statistics.median(masks):.1f} us"
        f" (mean {statistics.mean(masks):.1f}, 99 % {statistics.quantiles(masks, n=100)[98]:.0f}),"
        f" accept {statistics.median(accepts):.1f},"
        f" rollback of 8 {statistics.median(rollbacks):.1f}"
    )


if __name__ == "__main__":
    bundled = Tokenizer.load(DEFAULT_MODEL, 4096)
    measure("bundled, 4096", bundled, 4096, bundled.eos_token_ids)
    measure("made up, 32768", MadeUp(32768), 32768, (0,))
