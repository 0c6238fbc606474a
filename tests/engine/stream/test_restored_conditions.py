"""Conditions that end a text, in a stream that is left, branched or given tokens."""

from typing import Any

from engine import (
    Engine,
    Repeat,
    SamplingSettings,
    Snapshot,
    StopWhen,
    Stream,
    StreamOptions,
    StreamResult,
    TokenRecord,
    snapshot_from_bytes,
    snapshot_to_bytes,
)

PROMPT = "Once upon a time, in a little house by the sea, there lived"
SAMPLED = SamplingSettings(temperature=1.0, seed=3)


def options(**given: Any) -> StreamOptions:
    return StreamOptions(max_new_tokens=24, ignore_eos=True, **given)


def begun(engine: Engine, **given: Any) -> Stream:
    return engine.generator.begin(engine.tokenizer.encode(PROMPT), SAMPLED, options(**given))


def to_the_end(stream: Stream) -> tuple[list[TokenRecord], StreamResult]:
    """The records, that of the token before which the text ended included, and the last result."""
    results: list[StreamResult] = []
    while not results or not results[-1].eos:
        results.append(stream.step())
    return [each for result in results for each in (*result.tokens, *result.dropped)], results[-1]


def parent(engine: Engine) -> tuple[list[TokenRecord], Snapshot]:
    """A stream without conditions."""
    stream = begun(engine)
    records, _ = to_the_end(stream)
    return records, stream.snapshot()


def means(records: list[TokenRecord], start: int = 0) -> list[float]:
    logprobs = [record.logprob for record in records[start:]]
    return [sum(logprobs[: i + 1]) / (i + 1) for i in range(len(logprobs))]


def test_conditions_given_in_the_middle_count_from_there(bundled_engine: Engine) -> None:
    restore = bundled_engine.generator.restore
    records, snapshot = parent(bundled_engine)
    start, limit = 10, min(means(records, 10)[3:]) + 1e-6
    at = start + next(i for i, mean in enumerate(means(records, start)) if mean < limit)
    when = StopWhen(mean_logprob_lt=limit)
    branch = snapshot.at(start).changed(options=options(stop_when=when))
    rest, last = to_the_end(restore(branch))
    assert rest[:-1] == records[start:at]
    assert rest[-1].logprob == records[at].logprob
    assert last.stop_condition is not None
    assert last.stop_condition.name == "mean_logprob_lt"
    # Left again, it still counts from there.
    stream = restore(branch)
    stream.step()
    again, same = to_the_end(restore(snapshot_from_bytes(snapshot_to_bytes(stream.snapshot()))))
    assert again == rest[1:]
    assert same.stop_condition == last.stop_condition


def test_a_branch_before_another_condition_has_the_old_one(bundled_engine: Engine) -> None:
    restore = bundled_engine.generator.restore
    records, _ = parent(bundled_engine)
    limit = means(records)[15] + 1e-6
    at = next(i for i, mean in enumerate(means(records)) if mean < limit)
    when = options(stop_when=StopWhen(mean_logprob_lt=limit))
    whole, last = to_the_end(begun(bundled_engine, stop_when=when.stop_when))
    assert (len(whole), last.eos_reason) == (at + 1, "stop_when")

    first = begun(bundled_engine, stop_when=when.stop_when)
    while first.mark() < at:
        first.step()
    free = restore(first.snapshot().changed(options=options()))
    to_the_end(free)
    end = free.snapshot()
    assert end.n_tokens == 24, "without the condition it goes on"
    assert len(end.logprob_sums) <= at + 1
    rest, last = to_the_end(restore(end.at(at - 1)))
    assert rest == whole[at - 1 :]
    assert last.eos_reason == "stop_when"
    # Taken up after them, the conditions count from there.
    resumed, last = to_the_end(restore(end.at(at + 1).changed(options=when)))
    n = next((i for i, mean in enumerate(means(records, at + 1)) if mean < limit), None)
    assert len(resumed) == (23 - at if n is None else n + 1)


def test_who_gives_a_token_wants_it(bundled_engine: Engine) -> None:
    """The text ends where the model is unsure; the caller chooses, and it goes on."""
    restore = bundled_engine.generator.restore
    records, _ = parent(bundled_engine)
    limit = sorted(record.entropy for record in records)[-3]
    stream = begun(bundled_engine, stop_when=StopWhen(entropy_gt=limit))
    unsure, last = to_the_end(stream)
    assert last.eos_reason == "stop_when"
    snapshot = stream.snapshot()
    assert snapshot.n_tokens == len(unsure) - 1
    assert to_the_end(restore(snapshot))[1].stop_condition == last.stop_condition

    choice = unsure[-1].token_id
    for given in (snapshot.forced(choice), snapshot.injected([choice])):
        rest, _ = to_the_end(restore(given))
        assert rest[0].entropy == unsure[-1].entropy > limit
        assert len(rest) > 1
        assert rest[0].token_id == choice
        middle = restore(given)
        middle.step()
        assert to_the_end(restore(middle.snapshot()))[0] == rest[1:]


def test_given_tokens_count_for_a_repeat(bundled_engine: Engine) -> None:
    stream = begun(bundled_engine, stop_when=StopWhen(repeat=Repeat(1, 3)))
    stream.step()
    stream.inject([400, 400, 400, 400])
    while stream.mark() < 5:
        assert not stream.step().eos
    stream.rewind(2)
    # 400 twice: a third is the end, but for one who gives it.
    spec = stream.snapshot().changed(
        settings=SamplingSettings(allowed_tokens=(400,)), options=stream.options
    )
    records, last = to_the_end(bundled_engine.generator.restore(spec))
    assert [record.token_id for record in records] == [400]
    assert last.stop_condition is not None
    assert last.stop_condition.name == "repeat"


def test_a_peek_ends_where_a_branch_does(bundled_engine: Engine) -> None:
    stream = begun(bundled_engine, stop_when=StopWhen(entropy_gt=2.5))
    stream.step()
    snapshot = stream.snapshot()
    glimpses = stream.peek(top=5, n_tokens=8)
    greedy = snapshot.changed(settings=SamplingSettings(temperature=0.0))
    for glimpse in glimpses:
        n = len(glimpse.tokens)
        branch = bundled_engine.generator.restore(greedy.forced(glimpse.tokens[0].token_id))
        records, last = to_the_end(branch)
        assert [each.token_id for each in glimpse.tokens] == [r.token_id for r in records[:n]]
        ends_there = last.eos_reason == "stop_when" and len(records) == n + 1 <= 8
        assert (glimpse.eos_reason == "stop_when") == ends_there
    assert {glimpse.eos_reason for glimpse in glimpses} == {None, "stop_when"}
