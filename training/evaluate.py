"""Measures an exported model: losses, answers, speculation, verbatim overlap.

Owns what is measured and on which texts. Knows nothing of how the findings are presented or how
the model was trained.
"""

import hashlib
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from tokenizers import Tokenizer
from tqdm import tqdm

from training.corpus import DEFAULT_MIX, END_OF_TEXT, Split
from training.export import load_exported
from training.goals import STORIES, names
from training.losses import agreement, held_out_rows, loss
from training.measures import (
    Completion,
    Conversation,
    FormatLosses,
    Loss,
    Measures,
    Overlap,
    Speculation,
    StoryAnswer,
)
from training.model import Llama
from training.overlap import longest_runs
from training.prompts import (
    CHAT_PROMPTS,
    CHATS,
    COMPLETION_PROMPTS,
    STORY_REQUESTS,
    StoryRequest,
)
from training.quantise import BITS, n_bytes, quantised
from training.speculation import DRAFT_LENGTHS, draft_speculation, ngram_speculation
from training.tokenizer import load_tokenizer
from training.writer import GREEDY, Writer, Written

Item = TypeVar("Item")

OPENING_WORDS = 12
# Other seeds than those of the answers shown in the card and in ANSWERS.md.
COMPLETION_SEEDS = 1_000
STORY_SEEDS = (2_000, 3_000)


@dataclass(frozen=True, slots=True)
class Extent:
    """How much to measure; the defaults are those of the default model's card."""

    max_rows: int = 96
    """Rows of each corpus's held-out text."""
    n_prompts: int = 50
    """Most prompts of each fixed list."""
    n_openings: int = 100
    """Held-out stories whose opening is continued to look for overlap."""
    n_greedy: int = 50
    """Held-out stories whose opening is continued greedily, for speculation."""
    answer_tokens: int = 256
    chat_tokens: int = 200
    greedy_tokens: int = 128


def evaluate(directory: Path, splits: Sequence[Split], extent: Extent | None = None) -> Measures:
    """Measures the target in `directory` and the draft in `directory / "draft"`."""
    extent = extent or Extent()
    tokenizer = load_tokenizer(directory)
    target = load_exported(directory)
    draft = load_exported(directory / "draft")
    writer = Writer(directory)
    stories = next((split for split in splits if split.name == STORIES and split.held_out), None)
    agreed = None
    if stories is not None:
        agreed = agreement(target, draft, held_out_rows(stories, tokenizer, extent.max_rows))
    return Measures(
        weights_sha256=weights_sha256(directory),
        formats=measure_formats(target, splits, tokenizer, extent.max_rows),
        draft=measure_losses(draft, splits, tokenizer, extent.max_rows),
        agreement=agreed,
        speculation=measure_speculation(writer, draft, stories, extent),
        overlap=measure_overlap(writer, splits, stories, extent),
        completions=tuple(complete_all(writer, COMPLETION_PROMPTS, extent)),
        chats=tuple(chat_all(writer, CHATS, extent.n_prompts, extent.answer_tokens)),
        stories=tuple(
            tell(writer, request, seed, extent.answer_tokens)
            for seed, request in _numbered(STORY_REQUESTS[: extent.n_prompts], "stories")
        ),
        chat_prompts=tuple(chat_all(writer, CHAT_PROMPTS, extent.n_prompts, extent.chat_tokens)),
        chat_limit=extent.chat_tokens,
    )


def weights_sha256(directory: Path) -> dict[str, str]:
    """The checksums that tie measures to the weights they were taken from."""
    files = ("model.safetensors", "draft/model.safetensors")
    return {file: hashlib.sha256((directory / file).read_bytes()).hexdigest() for file in files}


def measure_losses(
    model: Llama, splits: Sequence[Split], tokenizer: Tokenizer, max_rows: int
) -> dict[str, Loss]:
    return {
        split.name: loss(model, held_out_rows(split, tokenizer, max_rows), tokenizer)
        for split in splits
        if split.held_out
    }


