"""What each drafter gains on texts that copy, on prose, on code, on noise and on the model's own.

    python -m bench.drafters MODEL [--quantize 8bit] [--speculate eagle --draft-model HEAD]

Owns the texts. They are fixed, the last one as the model once wrote it: a hook replaces each drawn
token, so that passes, sampler and drafts have their real costs, whatever the model has learnt.
Streams without and with drafts take turns.
`ngram` has the original in its prompt, `pool` has it as an earlier answer.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from engine import Engine, SamplingSettings

ROOT = Path(__file__).parent.parent
CODE = ROOT / "engine" / "stream" / "generator.py"
OTHER_CODE = ROOT / "engine" / "gguf" / "header.py"
PROSE = ROOT / "docs" / "streams.md"
N_LINES = 400
RENAMED = (("speculator", "drafts"), ("snapshot", "picture"), ("options", "wishes"))
OWN_OPENING = "Once upon a time there was a little"
GREEDY = SamplingSettings(temperature=0.0)
SAMPLED = SamplingSettings(temperature=0.8, seed=1)


class Text(NamedTuple):
    """What is generated, after what, and what was answered before."""

    name: str
    prompt: Sequence[int]
    output: Sequence[int]
    earlier: Sequence[int] = ()


class Figures(NamedTuple):
    """Medians of pairs."""

    plain_tps: float
    speedup: float
    tokens_per_pass: float
    accepted: str


def texts_of(engine: Engine, n_tokens: int) -> list[Text]:
    encode = engine.tokenizer.encode
    code = "\n".join(CODE.read_text("utf-8").splitlines()[:N_LINES])
    rewritten = code
    for old, new in RENAMED:
        rewritten = rewritten.replace(old, new)
    room = engine.max_seq_len - n_tokens - 8
    original = encode(code)[:room]
    rewrite = encode(rewritten)[:n_tokens]
    opening = encode("Rewrite this file:\n")
    noise = np.random.default_rng(0).integers(0, engine.config.vocab_size, 2 * n_tokens).tolist()
    return [
        Text("rewrite, original in the prompt (ngram)", original, rewrite),
        Text(
            "rewrite, original answered before (pool)", opening, rewrite, original[: 2 * n_tokens]
        ),
        Text("copy, word for word (pool)", opening, original[:n_tokens], original[: 2 * n_tokens]),
        Text("prose", opening, encode(PROSE.read_text("utf-8"))[:n_tokens]),
        Text("code", opening, encode(OTHER_CODE.read_text("utf-8"))[:n_tokens]),
        Text("random tokens", noise[n_tokens:], noise[:n_tokens]),
        Text("its own text", encode(OWN_OPENING), own_text(engine, encode(OWN_OPENING), n_tokens)),
    ]


def own_text(engine: Engine, prompt: Sequence[int], n_tokens: int) -> list[int]:
    generator = engine.generator
    generator.begin_stream_ex(
        prompt, SAMPLED, max_new_tokens=n_tokens, ignore_eos=True, speculate=False
    )
    written: list[int] = []
    is_done = False
    while not is_done:
        result = generator.stream_ex()
        written += result.chunk_token_ids
        is_done = result.eos
    return written


def measure(engine: Engine, text: Text, *, rounds: int) -> Figures:
    pairs, per_pass, accepted = [], [], ""
    for number in range(rounds):
        key = f"{text.name} {number}"  # so that no round drafts from another one
        if text.earlier:
            answer(engine, text.prompt[:1], text.earlier, key=key, speculate=True)
        runs = {}
        for speculate in (False, True) if number % 2 else (True, False):
            runs[speculate] = answer(engine, text.prompt, text.output, key=key, speculate=speculate)
        pairs.append((runs[False][0], runs[True][0]))
        per_pass.append(runs[True][1])
        accepted = runs[True][2]
    return Figures(
        median(plain for plain, _ in pairs),
        median(drafted / plain for plain, drafted in pairs),
        median(per_pass),
        accepted,
    )


def answer(
    engine: Engine, prompt: Sequence[int], output: Sequence[int], *, key: str, speculate: bool
) -> tuple[float, float, str]:
    """Tokens per second without the first, tokens per pass, and accepted of drafted tokens."""
    generator, rest = engine.generator, iter(output)
    generator.begin_stream_ex(
        prompt,
        GREEDY,
        max_new_tokens=len(output),
        ignore_eos=True,
        speculate=speculate,
        on_token=lambda drawn: next(rest),
        isolation_key=key,
    )
    generator.stream_ex()
    n_first, n_passes = generator.n_completion_tokens, 1
    start = time.perf_counter()
    while not generator.stream_ex().eos:
        n_passes += 1
    seconds = time.perf_counter() - start
    n_tokens = generator.n_completion_tokens - n_first
    counts = generator.draft_counts
    told = ", ".join(f"{name} {each.accepted}/{each.drafted}" for name, each in counts.items())
    return n_tokens / seconds, n_tokens / n_passes, told if speculate else ""


def main(print_line: Callable[[str], None] = print) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--quantize", default=None)
    parser.add_argument("--speculate", default="ngram")
    parser.add_argument("--draft-model", type=Path, default=None)
    parser.add_argument("--tokens", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    chosen = {} if args.quantize is None else {"quantize": args.quantize}
    engine = Engine.load(
        args.model, speculate=args.speculate, draft_model=args.draft_model, **chosen
    )
    print_line("| text | plain tok/s | times plain | tokens per pass | accepted of drafted |")
    print_line("|---|---|---|---|---|")
    for text in texts_of(engine, args.tokens):
        found = measure(engine, text, rounds=args.rounds)
        print_line(
            f"| {text.name} | {found.plain_tps:.1f} | {found.speedup:.2f} | "
            f"{found.tokens_per_pass:.2f} | {found.accepted or 'none drafted'} |"
        )


if __name__ == "__main__":
    main()
