"""What passes of several rows cost in a model, and which drafts that pays for.

    python -m bench.row_costs MODEL [--speculate mtp] [--rounds 12] [--threads 1]

Rows of one and the same token choose the same experts; those that the engine times when it loads a
model are spread over the vocabulary; those of a text follow a prompt. Costs are in passes of one
row. The second table says how long a draft would be at a share of right tokens, and what it gains,
by the costs that the engine measured.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from engine import Engine
from engine.cache.kv import KVCache
from engine.draft.length import Acceptance, DraftLength
from engine.draft.mtp import BlockDrafter
from engine.draft.opening import MOST_PREDICTED
from engine.draft.row_costs import GRID, RowCosts, measure_row_costs
from engine.model.model import MAX_DECODE_ROWS, Model

_N_PROMPT = 256
_BUDGET = 10.0  # seconds for the measurement that loading gives less
_RATES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


Clock = Callable[[], float]


def seconds_of(
    model: Model,
    cache: KVCache,
    prompt: Sequence[int],
    rows: Sequence[int],
    *,
    rounds: int,
    clock: Clock,
) -> float:
    """The fastest pass over `rows` after `prompt`, as a busy machine slows some of them."""
    cache.clear()
    model.prefill(prompt, cache)
    found = []
    for _ in range(rounds):
        start = clock()
        model.decode(rows, cache)
        model.ops.wait()
        found.append(clock() - start)
        cache.forget_from(len(prompt))
    return min(found)


def measured(model: Model, cache: KVCache, *, rounds: int, clock: Clock) -> dict[str, list[float]]:
    """Seconds per row count of GRID, by the kind of rows."""
    vocab_size = model.config.vocab_size
    text = np.random.default_rng(0).integers(0, vocab_size, _N_PROMPT + MAX_DECODE_ROWS).tolist()
    spread = [row * vocab_size // MAX_DECODE_ROWS for row in range(MAX_DECODE_ROWS)]
    kinds = {
        "one token": ([], [7] * MAX_DECODE_ROWS),
        "spread": ([], spread),
        "random text": (text[:_N_PROMPT], text[_N_PROMPT:]),
    }
    return {
        name: [seconds_of(model, cache, prompt, rows[:n], rounds=rounds, clock=clock) for n in GRID]
        for name, (prompt, rows) in kinds.items()
    }


def gains(costs: RowCosts, *, n_max: int, first: float = 0.0, each: float = 0.0) -> list[str]:
    """Of each rate: how many tokens are drafted, and how much faster that is."""
    found = []
    plain = costs.table[1]
    for rate in _RATES:
        acceptance, length = Acceptance(rate), DraftLength(costs)
        acceptance.is_probed()  # what follows is no probe
        length.balance = float("inf")
        n = length.choose(acceptance, n_max, first=first, each=each)
        expected = sum(rate**i for i in range(n + 1))
        cost = (costs.table[n + 1] + (first + n * each if n else 0.0)) / plain
        found.append(f"{n}, {expected / cost:.2f}" if n else "none")
    return found


def main(print_line: Callable[[str], None] = print) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--speculate", default="ngram")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--threads", type=int, default=None)
    args = parser.parse_args()
    engine = Engine.load(args.model, speculate=args.speculate, n_threads=args.threads)
    # With one thread the time of the processor, which others on the machine change less.
    clock = time.process_time if args.threads == 1 else time.perf_counter
    cache = KVCache(engine.config, engine.model.ops, max_seq_len=engine.max_seq_len)
    print_line(f"| rows | {' | '.join(map(str, GRID))} |")
    print_line("|---" * (len(GRID) + 1) + "|")
    for name, seconds in measured(engine.model, cache, rounds=args.rounds, clock=clock).items():
        costs = " | ".join(f"{each / seconds[0]:.2f}" for each in seconds[1:])
        print_line(f"| {name} | {1e3 * seconds[0]:.2f} ms | {costs} |")
    found = measure_row_costs(engine.model, cache, clock, budget=_BUDGET)
    costs = " | ".join(f"{found.table[n] / found.table[1]:.2f}" for n in GRID[1:])
    print_line(f"| as measured when loaded | {1e3 * found.table[1]:.2f} ms | {costs} |")
    print_line("")
    print_line(f"| right tokens | {' | '.join(f'{rate:.0%}' for rate in _RATES)} |")
    print_line("|---" * (len(_RATES) + 1) + "|")
    print_line(f"| free drafts, times plain | {' | '.join(gains(found, n_max=15))} |")
    drafters = engine.speculator.drafters if engine.speculator is not None else ()
    for drafter in drafters:
        if isinstance(drafter, BlockDrafter):
            block = drafter.block.model
            own = measure_row_costs(
                block,
                KVCache(block.config, block.ops, max_seq_len=256),
                clock,
                budget=_BUDGET,
            ).table
            print_line(
                f"| block of {1e3 * own[1]:.2f} ms | "
                f"{' | '.join(gains(found, n_max=MOST_PREDICTED, each=own[1]))} |"
            )


if __name__ == "__main__":
    main()
