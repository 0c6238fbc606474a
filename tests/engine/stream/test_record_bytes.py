"""Records as bytes: they come back bit by bit, and a thousand kept streams fit into 64 MB."""

from typing import Any

import pytest

from engine import (
    Engine,
    InvalidInputError,
    SamplingSettings,
    StreamOptions,
    TokenRecord,
    records_from_bytes,
    records_to_bytes,
    snapshot_to_bytes,
)
from tests.support.scripted_model import records_of, run


def test_records_come_back(bundled_engine: Engine) -> None:
    generator, tokenizer = bundled_engine.generator, bundled_engine.tokenizer
    for options in (
        {},
        {"return_top_tokens": 3, "return_trace": True},
        {"watch": [(27,), (5, 300, 301)]},
        {"token_healing": True, "ignore_eos": True, "decode_special_tokens": True},
    ):
        generator.begin_stream_ex(
            tokenizer.encode("Once upon a ti"),
            SamplingSettings(temperature=0.8, top_p=0.9, seed=3),
            max_new_tokens=40,
            on_token=lambda sampled: 30 if sampled.rank > 2 else None,
            **options,
        )
        records = records_of(run(generator))
        assert records_from_bytes(records_to_bytes(records), tokenizer) == records
    assert records_from_bytes(records_to_bytes([]), tokenizer) == []
    data = records_to_bytes(records)
    for broken in (b"", data[:-1], data[:-9] + b"1" + data[-8:], b"soliton records 9\n" + data):
        with pytest.raises(InvalidInputError, match="no records"):
            records_from_bytes(broken, tokenizer)


def test_only_what_was_watched_is_stored(bundled_engine: Engine) -> None:
    generator, prompt = bundled_engine.generator, bundled_engine.tokenizer.encode("Once upon")

    def n_bytes(**options: Any) -> int:
        generator.begin_stream_ex(
            prompt, SamplingSettings(seed=1), max_new_tokens=200, ignore_eos=True, **options
        )
        return len(records_to_bytes(records_of(run(generator))))

    assert n_bytes(watch=[(27,)]) - n_bytes() < 200 * 9


def test_a_thousand_streams_fit_into_64_mb(bundled_engine: Engine) -> None:
    stream = bundled_engine.generator.begin(
        bundled_engine.tokenizer.encode("Once upon a time"),
        SamplingSettings(temperature=0.8, seed=1),
        StreamOptions(max_new_tokens=500, ignore_eos=True, return_top_tokens=5),
    )
    records: list[TokenRecord] = []
    while not stream.ended:
        records += stream.step().tokens
    assert len(records) == 500
    assert len(snapshot_to_bytes(stream.snapshot())) + len(records_to_bytes(records)) < 64_000
