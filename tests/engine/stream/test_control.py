"""What a caller may do between two steps, and that the same at the same places gives the same."""

from dataclasses import replace
from typing import Any

import pytest

from engine import (
    AbortFlag,
    ConstraintSpec,
    Engine,
    InvalidInputError,
    NumericsError,
    SamplingSettings,
    Stream,
    StreamOptions,
    StreamResult,
)
from tests.support.scripted_model import (
    END,
    GREEDY,
    PieceVocabulary,
    ScriptedModel,
    records_of,
    text_of,
)


def to_the_end(stream: Stream) -> list[StreamResult]:
    results = [] if stream.ended else [stream.step()]
    while results and not results[-1].eos:
        results.append(stream.step())
    return results


def scripted(script: Any, options: StreamOptions | None = None, **made: Any) -> Stream:
    return ScriptedModel(script).generator(**made).begin([1], GREEDY, options)


def steps(stream: Stream, n: int) -> str:
    return "".join(stream.step().chunk for _ in range(n))


def test_a_forced_token_comes_next() -> None:
    stream = scripted([*b"abcdef", END])
    steps(stream, 2)
    stream.force(ord("X"))
    stream.force(ord("Y"))
    results = to_the_end(stream)
    assert text_of(results) == "XYef"
    assert [record.origin for record in records_of(results)] == [
        "forced",
        "forced",
        "model",
        "model",
    ]
    assert [record.p_sampled for record in records_of(results)][:2] == [1.0, 1.0]


def test_a_forced_stop_token_ends_the_stream() -> None:
    stream = scripted([*b"abcdef", END])
    steps(stream, 2)
    stream.force(END)
    (result,) = to_the_end(stream)
    assert (result.eos_reason, result.stop_token_id) == ("stop_token", END)


def test_an_injected_text_is_part_of_the_completion() -> None:
    model = ScriptedModel([*b"a" * 60, END])
    stream = model.generator().begin([1], GREEDY)
    steps(stream, 3)
    n_passes = model.n_passes
    stream.inject(b"0123456789" * 3)
    results = to_the_end(stream)
    assert text_of(results) == "0123456789" * 3 + "a" * 27
    assert [record.origin for record in records_of(results)].count("injected") == 30
    n_given = 2  # sixteen rows in a pass, of which the last draws a token
    assert model.n_passes - n_passes == n_given + 27


def test_strings_within_what_was_given_do_not_count() -> None:
    stream = scripted(b"." * 40, StreamOptions(stop=["stop"], max_new_tokens=20))
    stream.inject(b"a stop, st")
    stream.step()
    stream.inject(b"o")
    stream.force(ord("p"))
    results = to_the_end(stream)
    assert text_of(results) == "op......."
    assert results[-1].eos_reason == "length"


def test_a_stop_string_that_was_injected_in_part_ends_the_text() -> None:
    stream = scripted([*b"xxxxp", END], StreamOptions(stop=["stop"]))
    stream.inject(b"-sto")
    results = to_the_end(stream)
    assert text_of(results) == "-"
    assert results[-1].stop_string == "stop"


def test_a_banned_string_takes_nothing_back_that_was_given() -> None:
    stream = scripted([*b"xx", [*b"dX"], END], StreamOptions(banned_strings=["bad"]))
    stream.inject(b"ba")
    results = to_the_end(stream)
    assert text_of(results) == "baX"
    assert [result.suppressed for result in results if result.suppressed] == ["d"]


def test_strings_and_tokens_can_be_banned_in_the_middle() -> None:
    stream = scripted([*b"a ", [*b"bX"], *b"ad", [*b"cC"], END])
    steps(stream, 2)
    stream.ban([ord("c")], ["bad"])
    results = to_the_end(stream)
    assert text_of(results) == "XadC"


def test_a_string_that_was_shown_in_part_is_not_completed() -> None:
    stream = scripted([*b"ba", [*b"dX"], END])
    assert steps(stream, 2) == "ba"
    stream.ban(strings=["bad"])
    assert text_of(to_the_end(stream)) == "X"


def test_the_limit_moves() -> None:
    stream = scripted(b"a" * 50, StreamOptions(max_new_tokens=5))
    steps(stream, 3)
    stream.extend(8)
    assert len(records_of(to_the_end(stream))) == 5
    stream = scripted(b"a" * 50, StreamOptions(max_new_tokens=5))
    steps(stream, 3)
    stream.extend(3)
    assert to_the_end(stream)[-1].eos_reason == "length"
    assert stream.n_completion_tokens == 3


def test_rollback_goes_back_and_repeats() -> None:
    stream = scripted([*b"abcdef", END], StreamOptions(banned_strings=["xyz"]))
    steps(stream, 2)
    mark = stream.mark()
    assert steps(stream, 3) == "cde"
    stream.rollback(mark)
    assert (stream.n_inherited_tokens, stream.n_inherited_characters) == (2, 2)
    assert text_of(to_the_end(stream)) == "cdef"
    stream = scripted([*b"abcdef", END])
    steps(stream, 5)
    stream.rewind(4)
    stream.force(ord("X"))
    assert text_of(to_the_end(stream)) == "Xcdef"


