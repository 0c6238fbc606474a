"""Any options together: a stream that is taken up again is the one that was never interrupted."""

from random import Random
from typing import Any

import pytest

from engine import (
    Snapshot,
    Stream,
    StreamingGenerator,
    StreamOptions,
    StreamResult,
    snapshot_from_bytes,
    snapshot_to_bytes,
)
from tests.support.any_stream import (
    Outcome,
    Parts,
    Request,
    all_logits,
    all_records,
    outcome,
    some_request,
    some_strings,
    stream_parts,
    streamed,
    turned,
)
from tests.support.scripted_model import text_of


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    return stream_parts(tmp_path_factory.mktemp("snapshots"))


def options_of(request: Request) -> StreamOptions:
    return StreamOptions(
        return_top_tokens=2,
        return_logits=True,
        return_trace=True,
        return_probabilities=True,
        max_tokens_per_call=1 if request.one_by_one else None,
        **request.options,
    )


def to_the_end(stream: Stream, request: Request) -> tuple[list[StreamResult], list[Snapshot]]:
    """Its results, and a snapshot before each of them and after the last."""
    results: list[StreamResult] = []
    snapshots = [stream.snapshot()]
    while not results or not results[-1].eos:
        results.append(stream.step(request.banned))
        snapshots.append(stream.snapshot())
    return results, snapshots


def restored(generator: StreamingGenerator, snapshot: Snapshot, request: Request) -> Stream:
    return generator.restore(
        snapshot_from_bytes(snapshot_to_bytes(snapshot)),
        isolation_key=request.isolation_key,
        on_token=request.options.get("on_token"),
    )


def assert_rest(stream: Stream, request: Request, expected: Outcome) -> str:
    """The stream is the rest of the expected one. Returns the text that it suppressed."""
    n_tokens, n_characters = stream.n_inherited_tokens, stream.n_inherited_characters
    results, _ = to_the_end(stream, request)
    records = [record._replace(origin="", proposed=None) for record in all_records(results)]
    assert records == expected.records[n_tokens:]
    assert text_of(results) == expected.text[n_characters:]
    assert results[-1].eos_reason == expected.reason
    assert results[-1].dropped_text == expected.dropped_text
    assert results[-1].stop_condition == expected.condition
    assert stream.n_completion_tokens == expected.n_completion
    rows: Any = all_logits(results)
    assert rows.tobytes() == expected.logits[len(expected.logits) - rows.nbytes :]
    assert len(rows) == len(records)
    return "".join(result.suppressed for result in results)


@pytest.mark.parametrize("seed", range(60))
def test_a_restored_stream_is_the_uninterrupted_one(parts: Parts, seed: int) -> None:
    rng = Random(seed)
    busy = parts.busy()
    for _ in range(3):
        request = some_request(rng)
        plain = parts.plain()
        free = outcome(plain, streamed(plain, request))
        text = free.text if isinstance(free, Outcome) else ""
        request.options["stop"] = some_strings(rng, text)
        request.options["banned_strings"] = [turned(s) for s in some_strings(rng, text)]

        plain = parts.plain()
        expected = outcome(plain, streamed(plain, request))
        if isinstance(expected, str):
            continue
        first = busy.begin(request.prompt, request.sampling, options_of(request))
        results, snapshots = to_the_end(first, request)
        for i in rng.sample(range(len(results)), min(3, len(results))):
            stream = restored(busy, snapshots[i], request)
            suppressed = assert_rest(stream, request, expected)
            assert suppressed == "".join(result.suppressed for result in results[i:])
        # A stream that ended because of its text goes on after that when it is restored.
        n_most = snapshots[-1].n_tokens - (expected.reason in ("stop_string", "constraint"))
        for n in rng.sample(range(n_most + 1), min(3, n_most + 1)):
            assert_rest(restored(busy, snapshots[-1].at(n), request), request, expected)
