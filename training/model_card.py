"""Writes MODEL_CARD.md from measured values.

Owns the card's words and the corpora's sources and licences. Measures nothing itself.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.corpus import DEFAULT_MIX, HELD_OUT_PER_MILLE, Split
from training.evaluate import Loss, Measures, Sample


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a corpus comes from, and under which terms."""

    source: str
    licence: str


@dataclass(frozen=True, slots=True)
class CorpusFile:
    name: str
    file: str
    sha256: str


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What the training run knows of itself; target and draft are their checkpoints."""

    target: Mapping[str, Any]
    draft: Mapping[str, Any]
    splits: tuple[Split, ...]
    files: tuple[CorpusFile, ...]
    hardware: str


ORIGINS = {
    "tinystories": Origin(
        "A subset of TinyStories (Ronen Eldan and Yuanzhi Li, Microsoft Research, "
        "arXiv 2305.07759), 14,259 stories; written by GPT-3.5 and GPT-4, published by the authors",
        "CDLA-Sharing-1.0, whose section 3.5 puts no terms on results such as these weights",
    ),
    "story_chat": Origin(
        "Requests and answers derived from the stories above", "CDLA-Sharing-1.0, as above"
    ),
    "persona_chat": Origin(
        "google-research-datasets/Synthetic-Persona-Chat, validation and test parts, "
        "by Google Research",
        "CC-BY-4.0",
    ),
    "chitchat": Origin(
        "Microsoft's personality chat questions and answers (BotBuilder-PersonalityChat), filtered",
        "MIT",
    ),
    "classics": Origin(
        "34 children's books of 1812 to 1930, by way of mlschmitt/classic-books-markdown",
        "public domain (US)",
    ),
    "fairytales": Origin(
        "The tales of FairytaleQA (uci-soe/FairytaleQAData); from Project Gutenberg",
        "Apache-2.0; the tales are in the public domain",
    ),
    "picture_books": Origin(
        "Picture books of Pratham Books and the African Storybook Initiative and their authors "
        "(global-asp/pb-source, global-asp/asp-source), those marked CC-BY or CC-0",
        "CC-BY-4.0, CC-BY-3.0, CC-0",
    ),
}


def corpus_files(corpora: Path) -> tuple[CorpusFile, ...]:
    files = []
    for source in DEFAULT_MIX:
        digest = hashlib.sha256((corpora / source.file).read_bytes()).hexdigest()
        files.append(CorpusFile(source.name, source.file, digest))
    return tuple(files)


def write_model_card(facts: CardFacts, measures: Measures, path: Path) -> None:
    sections = (
        _introduction(facts),
        _honesty(),
        _training(facts),
        _data(facts),
        _losses(measures),
        _draft(measures),
        _samples(measures),
        _remake(),
    )
    path.write_text("\n\n".join(sections) + "\n", "utf-8")


def _introduction(facts: CardFacts) -> str:
    size = sum(t.numel() for t in facts.target["model"].values())
    draft_size = sum(t.numel() for t in facts.draft["model"].values())
    return (
        "# Soliton's built-in model\n\n"
        f"A Llama-shaped language model of {size / 1e6:.1f} million parameters "
        f"({size * 2 / 1e6:.0f} MB in bfloat16), with a draft model of "
        f"{draft_size / 1e6:.1f} million for speculative decoding. Both were trained from nothing "
        "by the scripts in `training/`. The tokenizer is byte-level BPE with 4,096 tokens.\n\n"
        f"Sizes of the target: {_sizes(facts.target['model_config'])}.\n"
        f"Sizes of the draft: {_sizes(facts.draft['model_config'])}."
    )


def _honesty() -> str:
    return (
        "## What it is for, and what it cannot do\n\n"
        "It exists so that every feature of the server works without a download. It writes short, "
        "simple children's stories in English, continues story openings and makes small talk. It "
        "has no world knowledge; it cannot reason, code, translate or do sums; it invents facts, "
        "often ignores what was asked, forgets what was said a few sentences ago, and its plots "
        "can be odd. English prose is about four bytes a token; code and other languages need far "
        "more tokens. It is not safety-tuned.\n\n"
        "Do not judge the server's quality by its text, and do not use it for anything but "
        "demonstrations and tests; load a real model with `make serve MODEL=path`."
    )


def _training(facts: CardFacts) -> str:
    rows = [
        "| | target | draft |",
        "|---|---|---|",
        *(
            f"| {label} | {mine} | {drafts} |"
            for label, mine, drafts in zip(
                ("tokens", "steps", "time", "tokens per second", "seed"),
                _run_numbers(facts.target),
                _run_numbers(facts.draft),
                strict=True,
            )
        ),
    ]
    return (
        "## Training\n\n" + "\n".join(rows) + "\n\n"
        f"Hardware: {facts.hardware}. "
        "Muon for the hidden matrices and AdamW for the embedding and the norms; constant "
        "learning rate after a short warm-up, linear to zero over the last 40 % of the tokens; "
        "context 256, and 1,024 for the last 15 %; float32 arithmetic on the CPU. The loss counts "
        "plain text and assistant turns fully and what a user or system says at a tenth. In its "
        "last 40 % the draft learns from the target's distribution as well as from the text."
    )


def _run_numbers(state: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{state['tokens'] / 1e6:.2f} million",
        f"{state['step']:,}",
        f"{state['seconds'] / 60:.0f} minutes",
        f"{state['tokens'] / state['seconds']:,.0f}",
        str(state["seed"]),
    )


def _data(facts: CardFacts) -> str:
    digests = {file.name: file for file in facts.files}
    lines = ["| corpus | share | documents | source | licence |", "|---|---|---|---|---|"]
    for split in facts.splits:
        origin = ORIGINS.get(split.name, Origin("own text", "see its owner"))
        lines.append(
            f"| {split.name} | {split.share:.1%} | {len(split.train):,} + {len(split.held_out):,} "
            f"held out | {origin.source} | {origin.licence} |"
        )
    checksums = "\n".join(f"{file.sha256}  {file.file}" for file in digests.values())
    return (
        "## Data\n\n" + "\n".join(lines) + "\n\n"
        f"About {HELD_OUT_PER_MILLE / 10:g} % of the documents are held out by a hash of their "
        "words, before anything else; a dialogue that quotes 16 words in a row from a held-out "
        "story is held out too. The corpora are not part of this repository. SHA256 of the files:"
        f"\n\n```\n{checksums}\n```"
    )


def _losses(measures: Measures) -> str:
    lines = [
        "| held-out corpus | target nats/token | target bits/byte | draft nats/token | tokens |",
        "|---|---|---|---|---|",
    ]
    for name, target in measures.target.items():
        draft: Loss = measures.draft[name]
        lines.append(
            f"| {name} | {target.nats_per_token:.3f} | {target.bits_per_byte:.3f} "
            f"| {draft.nats_per_token:.3f} | {target.n_tokens:,} |"
        )
    return (
        "## Held-out losses\n\nOf the shipped bfloat16 weights, computed in float32 over rows of "
        "256 tokens; only plain text and assistant turns count. Corpora with few tokens are "
        "indications, not measurements; the small talk has some ninety answers, all of which occur "
        "in training, so its loss says little.\n\n" + "\n".join(lines)
    )


def _draft(measures: Measures) -> str:
    if measures.acceptance is None:
        return "## Draft\n\nAcceptance was not measured: the run had no held-out stories."
    return (
        f"## Draft\n\nOn held-out stories the draft's most likely token is the target's most "
        f"likely token at {measures.acceptance:.1%} of the positions. A target this small is "
        "itself so fast that speculation may not pay; the pair is there to exercise the feature."
    )


def _samples(measures: Measures) -> str:
    samples = (*measures.completions, *measures.chats)
    longest = max(sample.overlap_words for sample in samples)
    return (
        "## Samples\n\nUncurated: the first answer for each seed, temperature 0.7, top-p 0.9, "
        "repetition penalty 1.05. The longest run of words that any of them shares with the "
        f"training texts is {longest} words.\n\n### Completions\n\n"
        + "\n\n".join(_show(sample) for sample in measures.completions)
        + "\n\n### Chats\n\n"
        + "\n\n".join(_show(sample) for sample in measures.chats)
    )


def _remake() -> str:
    return (
        "## Remaking it\n\n`python -m training --corpora DIRECTORY` (see `training/README.md`). "
        "The loss was still falling when the decay of the learning rate began: more tokens, or "
        "the whole of TinyStories given as `--text`, are the first things to try."
    )


def _sizes(config: Mapping[str, Any]) -> str:
    return (
        f"dim {config['dim']}, {config['n_layers']} layers, {config['n_heads']} heads "
        f"({config['n_kv_heads']} for keys and values), hidden dim {config['hidden_dim']}, "
        f"vocabulary {config['vocab_size']}, context {config['max_seq_len']}"
    )


def _show(sample: Sample) -> str:
    text = f"**{sample.prompt}**" if "\n" not in sample.prompt else sample.prompt
    body = "\n".join(f"> {line}".rstrip() for line in f"{text}\n\n{sample.completion}".split("\n"))
    return f"Seed {sample.seed}, longest shared run {sample.overlap_words} words:\n\n{body}"
