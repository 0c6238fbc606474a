"""The training scripts on tiny corpora: hold-out, rendering, tokenizer, resume, export."""

import json
import lzma
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers.pre_tokenizers import ByteLevel

from training import corpus as corpus_module
from training.__main__ import parse_settings
from training.corpus import (
    CorpusError,
    Source,
    chat_document,
    load_splits,
    plain_document,
    split_documents,
)
from training.data import Mixer, RowPacker, encode_documents
from training.export import export_target, load_exported
from training.model import Llama, ModelConfig
from training.optimizer import orthogonalise
from training.parallel import World, run_workers
from training.prepare import PreparedData, load_prepared, prepare
from training.schedule import Schedule
from training.story_filter import (
    has_foreign_characters,
    is_dark,
    is_good_story,
    is_repetitive,
    is_unfinished,
)
from training.tokenizer import SPECIAL_TOKENS, special_token_id, train_tokenizer
from training.train import TrainConfig, Trainer, check_total_tokens, read_losses

TINY = ModelConfig(dim=64, n_layers=1, n_heads=2, n_kv_heads=1, hidden_dim=64, head_dim=32)
ANIMALS = ("cat", "dog", "fox", "hen", "owl", "pig", "cow", "bee", "ant", "bat")


@pytest.fixture(autouse=True, scope="module")
def denormals() -> Iterator[None]:
    """Training flushes subnormal numbers to zero in its process, which other tests would notice."""
    yield
    torch.set_flush_denormal(False)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Models this small are slower on two threads, a hundred times so on busy cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def story(number: int) -> str:
    first, second = ANIMALS[number % 10], ANIMALS[number // 10 % 10]
    return (
        f"Once there was a {first} called number {number} who met a {second} by the old mill. "
        f"They shared {number} berries, sang a song about the {second}, and went home at night."
    )


def write_corpora(directory: Path, n_stories: int = 300) -> tuple[Source, ...]:
    stories = [story(number) for number in range(n_stories)]
    text = "\n<|endoftext|>\n".join(stories)
    (directory / "stories.txt.xz").write_bytes(lzma.compress(text.encode()))
    chats = [
        {
            "messages": [
                {"role": "user", "content": f"Tell me about number {number}."},
                {"role": "assistant", "content": told},
            ]
        }
        for number, told in enumerate(stories)
    ]
    lines = "\n".join(json.dumps(chat) for chat in chats)
    (directory / "chat.jsonl.xz").write_bytes(lzma.compress(lines.encode()))
    return (
        Source("tinystories", "stories.txt.xz", 0.5),
        Source(
            "story_chat", "chat.jsonl.xz", 0.5, derived_from="tinystories", late_share_factor=2.0
        ),
    )


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("run")
    prepare(load_splits(directory, write_corpora(directory)), directory)
    return directory


@pytest.fixture(scope="module")
def data(run_dir: Path) -> PreparedData:
    return load_prepared(run_dir)


def tiny_config(**changes: Any) -> TrainConfig:
    schedule = Schedule(2_048, warmup_tokens=256, short_context=32, long_context=64)
    config = TrainConfig(
        schedule, batch_tokens=128, compile=False, held_out_rows=1, evaluate_every_tokens=1_024
    )
    return replace(config, **changes)


def step_losses(directory: Path) -> list[float]:
    return list(read_losses(directory / "log.csv")[1])


def test_hold_out_depends_on_the_document_alone() -> None:
    documents = [plain_document(story(number)) for number in range(500)]
    _, held_out = split_documents(documents)
    _, held_out_of_reversed = split_documents(documents[::-1])
    assert 0 < len(held_out) < 50, "about two per cent should be held out"
    assert set(held_out) == set(held_out_of_reversed), "order must not matter"


def test_no_held_out_story_is_in_derived_training_data(tmp_path: Path) -> None:
    stories, chat = load_splits(tmp_path, write_corpora(tmp_path))
    trained_on = "\n".join(document.text for document in chat.train)
    assert stories.held_out
    for document in stories.held_out:
        body = document.text.removesuffix("<|endoftext|>")
        assert body not in trained_on, "a held-out story came back as a dialogue"


def test_chat_is_rendered_as_the_template_does_and_weighted_by_role() -> None:
    document = chat_document(
        [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello!"},
        ]
    )
    assert document.text == (
        "<|system|>Be kind.<|end|><|user|>Hi<|end|><|assistant|>Hello!<|end|><|endoftext|>"
    )
    learned = "".join(s.text for s in document.segments if s.weight == corpus_module.LEARN)
    assert learned == "Hello!<|end|><|endoftext|>"


def test_unknown_role_is_refused() -> None:
    with pytest.raises(CorpusError, match="role 'tool' is not one of"):
        chat_document([{"role": "tool", "content": "x"}])


def test_missing_corpus_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"nothing\.txt does not exist"):
        load_splits(tmp_path, (Source("nothing", "nothing.txt", 1.0),))


