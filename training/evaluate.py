"""Measures an exported model: held-out losses, samples, draft acceptance, verbatim overlap.

Owns the measurements. Knows nothing of how they are presented or how the model was trained.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jinja2 import Template
from tokenizers import Tokenizer
from torch.nn import functional as F

from training.corpus import END, END_OF_TEXT, Split
from training.data import Batch, encode_documents, held_out_batch
from training.export import load_exported
from training.generate import Sampling, generate
from training.model import Llama
from training.tokenizer import CHAT_TEMPLATE, load_tokenizer, special_token_id

CONTEXT = 256
MAX_ROWS = 96
ROWS_AT_ONCE = 16
STORIES = "tinystories"

COMPLETION_PROMPTS = (
    "Once upon a time, there was a little girl named Mia. She had a red kite.",
    "One day, a small frog sat by the pond.",
    "Tom and his sister Anna went to the park.",
    "The old king had a secret.",
    "It was raining, and the dog did not want to go out.",
)
CHATS: tuple[tuple[str, ...], ...] = (
    ("Hello! How are you?",),
    ("Tell me a story about a brave cat.",),
    ("Tell me a story about a boy who finds a key.", "Thank you! Tell me another one."),
    ("What is your favorite food?",),
    ("What is the capital of France?",),
)


@dataclass(frozen=True, slots=True)
class Loss:
    """A corpus's held-out loss and how much text it was measured on."""

    nats_per_token: float
    bits_per_byte: float
    n_tokens: int


@dataclass(frozen=True, slots=True)
class Sample:
    """An uncurated sample and the longest run of its words found in the training texts."""

    prompt: str
    completion: str
    seed: int
    overlap_words: int


@dataclass(frozen=True, slots=True)
class Measures:
    target: dict[str, Loss]
    draft: dict[str, Loss]
    acceptance: float | None
    completions: tuple[Sample, ...]
    chats: tuple[Sample, ...]


def evaluate(
    directory: Path, splits: Sequence[Split], *, sampling: Sampling | None = None
) -> Measures:
    """Measures the target in `directory` and the draft in `directory / "draft"`."""
    tokenizer = load_tokenizer(directory)
    target = load_exported(directory)
    draft = load_exported(directory / "draft")
    batches = {split.name: held_out_rows(split, tokenizer) for split in splits if split.held_out}
    sampler = Sampler(target, tokenizer, searchable(splits), sampling or Sampling())
    stories = batches.get(STORIES)
    return Measures(
        target={name: loss(target, batch, tokenizer) for name, batch in batches.items()},
        draft={name: loss(draft, batch, tokenizer) for name, batch in batches.items()},
        acceptance=None if stories is None else acceptance(target, draft, stories),
        completions=tuple(
            sampler.completion(prompt, seed)
            for seed, prompt in enumerate(COMPLETION_PROMPTS, start=1)
        ),
        chats=tuple(sampler.chat(turns, seed) for seed, turns in enumerate(CHATS, start=1)),
    )


def held_out_rows(split: Split, tokenizer: Tokenizer) -> Batch:
    """About one pass over the held-out documents, at most MAX_ROWS rows."""
    corpus = encode_documents(split.held_out, tokenizer)
    n_rows = max(1, min(MAX_ROWS, len(corpus.token_ids) // CONTEXT))
    return held_out_batch(corpus, tokenizer, n_rows=n_rows, context=CONTEXT)


@torch.no_grad()
def loss(model: Llama, batch: Batch, tokenizer: Tokenizer) -> Loss:
    """Mean loss over what the model is meant to write; bytes are those of the same tokens."""
    nats = 0.0
    for begin in range(0, len(batch.token_ids), ROWS_AT_ONCE):
        rows = torch.from_numpy(batch.token_ids[begin : begin + ROWS_AT_ONCE])
        weights = torch.from_numpy(batch.weights[begin : begin + ROWS_AT_ONCE])
        logits = model(rows[:, :-1])  # (B, T, V)
        losses = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten(), reduction="none")
        nats += float((losses * weights.flatten()).sum())
    counted = batch.token_ids[:, 1:][batch.weights > 0]
    n_bytes = int(token_lengths(tokenizer)[torch.from_numpy(counted)].sum())
    return Loss(nats / len(counted), nats / math.log(2) / n_bytes, len(counted))


@torch.no_grad()
def acceptance(target: Llama, draft: Llama, batch: Batch) -> float:
    """The share of positions where the draft's most likely token is the target's too."""
    agreed = total = 0
    for begin in range(0, len(batch.token_ids), ROWS_AT_ONCE):
        rows = torch.from_numpy(batch.token_ids[begin : begin + ROWS_AT_ONCE, :-1])
        same = target(rows).argmax(-1) == draft(rows).argmax(-1)
        agreed += int(same.sum())
        total += same.numel()
    return agreed / total


def token_lengths(tokenizer: Tokenizer) -> torch.Tensor:
    """Bytes of text of every token; special tokens have none."""
    lengths = torch.zeros(tokenizer.get_vocab_size(), dtype=torch.long)
    special = set(tokenizer.get_added_tokens_decoder())
    for token, token_id in tokenizer.get_vocab().items():
        # A byte-level token is spelled with one character for each of its bytes.
        lengths[token_id] = 0 if token_id in special else len(token)
    return lengths


class Sampler:
    """Draws samples from one model and looks their words up in the training texts."""

    def __init__(self, model: Llama, tokenizer: Tokenizer, corpus: str, sampling: Sampling) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._corpus = corpus
        self._sampling = sampling
        self._stop = frozenset(special_token_id(tokenizer, token) for token in (END_OF_TEXT, END))

    def completion(self, prompt: str, seed: int) -> Sample:
        text = self._answer(prompt, seed)
        return Sample(prompt, text, seed, longest_overlap(text, self._corpus))

    def chat(self, turns: Sequence[str], seed: int) -> Sample:
        """Plays the user's turns one after the other; the sample is the last answer."""
        template = Template(CHAT_TEMPLATE)
        messages: list[dict[str, str]] = []
        shown = []
        answer = ""
        for turn in turns:
            messages.append({"role": "user", "content": turn})
            answer = self._answer(template.render(messages=messages), seed)
            messages.append({"role": "assistant", "content": answer})
            shown += [f"User: {turn}", f"Assistant: {answer}"]
        prompt = "\n\n".join(shown[:-1])
        return Sample(prompt, answer, seed, longest_overlap(answer, self._corpus))

    def _answer(self, prompt: str, seed: int) -> str:
        token_ids = self._tokenizer.encode(prompt).ids
        completion = generate(
            self._model, token_ids, self._stop, seed=seed, sampling=self._sampling
        )
        return str(self._tokenizer.decode(completion))


def searchable(splits: Sequence[Split]) -> str:
    """All training texts as one string of lower-case words, document by document."""
    documents = (document for split in splits for document in split.train)
    return "\n".join(" ".join(["", *_words(document.text), ""]) for document in documents)


def longest_overlap(text: str, corpus: str) -> int:
    """The longest run of words of `text` that the corpus has word for word."""
    words = _words(text)
    longest = 0
    for start in range(len(words)):
        while start + longest < len(words):
            run = " ".join(words[start : start + longest + 1])
            if f" {run} " not in corpus:
                break
            longest += 1
    return longest


def _words(text: str) -> list[str]:
    return re.findall(r"[\w']+", re.sub(r"<\|\w+\|>", " ", text.lower()))
