"""The training scripts on tiny corpora: hold-out, rendering, tokenizer, resume, export."""

import json
import lzma
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers.pre_tokenizers import ByteLevel

from training import corpus as corpus_module
from training.checkpoint import load_checkpoint
from training.corpus import (
    CorpusError,
    Source,
    Split,
    chat_document,
    load_splits,
    plain_document,
    split_documents,
)
from training.data import Mixer, RowPacker, encode_documents
from training.evaluate import evaluate, longest_overlap, searchable
from training.export import export_target, export_weights, load_exported
from training.generate import Sampling
from training.model import Llama, ModelConfig
from training.model_card import CardFacts, write_model_card
from training.optimizer import orthogonalise
from training.parallel import World, run_workers
from training.prepare import PreparedData, load_prepared, prepare
from training.schedule import Schedule
from training.tokenizer import SPECIAL_TOKENS, special_token_id, train_tokenizer
from training.train import TrainConfig, Trainer, check_total_tokens, read_losses

TINY = ModelConfig(dim=64, n_layers=1, n_heads=2, n_kv_heads=1, hidden_dim=64, head_dim=32)
ANIMALS = ("cat", "dog", "fox", "hen", "owl", "pig", "cow", "bee", "ant", "bat")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Models this small are slower on two threads, a hundredfold so where the cores are busy."""
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
        Source("story_chat", "chat.jsonl.xz", 0.5, derived_from="tinystories"),
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


def test_schedule_warms_up_holds_and_decays_to_zero() -> None:
    schedule = Schedule(1_000_000)
    assert schedule.lr_factor(0) < 0.01
    assert schedule.lr_factor(500_000) == 1.0
    assert schedule.lr_factor(800_000) == pytest.approx(0.5)
    assert schedule.lr_factor(1_000_000) == 0.0
    assert [schedule.context(tokens) for tokens in (0, 849_999, 850_000)] == [256, 256, 1024]


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


def test_longest_overlap_counts_whole_words() -> None:
    text = searchable([Split("own", 1.0, (plain_document("The cat sat on the mat."),), ())])
    assert longest_overlap("A cat sat on thee", text) == 3
    assert longest_overlap("", text) == 0


def test_model_card_says_what_was_measured(
    run_dir: Path, data: PreparedData, tmp_path: Path
) -> None:
    trainer = Trainer(TINY, tiny_config(stop_after_steps=1), data, tmp_path)
    trainer.run()
    model = tmp_path / "model"
    export_target(trainer.checkpoint_path, run_dir / "tokenizer", model)
    export_weights(trainer.checkpoint_path, run_dir / "tokenizer", model / "draft")
    splits = load_splits(run_dir, write_corpora(run_dir))
    measures = evaluate(model, splits, sampling=Sampling(max_tokens=4))
    assert measures.acceptance == 1.0, "a model agrees with itself"
    assert measures.target["tinystories"].nats_per_token == pytest.approx(8.3, abs=0.5)
    state = load_checkpoint(trainer.checkpoint_path)
    facts = CardFacts(state, state, tuple(splits), (), "a test machine")
    write_model_card(facts, measures, model / "MODEL_CARD.md")
    card = (model / "MODEL_CARD.md").read_text()
    assert f"{measures.target['tinystories'].nats_per_token:.3f}" in card
    assert "a test machine" in card


def train_tiny(world: World, config: TrainConfig, run_dir: Path, directory: Path) -> None:
    Trainer(TINY, config, load_prepared(run_dir), directory, world=world).run()


def test_two_processes_learn_what_one_does(
    run_dir: Path, data: PreparedData, tmp_path: Path
) -> None:
    config = tiny_config(held_out_rows=2)
    Trainer(TINY, config, data, tmp_path / "one").run()
    run_workers(train_tiny, 2, tmp_path / "rendezvous", (config, run_dir, tmp_path / "two"))
    assert step_losses(tmp_path / "two") == pytest.approx(step_losses(tmp_path / "one"), abs=1e-3)