def test_tokenizer_round_trips_every_byte() -> None:
    tokenizer = train_tokenizer(["a small story about a small cat"], vocab_size=300)
    every_character = "".join(map(chr, range(0x800))) + "\u20ac\U0001f98a\r\n\t  double  space "
    assert tokenizer.decode(tokenizer.encode(every_character).ids) == every_character
    assert all(tokenizer.token_to_id(byte) is not None for byte in ByteLevel.alphabet())


def test_special_tokens_come_first_and_are_one_token_each() -> None:
    tokenizer = train_tokenizer(["words"], vocab_size=300)
    assert [tokenizer.encode(token).ids for token in SPECIAL_TOKENS] == [
        [index] for index in range(len(SPECIAL_TOKENS))
    ]


def test_loss_weights_follow_the_tokens() -> None:
    tokenizer = train_tokenizer(["Hi there"], vocab_size=300)
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hi"}]
    encoded = encode_documents([chat_document(messages)], tokenizer)
    assistant = special_token_id(tokenizer, "<|assistant|>")
    begin = int(np.flatnonzero(encoded.token_ids == assistant)[0])
    assert set(encoded.weights[: begin + 1]) == {10}
    assert set(encoded.weights[begin + 1 :]) == {100}
    assert encoded.starts.tolist() == [0, len(encoded.token_ids)]


def test_first_echo_of_a_request_weighs_more() -> None:
    document = chat_document(
        [
            {"role": "user", "content": "Tell me a story about an otter and a red kite."},
            {"role": "assistant", "content": "An otter had a kite. Red was the kite of the otter."},
        ]
    )
    echoed = [s.text for s in document.segments if s.weight == corpus_module.ECHO]
    assert echoed == [" otter", " kite", " Red"]


def test_echo_follows_the_last_request_alone() -> None:
    document = chat_document(
        [
            {"role": "user", "content": "A story about a fox"},
            {"role": "assistant", "content": "The fox ran."},
            {"role": "user", "content": "Now one about a whale"},
            {"role": "assistant", "content": "A whale met a fox."},
        ]
    )
    echoed = [s.text for s in document.segments if s.weight == corpus_module.ECHO]
    assert echoed == [" fox", " whale"]


def test_cutting_out_echoes_leaves_the_tokens_alone() -> None:
    words = (
        "otter, \"otter\" otters otter's 'otter  otter\n\notter\totter-boat (otter) 3otter _otter_"
    )
    answers = [words, *(f"{mark}{word}" for mark in ("", ' "', "\n") for word in words.split(" "))]
    tokenizer = train_tokenizer([words, "the boat of an otter " * 3], vocab_size=330)
    for answer in answers:
        request = {"role": "user", "content": "otter otters boat"}
        document = chat_document([request, {"role": "assistant", "content": answer}])
        encoded = encode_documents([document], tokenizer)
        assert encoded.token_ids.tolist() == tokenizer.encode(document.text).ids, answer


def test_echo_weight_fits_the_files() -> None:
    request = {"role": "user", "content": "otter"}
    document = chat_document([request, {"role": "assistant", "content": "An otter."}])
    tokenizer = train_tokenizer(["an otter"], vocab_size=300)
    assert 250 in encode_documents([document], tokenizer).weights


@pytest.mark.parametrize(
    ("rule", "poor"),
    [
        (has_foreign_characters, "He said \u00e2\u20ac\u0153Hello\u00e2\u20ac and went home."),
        (is_unfinished, "The cat sat down and then it"),
        (is_dark, "The soldier had a gun."),
        (is_repetitive, "He ran to her. " * 3 + "She ran to him."),
    ],
)
def test_each_rule_drops_its_poor_stories(rule: Callable[[str], bool], poor: str) -> None:
    good = 'The cat sat on the mat. "Hello," said the dog. They went home, and the end was good.'
    assert rule(poor)
    assert not rule(good)
    assert is_good_story(good)
    assert not is_good_story(poor)


def test_poor_stories_are_not_trained_on_where_a_source_says_so(tmp_path: Path) -> None:
    text = "\n<|endoftext|>\n".join([*(story(n) for n in range(5)), "It never ends and"])
    (tmp_path / "stories.txt").write_text(text)
    (whole,) = load_splits(tmp_path, (Source("s", "stories.txt", 1.0),))
    (good,) = load_splits(tmp_path, (Source("s", "stories.txt", 1.0, only_good_stories=True),))
    assert set(whole.train) - set(good.train) == {plain_document("It never ends and")}
    assert whole.held_out == good.held_out


