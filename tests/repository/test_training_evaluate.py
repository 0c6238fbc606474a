"""The evaluation of a trained model: each measure against its plain definition, and the card."""

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from training import __main__ as main_module
from training import evaluate as evaluate_module
from training.__main__ import main
from training.checkpoint import save_checkpoint
from training.corpus import Source, Split, load_text_splits, plain_document
from training.evaluate import Extent, evaluate, openings, others
from training.export import export_target, export_weights
from training.goals import Goal, goals, names, shows_template
from training.losses import agreement, held_out_rows, loss
from training.measures import (
    Answer,
    Conversation,
    Measures,
    Speculation,
    Turn,
    load_measures,
    save_measures,
)
from training.model import Llama, ModelConfig
from training.overlap import longest_runs, words_of
from training.prepare import prepare
from training.prompts import CHAT_PROMPTS, CHATS, COMPLETION_PROMPTS, STORY_REQUESTS
from training.quantise import GROUP, n_bytes, quantised, round_weights
from training.speculation import draft_speculation, ngram_proposal, ngram_speculation
from training.tokenizer import load_tokenizer
from training.writer import GREEDY, Writer, Written

SMALL = Extent(
    max_rows=2,
    n_prompts=3,
    n_openings=2,
    n_greedy=2,
    answer_tokens=6,
    chat_tokens=5,
    greedy_tokens=6,
)
SHORT = Answer("Hello!", n_tokens=3, ended=True, n_control=0)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Models this small are slower on two threads, a hundred times so on busy cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def random_model(seed: int, vocab_size: int = 24, noise: float = 0.0) -> Llama:
    """Not the training's initialisation, whose layers begin as the identity."""
    config = ModelConfig(
        dim=64, n_layers=1, n_heads=2, n_kv_heads=1, hidden_dim=64, head_dim=32,
        vocab_size=vocab_size,
    )  # fmt: skip
    model = Llama(config)
    generator = torch.Generator().manual_seed(seed)
    other = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.15)
            parameter.add_(torch.randn(parameter.shape, generator=other) * noise)
    return model.eval()


