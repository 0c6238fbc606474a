"""Writes MODEL_CARD.md from measured values.

Owns the card's words. Measures nothing itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.answers import how_it_ended, quoted
from training.corpus import ECHO, GLIMPSE, HELD_OUT_PER_MILLE, Split
from training.goals import goals
from training.measures import Completion, Conversation, Measures
from training.origins import ORIGINS, UNKNOWN, CorpusFile
from training.schedule import DECAY_SHARE, LATE_MIX_SHARE, LONG_SHARE

CAVEATS = {
    "chitchat": "The small talk of `chitchat` has some ninety answers, all of which occur in "
    "training, so its loss says little.",
    "own_chat": "What `own_chat` holds out comes from the same templates as what was trained on, "
    "so its loss is low.",
}


@dataclass(frozen=True, slots=True)
class CardFacts:
    """Facts about the training run; `target` and `draft` are the checkpoints."""

    target: Mapping[str, Any]
    draft: Mapping[str, Any]
    splits: tuple[Split, ...]
    files: tuple[CorpusFile, ...]
    hardware: str
    note: str = ""
    """What else a reader should know about the training."""


def write_model_card(facts: CardFacts, measures: Measures, path: Path) -> None:
    sections = (
        _introduction(facts),
        _honesty(measures),
        _goals(measures),
        _training(facts),
        _data(facts),
        _losses(measures),
        _speculation(measures),
        _overlap(measures),
        _samples(measures),
        _remake(measures),
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
        "by the scripts in `training/`. The tokenizer is byte-level BPE with "
        f"{facts.target['model_config']['vocab_size']:,} tokens.\n\n"
        f"Sizes of the target: {_sizes(facts.target['model_config'])}.\n"
        f"Sizes of the draft: {_sizes(facts.draft['model_config'])}."
    )


def _honesty(measures: Measures) -> str:
    n_stories = len(measures.stories)
    n_silent = n_stories - sum(story.named for story in measures.stories)
    return (
        "## What it is for, and what it cannot do\n\n"
        "It exists so that every feature of the server works without a download. It writes short, "
        "simple children's stories in English, continues story openings and makes small talk. It "
        "has no world knowledge; it cannot reason, code, translate or do sums; it invents facts, "
        "forgets what was said a few sentences ago, and its plots can be odd. It may tell another "
        f"story than the one asked for: {n_silent} of {n_stories} requested stories do not even "
        "name their subject. English prose is about four bytes a token; code and other languages "
        "need far more tokens. It is not safety-tuned.\n\n"
        "Do not judge the server's quality by its text, and do not use it for anything but "
        "demonstrations and tests; load a real model with `make serve MODEL=path`."
    )


def _goals(measures: Measures) -> str:
    lines = ["| goal | measured | reached |", "|---|---|---|"]
    for goal in goals(measures):
        lines.append(f"| {goal.words} | {goal.measured} | {'yes' if goal.reached else 'no'} |")
    return (
        "## Goals\n\nSet before the training; the prompts are fixed, in `training/prompts.py`, and "
        "every answer is in [ANSWERS.md](ANSWERS.md).\n\n" + "\n".join(lines)
    )


def _training(facts: CardFacts) -> str:
    rows = [
        "| | target | draft |",
        "|---|---|---|",
        *(
            f"| {label} | {mine} | {drafts} |"
            for label, mine, drafts in zip(
                ("tokens", "steps", "time", "tokens per second", "dropout", "seed"),
                _run_numbers(facts.target),
                _run_numbers(facts.draft),
                strict=True,
            )
        ),
    ]
    note = f"{facts.note}\n\n" if facts.note else ""
    return (
        "## Training\n\n" + "\n".join(rows) + "\n\n"
        f"{note}Hardware: {facts.hardware}. "
        "Muon for the hidden matrices and AdamW for the embedding and the norms; constant "
        "learning rate after a short warm-up, linear to zero over the last "
        f"{DECAY_SHARE:.0%} of the tokens; context 256, and 1,024 for the last {LONG_SHARE:.0%}; "
        "products in bfloat16 where the processor is fast at them. The loss counts plain text and "
        f"assistant turns fully and what a user or system says at {GLIMPSE:.0%} of that; the "
        f"first time that an answer takes up what was asked for counts {ECHO:g} times. "
        "In its last 40% the draft learns from the target's distribution as well as from the text."
    )


def _run_numbers(state: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{state['tokens'] / 1e6:.2f} million",
        f"{state['step']:,}",
        f"{state['seconds'] / 60:.0f} minutes",
        f"{state['tokens'] / state['seconds']:,.0f}",
        f"{state['dropout']:g}",
        str(state["seed"]),
    )


def _data(facts: CardFacts) -> str:
    lines = ["| corpus | share | documents | source | licence |", "|---|---|---|---|---|"]
    for split in facts.splits:
        origin = ORIGINS.get(split.name, UNKNOWN)
        lines.append(
            f"| {split.name} | {_share(split)} | {len(split.train):,} + {len(split.held_out):,} "
            f"held out | {origin.source} | {origin.licence} |"
        )
    checksums = "\n".join(f"{file.sha256}  {file.file}" for file in facts.files)
    return (
        "## Data\n\n" + "\n".join(lines) + "\n\n"
        "Shares are of the training tokens; those with a factor are multiplied by it in the last "
        f"{LATE_MIX_SHARE:.0%} of a run, and the others give way. "
        f"About {HELD_OUT_PER_MILLE / 10:g} % of the documents are held out by a hash of their "
        "words, before anything else; a dialogue that quotes 16 words in a row from a held-out "
        "story is held out too. Of the rest, stories with foreign characters, without an end, with "
        "killing or weapons, or going in circles are left out. The corpora are not part of this "
        "repository. SHA256 of the files:"
        f"\n\n```\n{checksums}\n```"
    )


def _share(split: Split) -> str:
    late = "" if split.late_share_factor == 1 else f" (x {split.late_share_factor:g})"
    return f"{split.share:.1%}{late}"


def _losses(measures: Measures) -> str:
    shipped, *rounded = measures.formats
    sizes = "; ".join(f"{form.name} {form.n_bytes / 1e6:.1f} MB" for form in measures.formats)
    names = "".join(f" {form.name} |" for form in rounded)
    lines = [
        f"| held-out corpus | {shipped.name} | bits/byte |{names} draft, bfloat16 | tokens |",
        "|---" * (5 + len(rounded)) + "|",
    ]
    for name, target in shipped.losses.items():
        others = "".join(f" {form.losses[name].nats_per_token:.3f} |" for form in rounded)
        lines.append(
            f"| {name} | {target.nats_per_token:.3f} | {target.bits_per_byte:.3f} |{others} "
            f"{measures.draft[name].nats_per_token:.3f} | {target.n_tokens:,} |"
        )
    return (
        "## Held-out losses\n\nNats per token over rows of 256 tokens, and bits per byte of the "
        "shipped weights; only plain text and assistant turns count. Corpora with few tokens are "
        "indications, not measurements."
        + "".join(f" {words}" for name, words in CAVEATS.items() if name in shipped.losses)
        + "\n\n"
        + "\n".join(lines)
        + "\n\n"
        "8-bit and 4-bit: the matrices rounded in groups of 32 weights along the input, 8 bits "
        "with a float16 scale, 4 bits with a float16 scale and minimum; the embedding, which is "
        "the output head too, at 8 bits in both; norms as they are; arithmetic in float32. "
        f"Sizes: {sizes}."
    )


def _speculation(measures: Measures) -> str:
    agreement = ""
    if measures.agreement is not None:
        agreement = (
            " Over the held-out stories themselves the draft's most likely token is the target's "
            f"at {measures.agreement:.1%} of the positions."
        )
    lines = [
        "| drafter | text | draft length | accepted of proposed | tokens per target pass |",
        "|---|---|---|---|---|",
    ]
    for found in measures.speculation:
        lines.append(
            f"| {found.drafter} | {found.text} | {found.draft_length} "
            f"| {found.n_accepted:,} of {found.n_proposed:,} ({found.accepted_share:.1%}) "
            f"| {found.tokens_per_pass:.2f} |"
        )
    return (
        "## Speculation\n\nGreedy decoding, simulated exactly: a proposed token is accepted while "
        "all before it are the target's own. Stories continue held-out openings, chat answers the "
        "fixed chat prompts. N-grams propose what followed the last earlier place with the same "
        "last three, two or one tokens; greedy text of small models repeats itself, which favours "
        f"them.{agreement} A target this small is itself so fast that speculation may not pay; "
        "the draft is there to exercise the feature.\n\n" + "\n".join(lines)
    )


def _overlap(measures: Measures) -> str:
    overlap = measures.overlap
    return (
        f"## Verbatim overlap\n\nOf {overlap.n_samples} samples (continued openings of held-out "
        "stories and requested stories) the longest run of words that any shares with the training "
        f"texts has {overlap.longest} words; the median of the samples' longest runs is "
        f"{overlap.median:g}. Prompts are not counted; nor is what the project's own generator "
        "wrote, whose templates are there to be repeated. The longest run:\n\n"
        f"{quoted(overlap.words)}"
    )


def _samples(measures: Measures) -> str:
    return (
        "## Samples\n\nUncurated: one draw each, with the settings of `generation_config.json`."
        "\n\n### Completions\n\n"
        + "\n\n".join(_completion(sample) for sample in measures.completions)
        + "\n\n### Chats\n\n"
        + "\n\n".join(_chat(sample) for sample in measures.chats)
    )


def _remake(measures: Measures) -> str:
    sums = "\n".join(f"{digest}  {file}" for file, digest in measures.weights_sha256.items())
    return (
        "## Remaking it\n\n`python -m training --corpora DIRECTORY` (see `training/README.md`). "
        "More tokens, or the whole of TinyStories given as `--text`, are the first things to try. "
        f"SHA256 of the weights that this card speaks of:\n\n```\n{sums}\n```"
    )


def _sizes(config: Mapping[str, Any]) -> str:
    return (
        f"dim {config['dim']}, {config['n_layers']} layers, {config['n_heads']} heads "
        f"({config['n_kv_heads']} for keys and values), hidden dim {config['hidden_dim']}, "
        f"vocabulary {config['vocab_size']}, context {config['max_seq_len']}"
    )


def _completion(sample: Completion) -> str:
    body = quoted(f"**{sample.prompt}**{sample.answer.text}")
    return f"Seed {sample.seed}, {how_it_ended(sample.answer)}:\n\n{body}"


def _chat(sample: Conversation) -> str:
    shown = "\n\n".join(f"**{turn.user}**\n\n{turn.answer.text}" for turn in sample.turns)
    how = "; ".join(how_it_ended(turn.answer) for turn in sample.turns)
    return f"Seed {sample.seed}, {how}:\n\n{quoted(shown)}"