def test_a_source_without_a_file_is_generated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_module, "OWN_CHAT_COUNT", 300)
    (split,) = load_splits(tmp_path, (Source("own_chat", None, 1.0, late_share_factor=2.0),))
    assert len(split.train) + len(split.held_out) == 300
    assert split.held_out
    assert split.late_share_factor == 2.0


def test_preparing_again_keeps_the_tokenizer_and_adds_corpora(tmp_path: Path) -> None:
    stories, chat = write_corpora(tmp_path)
    prepare(load_splits(tmp_path, (stories,)), tmp_path)
    tokenizer = (tmp_path / "tokenizer" / "tokenizer.json").read_bytes()
    prepare(load_splits(tmp_path, (stories, chat)), tmp_path)
    assert (tmp_path / "tokenizer" / "tokenizer.json").read_bytes() == tokenizer
    again = load_prepared(tmp_path)
    assert set(again.train) == {"tinystories", "story_chat"}
    assert again.shares == {"tinystories": 0.5, "story_chat": 0.5}
    assert again.late_shares == {"tinystories": 0.5, "story_chat": 1.0}


def test_rows_go_on_after_restore(data: PreparedData) -> None:
    packer = RowPacker(data.train["tinystories"], seed=7, bos_token_id=0)
    for _ in range(5):
        packer.next_row(33)
    other = RowPacker(data.train["tinystories"], seed=7, bos_token_id=0)
    other.restore(packer.state())
    for _ in range(400):  # well into the next epoch
        assert np.array_equal(packer.next_row(33)[0], other.next_row(33)[0])


def test_mixer_keeps_the_shares(data: PreparedData) -> None:
    mixer = Mixer(data.train, {"tinystories": 3.0, "story_chat": 1.0}, 1, 0)
    mixer.next_batch(40, 16)
    assert mixer.state()["tokens"] == {"tinystories": 480, "story_chat": 160}


def drawn_since(mixer: Mixer, before: dict[str, int]) -> dict[str, int]:
    return {name: count - before.get(name, 0) for name, count in rows_drawn(mixer).items()}


def rows_drawn(mixer: Mixer) -> dict[str, int]:
    return {name: packer["n_rows"] for name, packer in mixer.state()["packers"].items()}


def test_new_shares_do_not_make_up_for_the_rows_before(data: PreparedData) -> None:
    mixer = Mixer(data.train, {"tinystories": 3.0, "story_chat": 1.0}, 1, 0)
    mixer.next_batch(40, 16)
    before = rows_drawn(mixer)
    mixer.use_shares({"tinystories": 1.0, "story_chat": 1.0})
    mixer.next_batch(10, 16)
    assert drawn_since(mixer, before) == {"tinystories": 5, "story_chat": 5}


def test_restoring_with_other_shares_does_not_make_up_either(data: PreparedData) -> None:
    mixer = Mixer(data.train, {"tinystories": 3.0, "story_chat": 1.0}, 1, 0)
    mixer.next_batch(40, 16)
    other = Mixer(data.train, {"tinystories": 1.0, "story_chat": 1.0}, 1, 0)
    other.restore(mixer.state())
    other.next_batch(10, 16)
    assert drawn_since(other, rows_drawn(mixer)) == {"tinystories": 5, "story_chat": 5}


def test_a_corpus_added_on_resume_gets_its_share_and_no_more(data: PreparedData) -> None:
    alone = {"tinystories": data.train["tinystories"]}
    mixer = Mixer(alone, {"tinystories": 1.0}, 1, 0)
    mixer.next_batch(40, 16)
    both = Mixer(data.train, {"tinystories": 1.0, "story_chat": 1.0}, 1, 0)
    both.restore(mixer.state())
    both.next_batch(10, 16)
    assert rows_drawn(both) == {"tinystories": 45, "story_chat": 5}


def test_a_corpus_that_changed_begins_a_new_epoch(data: PreparedData) -> None:
    packer = RowPacker(data.train["tinystories"], seed=7, bos_token_id=0)
    packer.next_row(33)
    n_documents = packer.state()["n_documents"]
    packer.restore(packer.state() | {"index": n_documents + 5, "n_documents": n_documents + 9})
    packer.next_row(33)
    assert packer.state()["epoch"] == 1