def story(number: int) -> str:
    return (
        f"Once there was a hen called number {number} who met a fox by the old mill in the wood. "
        f"They shared {number} berries, sang a song about the sea, and went home at night."
    )


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose models are random: prepared, trained and exported, not yet evaluated."""
    directory = tmp_path_factory.mktemp("run")
    stories = "\n<|endoftext|>\n".join(story(number) for number in range(300))
    (directory / "tinystories.txt").write_text(stories, "utf-8")
    prepare(load_text_splits([directory / "tinystories.txt"]), directory)
    vocab_size = load_tokenizer(directory / "tokenizer").get_vocab_size()
    for seed, name in enumerate(("target", "draft")):
        (directory / name).mkdir()
        model = random_model(seed, vocab_size)
        facts = {"tokens": 1000 * (seed + 1), "step": 3, "seconds": 60.0, "dropout": 0.1, "seed": 5}
        state = {"model": model.state_dict(), "model_config": asdict(model.config), **facts}
        save_checkpoint({**state, "total_tokens": facts["tokens"]}, checkpoint(directory, name))
    export_target(checkpoint(directory, "target"), directory / "tokenizer", directory / "model")
    export_weights(
        checkpoint(directory, "draft"), directory / "tokenizer", directory / "model" / "draft"
    )
    return directory


def checkpoint(directory: Path, name: str) -> Path:
    return directory / name / "checkpoint.pt"


@pytest.fixture(scope="module")
def splits(run_dir: Path) -> list[Split]:
    return load_text_splits([run_dir / "tinystories.txt"])


@pytest.fixture(scope="module")
def measures(run_dir: Path, splits: list[Split]) -> Measures:
    return evaluate(run_dir / "model", splits, SMALL)


def only(step: str, run_dir: Path, *options: str) -> int:
    paths = ["--text", run_dir / "tinystories.txt", "--run-dir", run_dir]
    output = ["--output", run_dir / "model"]
    return main([str(word) for word in (*paths, *output, "--only", step, *options)])


# Overlap


def has_run(words: Sequence[str], text: str) -> bool:
    return f" {' '.join(words)} " in f" {' '.join(words_of(text))} "


def longest_by_definition(sample: str, texts: Sequence[str]) -> int:
    words = words_of(sample)
    spans = [(i, j) for i in range(len(words)) for j in range(i + 1, len(words) + 1)]
    lengths = [j - i for i, j in spans if any(has_run(words[i:j], text) for text in texts)]
    return max(lengths, default=0)


SENTENCES = st.lists(st.sampled_from("abcd"), max_size=12).map(" ".join)


@settings(deadline=None)
@given(st.lists(SENTENCES, max_size=4), st.lists(SENTENCES, max_size=5))
def test_longest_runs_are_those_of_the_definition(samples: list[str], texts: list[str]) -> None:
    runs = longest_runs(samples, texts)
    assert [run.n_words for run in runs] == [longest_by_definition(s, texts) for s in samples]
    for run, sample in zip(runs, samples, strict=True):
        assert len(words_of(run.words)) == run.n_words
        assert has_run(words_of(run.words), sample) or not run.n_words
        assert any(has_run(words_of(run.words), text) for text in texts) or not run.n_words


def test_a_run_counts_whole_words_of_one_text_only() -> None:
    texts = ["The cat sat on the mat.<|endoftext|>", "A dog barked<|end|>"]
    run, across, part, empty = longest_runs(
        ["so THE cat, sat on fire", "the mat a dog", "a catalogue sat down", ""], texts
    )
    assert (run.words, run.n_words) == ("the cat sat on", 4)
    assert across.n_words == 2, "a run must not go from one text into the next"
    assert part.n_words == 1
    assert empty.n_words == 0


def test_own_lines_are_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    mix = (Source("theirs", "theirs.txt", 0.5), Source("own_chat", None, 0.5))
    monkeypatch.setattr(evaluate_module, "DEFAULT_MIX", mix)
    splits = [Split(source.name, 0.5, (plain_document("x"),), ()) for source in mix]
    assert [split.name for split in others(splits)] == ["theirs"]


def test_openings_leave_something_to_write() -> None:
    long = plain_document(" ".join(f"w{n}" for n in range(13)))
    short = plain_document(" ".join(f"w{n}" for n in range(12)))
    split = Split("stories", 1.0, (), (short, long, long))
    assert openings(split, 1) == [" ".join(f"w{n}" for n in range(12))]
    assert len(openings(split, 9)) == 2


# Speculation


@torch.no_grad()
def most_likely(model: Llama, token_ids: Sequence[int]) -> int:
    return int(model(torch.tensor([token_ids]))[0, -1].argmax())


def speculate(
    target: Llama,
    propose: Callable[[list[int], int], list[int]],
    prompt: list[int],
    *,
    length: int,
    budget: int,
    stop: int,
) -> tuple[list[int], int, int, int]:
    """Plain speculative decoding, one token at a time: (text, passes, proposed, accepted)."""
    text: list[int] = []
    passes = proposed = accepted = 0
    while len(text) < budget and stop not in text:
        proposal = propose([*prompt, *text], min(length, budget - len(text) - 1))
        passes += 1
        proposed += len(proposal)
        for guess in (*proposal, None):
            own = most_likely(target, [*prompt, *text])
            text.append(own)
            accepted += guess == own
            if guess != own or own == stop:
                break
    return text, passes, proposed, accepted


def drafted_by(draft: Llama) -> Callable[[list[int], int], list[int]]:
    def propose(context: list[int], most: int) -> list[int]:
        proposal: list[int] = []
        for _ in range(most):
            proposal.append(most_likely(draft, [*context, *proposal]))
        return proposal

    return propose


def written(prompt: list[int], text: list[int]) -> Written:
    return Written(tuple(prompt), tuple(text), SHORT)


def counts(found: Speculation) -> tuple[int, int, int]:
    return found.n_passes, found.n_proposed, found.n_accepted


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("length", [1, 4])
def test_speculation_counts_what_the_plain_loop_does(seed: int, length: int) -> None:
    target, draft = random_model(seed), random_model(seed, noise=0.03)
    prompt, budget = [seed, 3, 5], 18
    plain = speculate(target, lambda *_: [], prompt, length=length, budget=budget, stop=-1)[0]
    for stop in (-1, plain[11]):  # a text that is cut, and one that ends by itself
        sizes = {"length": length, "budget": budget, "stop": stop}
        text, *by_draft = speculate(target, drafted_by(draft), prompt, **sizes)
        assert text == plain[: len(text)], "speculation must not change the text"
        texts = [written(prompt, text)]
        found = draft_speculation(draft, texts, name="t", draft_length=length, budget=budget)
        assert counts(found) == tuple(by_draft)
        assert found.n_tokens == len(text)
        _, *by_ngrams = speculate(target, ngram_proposal, prompt, **sizes)
        found = ngram_speculation(texts, name="t", draft_length=length, budget=budget)
        assert counts(found) == tuple(by_ngrams)


def test_a_model_accepts_all_of_its_own_tokens() -> None:
    target = random_model(1)
    text = speculate(target, lambda *_: [], [1], length=4, budget=15, stop=-1)[0]
    found = draft_speculation(target, [written([1], text)], name="t", draft_length=4, budget=15)
    assert found.accepted_share == 1.0
    assert found.tokens_per_pass == 5.0


@pytest.mark.parametrize(
    ("token_ids", "proposal"),
    [
        ([1, 2, 3, 4, 9, 2, 3, 4], [9, 2, 3, 4]),
        ([1, 2, 3, 7, 9, 3, 8, 2, 3], [7, 9, 3, 8]),  # two tokens beat the later single one
        ([5, 6, 5, 7, 5], [7, 5]),  # the last of two places
        ([4, 4], [4]),
        ([1, 2, 3], []),
        ([1], []),
    ],
)
def test_ngrams_propose_what_followed(token_ids: list[int], proposal: list[int]) -> None:
    assert ngram_proposal(token_ids, 4) == proposal
    assert ngram_proposal(token_ids, 2) == proposal[:2]


# Formats


@pytest.mark.parametrize("bits", [8, 4])
def test_rounding_stays_within_half_a_step(bits: int) -> None:
    weight = torch.randn(6, 3 * GROUP, generator=torch.Generator().manual_seed(1))
    groups = weight.view(-1, GROUP)
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    step = groups.abs().amax(-1, keepdim=True) / 127 if bits == 8 else (high - low) / 15
    error = (round_weights(weight, bits).view(-1, GROUP) - groups).abs()
    float16 = groups.abs().amax(-1, keepdim=True) / 500  # scale and minimum are rounded as well
    assert (error <= step / 2 + float16).all()
    assert error.max() > step.max() / 4, "nothing was rounded"


def test_what_a_format_can_say_stays_as_it_is() -> None:
    signs = torch.tensor([1.0, -1.0]).repeat(GROUP // 2)
    eight = (torch.arange(GROUP) * 4 + 3) * signs  # up to 127
    four = torch.arange(GROUP) % 16 * 0.25 - 1.5
    for bits, weight in ((8, eight / 64), (4, four), (8, torch.zeros(GROUP)), (4, four * 0 + 0.5)):
        assert torch.equal(round_weights(weight[None], bits), weight[None])


def test_only_matrices_are_rounded_and_the_embedding_keeps_8_bits() -> None:
    model = random_model(3)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    rounded = quantised(model, 4).state_dict()
    for name, tensor in before.items():
        assert torch.equal(model.state_dict()[name], tensor), "the model itself was changed"
        if tensor.ndim == 1:
            assert torch.equal(rounded[name], tensor)
        else:
            bits = 8 if "embed_tokens" in name else 4
            assert torch.equal(rounded[name], round_weights(tensor, bits))
    norms = sum(t.numel() for t in before.values() if t.ndim == 1)
    matrices = sum(t.numel() for t in before.values() if t.ndim == 2)
    embedding = before["model.embed_tokens.weight"].numel()
    assert n_bytes(model) == 2 * (norms + matrices)
    assert n_bytes(model, 8) == 2 * norms + matrices * 8.5 / 8
    assert n_bytes(model, 4) == 2 * norms + embedding * 8.5 / 8 + (matrices - embedding) * 5 / 8


def test_weights_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="33 weights is not a multiple of 32"):
        round_weights(torch.zeros(2, 33), 8)
    with pytest.raises(ValueError, match="bits must be 8 or 4, not 3"):
        round_weights(torch.zeros(2, 32), 3)


# Losses


def test_a_model_that_knows_nothing_loses_the_size_of_its_vocabulary(
    run_dir: Path, splits: list[Split]
) -> None:
    tokenizer = load_tokenizer(run_dir / "tokenizer")
    vocab_size = tokenizer.get_vocab_size()
    model = random_model(0, vocab_size)
    with torch.no_grad():
        model.model.embed_tokens.weight.zero_()
    batch = held_out_rows(splits[0], tokenizer, max_rows=1)
    found = loss(model, batch, tokenizer)
    assert found.nats_per_token == pytest.approx(math.log(vocab_size), rel=1e-5)
    assert found.n_tokens == 256
    text = tokenizer.decode(batch.token_ids[0, 1:].tolist(), skip_special_tokens=True)
    bits = found.n_tokens * math.log2(vocab_size)
    assert found.bits_per_byte == pytest.approx(bits / len(text.encode()), rel=1e-5)
    assert agreement(model, model, batch) == 1.0


# Judging answers


@pytest.mark.parametrize(
    ("text", "subject", "named"),
    [
        ("An Otter swam.", "otter", True),
        ("Two otters swam.", "otter", True),
        ("The foxes ran.", "fox", True),
        ("Many butterflies flew.", "butterfly", True),
        ("The wolves howled.", "wolf", True),
        ("Three mice ate.", "mouse", True),
        ("She was called zoe.", "Zoe", True),
        ("The keyhole was dark.", "key", False),
        ("A street at night.", "tree", False),
        ("", "cat", False),
    ],
)
def test_a_subject_is_named_by_its_word(text: str, subject: str, named: bool) -> None:
    assert names(text, subject) is named


@pytest.mark.parametrize("text", ["Hi <|user|> there", "Hi\nUser: hello", " Assistant : yes"])
def test_template_tokens_and_roles_are_seen(text: str) -> None:
    assert shows_template(replace(SHORT, text=text))


def test_plain_answers_show_no_template() -> None:
    assert not shows_template(replace(SHORT, text="The user: a person. I <3 you | and |> you."))
    assert shows_template(replace(SHORT, n_control=1)), "hidden control tokens count"


def test_the_fixed_prompts_are_as_many_as_the_goals_say() -> None:
    assert [len(STORY_REQUESTS), len(CHAT_PROMPTS)] == [50, 50]
    assert [len(COMPLETION_PROMPTS), len(CHATS)] == [10, 10]
    assert len({request.words for request in STORY_REQUESTS}) == 50
    assert len(set(CHAT_PROMPTS)) == 50
    unnamed = [r.words for r in STORY_REQUESTS if not names(r.words, r.subject)]
    assert not unnamed, "a request must name its own subject"


# The whole


def test_the_engine_writes_the_same_from_the_same_seed(run_dir: Path) -> None:
    writer = Writer(run_dir / "model")
    assert writer.defaults.temperature == 0.7
    first = writer.complete("Once", 3, 12)
    assert writer.complete("Once", 3, 12) == first
    assert writer.complete("Once", 4, 12).answer.text != first.answer.text
    assert first.answer.n_tokens == 12
    assert not first.answer.ended


def test_a_conversation_goes_on_from_its_own_answers(run_dir: Path) -> None:
    writer = Writer(run_dir / "model")
    first, second = writer.converse(("Hello", "More"), GREEDY, 4)
    tokenizer = load_tokenizer(run_dir / "model")
    shown = tokenizer.decode(second.prompt_ids, skip_special_tokens=False)
    expected = f"<|user|>Hello<|end|><|assistant|>{first.answer.text}<|end|>"
    assert shown == f"{expected}<|user|>More<|end|><|assistant|>"


def test_everything_is_measured(measures: Measures) -> None:
    assert [form.name for form in measures.formats] == ["bfloat16", "8-bit", "4-bit"]
    losses = [form.losses["tinystories"].nats_per_token for form in measures.formats]
    assert losses[0] != losses[1] != losses[2]
    assert losses[1] == pytest.approx(losses[0], abs=0.05)
    assert {(s.drafter, s.text) for s in measures.speculation} == {
        (drafter, text) for drafter in ("draft model", "n-grams") for text in ("stories", "chat")
    }
    assert measures.overlap.n_samples == 2 + 2 * 3
    assert [len(measures.stories), len(measures.chat_prompts), len(measures.chats)] == [3, 3, 3]


def test_a_story_split_is_not_needed(run_dir: Path, splits: list[Split]) -> None:
    own = [replace(split, name="own") for split in splits]
    found = evaluate(run_dir / "model", own, SMALL)
    assert found.agreement is None
    assert {speculation.text for speculation in found.speculation} == {"chat"}
    assert not any("held-out" in goal.words for goal in goals(found))


def test_the_step_keeps_what_it_measured(
    run_dir: Path, measures: Measures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main_module, "evaluate", partial(evaluate, extent=SMALL))
    assert only("evaluate", run_dir) == 0
    assert load_measures(run_dir / "measures.json") == measures, "the same again, run by run"


def test_measures_come_back_from_their_file(measures: Measures, tmp_path: Path) -> None:
    save_measures(measures, tmp_path / "measures.json")
    assert load_measures(tmp_path / "measures.json") == measures
    assert json.loads((tmp_path / "measures.json").read_text())["chat_limit"] == 5


def goal_with(measures: Measures, words: str) -> Goal:
    (found,) = [goal for goal in goals(measures) if words in goal.words]
    return found


def test_goals_are_reached_or_not(measures: Measures) -> None:
    shipped = measures.formats[0]
    for nats, reached in ((1.75, True), (1.76, False)):
        losses = {"tinystories": replace(shipped.losses["tinystories"], nats_per_token=nats)}
        changed = replace(measures, formats=(replace(shipped, losses=losses),))
        assert goal_with(changed, "1.75").reached is reached
    for n_named, reached in ((40, True), (39, False)):
        told = [replace(measures.stories[0], named=number < n_named) for number in range(50)]
        assert goal_with(replace(measures, stories=tuple(told)), "40 of 50").reached is reached
    cut = replace(SHORT, ended=False)
    for n_ended, reached in ((45, True), (44, False)):
        chats = tuple(
            Conversation((Turn("a", SHORT), Turn("b", SHORT if n < n_ended else cut)), n)
            for n in range(50)
        )
        assert goal_with(replace(measures, chat_prompts=chats), "45 of 50").reached is reached
    for n_control, reached in ((0, True), (1, False)):
        chat = Conversation((Turn("a", replace(SHORT, n_control=n_control)), Turn("b", SHORT)), 1)
        assert goal_with(replace(measures, chat_prompts=(chat,)), "roles").reached is reached
    for longest, reached in ((30, True), (31, False)):
        overlap = replace(measures.overlap, longest=longest)
        assert goal_with(replace(measures, overlap=overlap), "30").reached is reached
    for accepted, reached in ((60, True), (59, False)):
        found = Speculation("draft model", "stories", 4, 90, 30, 100, accepted)
        changed = replace(measures, speculation=(found,))
        assert goal_with(changed, "accepted").reached is reached


def test_the_card_says_all_that_was_measured(run_dir: Path, measures: Measures) -> None:
    save_measures(measures, run_dir / "measures.json")
    assert only("card", run_dir, "--hardware", "a test machine", "--note", "Two legs.") == 0
    card = (run_dir / "model" / "MODEL_CARD.md").read_text("utf-8")
    figures = [f"{loss.nats_per_token:.3f}" for loss in measures.draft.values()]
    for form in measures.formats:
        figures += [f"{loss.nats_per_token:.3f}" for loss in form.losses.values()]
        figures.append(f"{form.name} {form.n_bytes / 1e6:.1f} MB")
    figures.append(f"{measures.formats[0].losses['tinystories'].bits_per_byte:.3f}")
    figures.append(f"{measures.agreement:.1%}")
    for found in measures.speculation:
        figures += [f"{found.accepted_share:.1%}", f"{found.tokens_per_pass:.2f}"]
    figures += [str(measures.overlap.longest), f"{measures.overlap.median:g}"]
    figures += [measures.overlap.words, *measures.weights_sha256.values()]
    figures += [f"| {goal.measured} | {'yes' if goal.reached else 'no'} |"
                for goal in goals(measures)]  # fmt: skip
    figures += [chat.turns[-1].user for chat in measures.chats]
    figures += [sample.prompt for sample in measures.completions]
    missing = [figure for figure in figures if figure not in card]
    assert not missing
    assert "Two legs.\n\nHardware: a test machine." in card


def test_every_answer_is_shown(run_dir: Path, measures: Measures) -> None:
    save_measures(measures, run_dir / "measures.json")
    assert only("card", run_dir) == 0
    text = (run_dir / "model" / "ANSWERS.md").read_text("utf-8")
    n_named = sum(told.named for told in measures.stories)
    assert f"{n_named} of 3 name their subject" in text
    for told in measures.stories:
        verdict = "named" if told.named else "not named"
        assert f"`{told.request}`" in text
        assert f"{told.subject}: {verdict}; {told.answer.n_tokens} tokens" in text
    for chat in measures.chat_prompts:
        assert all(f"`{turn.user}`" in text for turn in chat.turns)
    quoted = re.sub(r"^> ?", "", text, flags=re.MULTILINE)
    first = measures.stories[0].answer.text.strip().split("\n")[0].rstrip()
    assert first in quoted


def test_no_card_is_written_of_other_weights(
    run_dir: Path, measures: Measures, capsys: pytest.CaptureFixture[str]
) -> None:
    other = replace(measures, weights_sha256={"model.safetensors": "0"})
    save_measures(other, run_dir / "measures.json")
    assert only("card", run_dir) == 1
    assert "other weights" in capsys.readouterr().err
    (run_dir / "measures.json").unlink()
    assert only("card", run_dir) == 1
    assert "run `--only evaluate` before" in capsys.readouterr().err