def measure_formats(
    target: Llama, splits: Sequence[Split], tokenizer: Tokenizer, max_rows: int
) -> tuple[FormatLosses, ...]:
    """The weights as they ship, then rounded to fewer bits."""
    whole = measure_losses(target, splits, tokenizer, max_rows)
    formats = [FormatLosses("bfloat16", n_bytes(target), whole)]
    for bits in BITS:
        losses = measure_losses(quantised(target, bits), splits, tokenizer, max_rows)
        formats.append(FormatLosses(f"{bits}-bit", n_bytes(target, bits), losses))
    return tuple(formats)


def measure_speculation(
    writer: Writer, draft: Llama, stories: Split | None, extent: Extent
) -> tuple[Speculation, ...]:
    """Measures greedy continuations of held-out stories, and greedy answers to the chat prompts."""
    texts: dict[str, tuple[list[Written], int]] = {}
    if stories is not None:
        continued = [
            writer.continue_text(opening, GREEDY, extent.greedy_tokens)
            for _, opening in _numbered(openings(stories, extent.n_greedy), "greedy stories")
        ]
        texts["stories"] = (continued, extent.greedy_tokens)
    answers = [
        written
        for _, turns in _numbered(CHAT_PROMPTS[: extent.n_prompts], "greedy chat")
        for written in writer.converse(turns, GREEDY, extent.chat_tokens)
    ]
    texts["chat"] = (answers, extent.chat_tokens)
    return tuple(
        speculation(written, name=name, draft_length=length, budget=budget)
        for name, (written, budget) in texts.items()
        for speculation in (partial(draft_speculation, draft), ngram_speculation)
        for length in DRAFT_LENGTHS
    )


def measure_overlap(
    writer: Writer, splits: Sequence[Split], stories: Split | None, extent: Extent
) -> Overlap:
    """Continues held-out openings and answers every story request twice; prompts do not count."""
    samples: list[str] = []
    if stories is not None:
        opened = _numbered(openings(stories, extent.n_openings), "continuations")
        samples += (
            writer.complete(opening, COMPLETION_SEEDS + number, extent.chat_tokens).answer.text
            for number, opening in opened
        )
    wishes = STORY_REQUESTS[: extent.n_prompts]
    samples += (
        tell(writer, wish, seeds + number, extent.chat_tokens).answer.text
        for seeds in STORY_SEEDS
        for number, wish in _numbered(wishes, "more stories")
    )
    texts = (document.text for split in others(splits) for document in split.train)
    runs = longest_runs(samples, texts)
    longest = max(runs, key=lambda run: run.n_words)
    median = statistics.median(run.n_words for run in runs)
    return Overlap(len(runs), median, longest.n_words, longest.words)


def others(splits: Sequence[Split]) -> list[Split]:
    """The corpora that others wrote: repeating our own generator's lines is harmless."""
    generated = {source.name for source in DEFAULT_MIX if source.file is None}
    return [split for split in splits if split.name not in generated]


def openings(split: Split, n: int) -> list[str]:
    """The first words of the first `n` held-out documents that are longer than that."""
    pattern = re.compile(rf"(?:\S+\s+){{{OPENING_WORDS - 1}}}\S+(?=\s)")
    texts = (document.text.removesuffix(END_OF_TEXT) for document in split.held_out)
    found = (pattern.match(text) for text in texts)
    return [match[0] for match in found if match is not None][:n]


def tell(writer: Writer, request: StoryRequest, seed: int, max_tokens: int) -> StoryAnswer:
    answer = writer.chat((request.words,), seed, max_tokens).turns[0].answer
    named = names(answer.text, request.subject)
    return StoryAnswer(request.words, request.subject, named, seed, answer)


def complete_all(writer: Writer, prompts: Sequence[str], extent: Extent) -> list[Completion]:
    return [
        writer.complete(prompt, seed, extent.answer_tokens)
        for seed, prompt in _numbered(prompts[: extent.n_prompts], "completions")
    ]


def chat_all(
    writer: Writer, prompts: Sequence[Sequence[str]], n_prompts: int, max_tokens: int
) -> list[Conversation]:
    return [
        writer.chat(turns, seed, max_tokens)
        for seed, turns in _numbered(prompts[:n_prompts], "chats")
    ]


def _numbered(items: Sequence[Item], words: str) -> Iterator[tuple[int, Item]]:
    """(1, first), (2, second), ... with a progress bar."""
    return iter(tqdm(list(enumerate(items, start=1)), desc=words, leave=False))