def test_schedule_warms_up_holds_and_decays_to_zero() -> None:
    schedule = Schedule(1_000_000)
    assert schedule.lr_factor(0) < 0.01
    assert schedule.lr_factor(500_000) == 1.0
    assert schedule.lr_factor(825_000) == pytest.approx(0.5)
    assert schedule.lr_factor(1_000_000) == 0.0
    assert [schedule.context(tokens) for tokens in (0, 849_999, 850_000)] == [256, 256, 1024]
    assert [schedule.is_late_mix(tokens) for tokens in (0, 749_999, 750_000)] == [
        False,
        False,
        True,
    ]


def test_total_may_change_only_before_the_decay() -> None:
    check_total_tokens(Schedule(2_000), saved_total=1_000, tokens=600)
    with pytest.raises(ValueError, match="has begun"):
        check_total_tokens(Schedule(2_000), saved_total=1_000, tokens=700)
    with pytest.raises(ValueError, match="too few"):
        check_total_tokens(Schedule(500), saved_total=1_000, tokens=400)


def test_orthogonalise_brings_singular_values_near_one() -> None:
    stack = torch.randn(2, 24, 8, generator=torch.Generator().manual_seed(1))
    values = torch.linalg.svdvals(orthogonalise(stack))
    assert values.min() > 0.6
    assert values.max() < 1.3


@pytest.mark.parametrize("use_muon", [True, False])
def test_resumed_run_equals_an_uninterrupted_one(
    data: PreparedData, tmp_path: Path, use_muon: bool
) -> None:
    whole = tiny_config(use_muon=use_muon)
    Trainer(TINY, whole, data, tmp_path / "whole").run()
    Trainer(TINY, replace(whole, stop_after_steps=7), data, tmp_path / "parts").run()
    Trainer(TINY, whole, data, tmp_path / "parts").run()
    losses = step_losses(tmp_path / "whole")
    assert losses[-1] < losses[0], "training should lower the loss"
    assert step_losses(tmp_path / "parts") == losses


def test_dropout_is_for_training_alone(data: PreparedData, tmp_path: Path) -> None:
    trainer = Trainer(TINY, tiny_config(dropout=0.5), data, tmp_path)
    token_ids = torch.arange(16).unsqueeze(0)
    assert not torch.equal(trainer.model(token_ids), trainer.model(token_ids))
    assert trainer.held_out_losses() == trainer.held_out_losses()
    assert trainer.model.training, "it must go on with dropout"
    plain = Llama(TINY)
    plain.load_state_dict(trainer.model.state_dict())
    assert torch.equal(trainer.model.eval()(token_ids), plain(token_ids))


@pytest.mark.parametrize("value", ["1", "1.5", "-0.1", "nan", "much"])
def test_a_dropout_that_is_no_share_is_refused(
    value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse_settings(["--dropout", value])
    assert f"--dropout: '{value}' is not a share, at least 0 and below 1" in capsys.readouterr().err


def test_draft_learns_from_a_teacher(data: PreparedData, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = tiny_config(distill_from_share=0.0)
    Trainer(TINY, config, data, tmp_path, teacher=Llama(TINY)).run()
    losses = step_losses(tmp_path)
    assert losses[-1] < losses[0]


def test_export_has_hugging_face_names_and_loads_back(
    run_dir: Path, data: PreparedData, tmp_path: Path
) -> None:
    trainer = Trainer(TINY, tiny_config(stop_after_steps=1), data, tmp_path)
    trainer.run()
    export_target(trainer.checkpoint_path, run_dir / "tokenizer", tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["eos_token_id"] == [4, 0]
    model = load_exported(tmp_path / "model")
    assert "model.layers.0.self_attn.q_proj.weight" in model.state_dict()
    assert not any("lm_head" in name for name in model.state_dict())
    token_ids = torch.arange(20).view(1, 20)
    torch.testing.assert_close(model(token_ids), trainer.model(token_ids), atol=0.05, rtol=0.05)


def train_tiny(world: World, config: TrainConfig, run_dir: Path, directory: Path) -> None:
    Trainer(TINY, config, load_prepared(run_dir), directory, world=world).run()


def test_two_processes_learn_what_one_does(
    run_dir: Path, data: PreparedData, tmp_path: Path
) -> None:
    config = tiny_config(held_out_rows=2)
    Trainer(TINY, config, data, tmp_path / "one").run()
    run_workers(train_tiny, 2, tmp_path / "rendezvous", (config, run_dir, tmp_path / "two"))
    # The mean of two halves rounds differently from the whole, on some processors by more.
    assert step_losses(tmp_path / "two") == pytest.approx(step_losses(tmp_path / "one"), rel=2e-3)