def test_controls_at_the_same_places_give_the_same_text(bundled_engine: Engine) -> None:
    generator = bundled_engine.generator
    ids = bundled_engine.tokenizer.encode("Once upon a time")
    options = StreamOptions(max_new_tokens=40, banned_strings=["little"], return_top_tokens=2)

    places: list[int] = []

    def played() -> tuple[Any, Any]:
        stream = generator.begin(ids, SamplingSettings(seed=5), options)
        results = [stream.step() for _ in range(6)]
        stream.set(SamplingSettings(temperature=1.5, mirostat=True))
        results += [stream.step() for _ in range(6)]
        stream.inject(bundled_engine.tokenizer.encode_continuation(" But then a dragon"))
        stream.ban(strings=[" was"])
        results += [stream.step() for _ in range(3)]
        stream.rewind(5)
        stream.redraw()
        places.append(stream.mark())
        results += to_the_end(stream)
        return [result.tokens for result in results], stream.snapshot()

    first, snapshot = played()
    again, same = played()
    assert first == again
    assert snapshot == same
    # A stream restored after the last of it goes on with all of it.
    generator.begin([1, 2, 3])
    for n in range(places[0], snapshot.n_tokens, 5):
        stream = generator.restore(snapshot.at(n))
        to_the_end(stream)
        assert stream.snapshot() == snapshot


def test_a_constraint_refuses_what_it_forbids(bundled_engine: Engine) -> None:
    generator = bundled_engine.generator
    spec = ConstraintSpec("regex", " [a-z]{5,20}!")
    stream = generator.begin(
        bundled_engine.tokenizer.encode("Once upon a time there was a"),
        GREEDY,
        StreamOptions(max_new_tokens=20, constraint=spec),
    )
    stream.step()
    before = stream.snapshot()
    digits = bundled_engine.tokenizer.encode_continuation("123")
    with pytest.raises(InvalidInputError, match="not allowed by the constraint"):
        stream.inject(digits)
    with pytest.raises(InvalidInputError, match="not allowed by the constraint"):
        stream.force(digits[0])
    with pytest.raises(InvalidInputError, match="not allowed"):
        stream.peek(digits[:1])
    assert stream.snapshot() == before
    stream.inject(bundled_engine.tokenizer.encode_continuation("abc"))
    found = stream.peek(top=3, n_tokens=3)
    assert all(each.text for each in found)
    text = text_of(to_the_end(stream))
    assert "abc" in text
    assert text.endswith("!")


def test_healing_refuses_a_first_token_that_does_not_heal(bundled_engine: Engine) -> None:
    generator = bundled_engine.generator
    ids = bundled_engine.tokenizer.encode("Once upon a ti")
    stream = generator.begin(ids, GREEDY, StreamOptions(max_new_tokens=5, token_healing=True))
    with pytest.raises(InvalidInputError, match="with token healing it must begin"):
        stream.inject(bundled_engine.tokenizer.encode_continuation(" zebra"))
    assert to_the_end(stream)[-1].eos


def test_what_is_wrong_changes_nothing(bundled_engine: Engine) -> None:
    stream = bundled_engine.generator.begin([5, 6], None, StreamOptions(max_new_tokens=9))
    stream.step()
    before = stream.snapshot()
    wrong: list[tuple[Any, str]] = [
        (lambda: stream.force(4096), "token 4096"),
        (lambda: stream.inject([1, -1]), "token -1"),
        (
            lambda: stream.inject([1] * 9),
            "9 given tokens would come, but this stream may generate only 8 more",
        ),
        (lambda: stream.ban([10**6]), "token 1000000"),
        (lambda: stream.ban(strings=[""]), "empty string"),
        (lambda: stream.extend(-1), "must be 0 or more"),
        (lambda: stream.rollback(2), "between 0 and 1"),
        (lambda: stream.rewind(-1), "between 0 and 1"),
        (lambda: stream.set(SamplingSettings(allowed_tokens=[10**6])), "token 1000000"),
        (lambda: stream.peek(top=0), "top must be 1 to 4096"),
        (lambda: stream.peek(n_tokens=0), "n_tokens must be 1 or more"),
        (lambda: stream.peek([5000]), "token 5000"),
    ]
    for call, reason in wrong:
        with pytest.raises(InvalidInputError, match=reason):
            call()
        assert stream.snapshot() == before, reason
    to_the_end(stream)
    for call, _ in wrong:
        with pytest.raises(InvalidInputError):
            call()
    with pytest.raises(InvalidInputError, match="the stream has ended"):
        stream.redraw()


@pytest.mark.parametrize("options", [{}, {"banned_strings": ["was a"], "stop": ["."]}])
def test_a_peek_is_k_branches_and_leaves_the_stream_alone(
    bundled_engine: Engine, options: dict[str, Any]
) -> None:
    generator = bundled_engine.generator
    ids = bundled_engine.tokenizer.encode("Once upon a time")
    chosen = StreamOptions(max_new_tokens=40, return_top_tokens=5, **options)
    stream = generator.begin(ids, SamplingSettings(seed=2), chosen)
    for _ in range(7):
        stream.step()
    place = stream.snapshot()
    found = stream.peek(top=5, n_tokens=8)
    assert stream.snapshot() == place
    after = stream.step().tokens
    whole = generator.restore(place)
    assert whole.step().tokens == after
    top = after[0].top if after else None
    if top:
        assert [each.tokens[0].token_id for each in found] == [each.token_id for each in top]
    for each in found:
        greedy = place.changed(
            settings=GREEDY,
            options=StreamOptions(
                **{**options, "return_top_tokens": 5, "max_new_tokens": place.n_tokens + 8}
            ),
        )
        branch = generator.restore(greedy.forced(each.tokens[0].token_id))
        skipped = place.n_tokens - branch.n_inherited_tokens
        assert tuple(records_of(to_the_end(branch))[skipped:]) == each.tokens


def test_a_peek_of_a_broken_model_ends_the_stream() -> None:
    model = ScriptedModel([*b"abcdef", END])
    stream = model.generator().begin([1], GREEDY)
    stream.step()
    model.fault = lambda position: float("nan") if position > 1 else 0.0
    with pytest.raises(NumericsError):
        stream.peek(top=1)
    assert stream.ended


def test_an_aborted_peek_says_so() -> None:
    abort = AbortFlag()
    stream = scripted([*b"abcdef", END], StreamOptions(abort=abort))
    stream.step()
    abort.set()
    assert [each.eos_reason for each in stream.peek([5])] == ["aborted"]
    assert stream.step().eos_reason == "aborted"


def test_pieces_that_divide_a_character_are_held_again() -> None:
    pieces = [b"a\xc3", b"\xa9", b"x"]
    stream = ScriptedModel([0, 1, 2, END]).generator(PieceVocabulary(pieces)).begin([1], GREEDY)
    assert stream.step().chunk == "a"
    stream.rollback(1)
    assert (stream.n_inherited_tokens, stream.n_inherited_characters) == (0, 1)
    assert text_of(to_the_end(stream)) == "éx"


def test_a_restored_stream_takes_no_more_back_than_the_first_would() -> None:
    script = [[*b"ao"], [*b"xbc"], *b"yd", END]
    options = StreamOptions(banned_strings=["xy", "ab"])
    model = ScriptedModel(script)
    stream = model.generator().begin([1], GREEDY, options)
    results = [stream.step() for _ in range(3)]
    assert results[-1].suppressed == "xy"
    assert text_of(results) == "a", "the stream went back to after it, and never goes further"
    snapshot = stream.snapshot()
    assert text_of(to_the_end(stream)) == "cyd"
    restored = model.generator().restore(snapshot)
    assert restored.n_inherited_characters == 1
    assert text_of(to_the_end(restored)) == "cyd"


def test_a_restored_stream_keeps_what_was_given() -> None:
    model = ScriptedModel([*b"xx", [*b"dX"], END])
    options = StreamOptions(banned_strings=["bad"], max_tokens_per_call=2)
    stream = model.generator().begin([1], GREEDY, options)
    stream.inject(b"ba")
    assert stream.step().chunk == "ba"
    snapshot = stream.snapshot()
    results = to_the_end(model.generator().restore(snapshot))
    assert text_of(results) == "X"
    assert "".join(result.suppressed for result in results) == "d"


@pytest.mark.parametrize("banned", [", a boat", ". A boat"])
def test_a_constraint_that_came_late_is_not_taken_back_to_before_it(
    bundled_engine: Engine, banned: str
) -> None:
    generator, tokenizer = bundled_engine.generator, bundled_engine.tokenizer
    # The text so far is the beginning of a banned string, and so is held.
    ids = tokenizer.encode("Once upon a time")
    free = generator.begin(ids, GREEDY, StreamOptions(max_new_tokens=6))
    text = text_of(to_the_end(free))
    options = StreamOptions(max_new_tokens=20, banned_strings=[text + banned])
    stream = generator.begin(ids, GREEDY, options)
    for _ in range(6):
        stream.step()
    spec = ConstraintSpec("choices", (", a boat", ". A boat"))
    changed = replace(options, constraint=spec)
    branch = generator.restore(stream.snapshot().changed(options=changed))
    shown = branch.n_inherited_characters
    other = {", a boat": ". A boat", ". A boat": ", a boat"}[banned]
    assert text_of(to_the_end(branch)) == (text + other)[shown:]
