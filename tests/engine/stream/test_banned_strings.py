"""Banned strings: never shown, not even in part, and the text goes on as if they had never come."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Engine, InvalidInputError, SamplingSettings, StreamingGenerator
from engine.stream.completion import MAX_REWINDS
from engine.text.text_stream import TextStream
from tests.support.scripted_model import (
    END,
    GREEDY,
    PieceVocabulary,
    ScriptedModel,
    assert_nothing_lost,
    records_of,
    run,
    text_of,
)

SAMPLED = SamplingSettings(temperature=1.3, seed=5)


def scripted(first: bytes, second: bytes) -> StreamingGenerator:
    """Wants `first`; where a byte of it is banned, that of `second`."""
    script = [list(pair) for pair in zip(first, second, strict=True)]
    return ScriptedModel([*script, END]).generator()


def test_the_text_is_taken_back_and_goes_on_in_another_way() -> None:
    generator = scripted(b"say bad now", b"say Xxx now")
    generator.begin_stream_ex([1], GREEDY, banned_strings=["bad"])
    results = run(generator)
    assert text_of(results) == "say Xad now"
    assert [r.suppressed for r in results if r.suppressed] == ["bad"]
    assert generator.n_completion_tokens == len("say Xad now") + 1
    assert_nothing_lost(results)


def test_letters_of_any_case_are_found_and_reported_as_written() -> None:
    generator = scripted(b"oh BaD", b"oh xyz")
    generator.begin_stream_ex([1], GREEDY, banned_strings=["bAd"])
    results = run(generator)
    assert text_of(results) == "oh xaD"
    assert "".join(r.suppressed for r in results) == "BaD"


def test_nothing_of_a_token_that_may_be_taken_back_is_shown() -> None:
    pieces = [b"fine", b" and b", b"ad", b" and good"]
    model = ScriptedModel([0, [1, 3], 2, END])
    generator = model.generator(PieceVocabulary(pieces))
    generator.begin_stream_ex([1], GREEDY, banned_strings=["bad"])
    results = run(generator)
    assert [r.chunk for r in results][:3] == ["fine", "", ""], "' and b' waits as a whole"
    assert text_of(results) == "fine and goodad"
    assert_nothing_lost(results)


def test_a_beginning_that_does_not_complete_is_released() -> None:
    generator = scripted(b"bake", b"xxxx")
    generator.begin_stream_ex([1], GREEDY, banned_strings=["bad"])
    results = run(generator)
    assert [r.chunk for r in results][:3] == ["", "", "bak"]
    assert text_of(results) == "bake"


def test_several_bans_at_one_place_and_a_ban_within_the_new_text() -> None:
    generator = ScriptedModel([[*b"abc"], [*b"123"], END]).generator()
    generator.begin_stream_ex([1], GREEDY, banned_strings=["a", "b", "c1"])
    # The second character is blamed for nothing: c is, being the token in which "c1" begins.
    results = run(generator)
    text = text_of(results)
    assert text[0] not in "abc"
    assert "".join(r.suppressed for r in results) == "abc1"


def test_a_ban_that_begins_within_a_character_takes_the_whole_token_back() -> None:
    pieces = [b"a\xc3", b"\xa9", b"x", b"bc"]
    generator = ScriptedModel([[0, 3], [1, 2], 2, END]).generator(PieceVocabulary(pieces))
    generator.begin_stream_ex([1], GREEDY, banned_strings=["\u00e9x"])
    results = run(generator)
    assert results[0].chunk == "", "its first half may be taken back"
    assert [r.suppressed for r in results if r.suppressed] == ["a\u00e9x"]
    assert text_of(results).startswith("bc")
    assert_nothing_lost(results)


@pytest.mark.parametrize("stop", [[], ["Sbc"]])
def test_a_banned_string_that_had_begun_before_what_is_taken_back_goes_on(stop: list[str]) -> None:
    pieces = [b"aS", b"b", b"y", b"x", b"!"]
    generator = ScriptedModel([[0, 4], [1, 3], 2, END]).generator(PieceVocabulary(pieces))
    generator.begin_stream_ex([1], GREEDY, stop=stop, banned_strings=["aSx", "by"])
    results = run(generator)
    assert [r.suppressed for r in results if r.suppressed] == ["by", "x"]
    assert "aSx" not in text_of(results), "whether or not its beginning was out"
    assert_nothing_lost(results)


def test_no_more_is_held_than_a_banned_string_is_long() -> None:
    """Although one may have begun at every token."""
    generator = ScriptedModel([*b"ab" * 20, END]).generator()
    generator.begin_stream_ex([1], GREEDY, banned_strings=["abx", "bay"])
    shown = 0
    for n_tokens in range(1, 41):
        shown += len(generator.stream_ex().chunk)
        assert shown >= n_tokens - 2


def test_a_stop_string_that_had_begun_before_what_is_taken_back_goes_on() -> None:
    generator = ScriptedModel([[*b"S"], [*b"aT"], [*b"b"]]).generator()
    generator.begin_stream_ex([1], GREEDY, stop=["ST"], banned_strings=["ab"])
    results = run(generator)
    assert [r.suppressed for r in results if r.suppressed] == ["ab"]
    assert (text_of(results), results[-1].stop_string) == ("", "ST")
    assert results[-1].dropped_text == "ST"
    assert_nothing_lost(results)


@given(st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=3), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_no_banned_string_is_ever_shown(banned: list[str], seed: int) -> None:
    script = [[*b"ab"] for _ in range(12)]
    generator = ScriptedModel([*script, END]).generator()
    generator.begin_stream_ex(
        [1], SamplingSettings(top_k=6, seed=seed), banned_strings=banned, max_new_tokens=12
    )
    results = run(generator)
    assert not any(string in text_of(results).lower() for string in banned)
    assert_nothing_lost(results)


def test_what_can_only_be_banned_ends_the_stream() -> None:
    only_a = SamplingSettings(temperature=0.0, allowed_tokens=(ord("a"),))
    generator = ScriptedModel([ord("x"), *b"aaaa"]).generator()
    generator.begin_stream_ex([1], only_a, banned_strings=["aa"])
    results = run(generator)
    assert (text_of(results), results[-1].eos_reason) == ("", "banned")
    assert_nothing_lost(results)


def test_rewinds_are_bounded() -> None:
    assert MAX_REWINDS >= 100
    generator = ScriptedModel([[*b"ab"] for _ in range(300)]).generator()
    banned = [first + "".join(c) for first in "ab" for c in (["a"] * 8, ["b"] * 8)]
    generator.begin_stream_ex([1], SAMPLED, banned_strings=banned, max_new_tokens=60)
    assert run(generator)[-1].eos_reason in ("length", "banned")


def test_the_other_text_is_that_of_a_stream_which_could_not_draw_the_token(
    tiny_engine: Engine,
) -> None:
    """Sampler, cache and text go back whole: the rest equals a stream with the choice made."""
    generator, prompt = tiny_engine.generator, [7, 8, 9, 10]
    settings_ = SamplingSettings(temperature=0.0, repetition_penalty=1.3, frequency_penalty=0.4)
    plain = ids_of(generator, prompt, settings_)
    word = tiny_engine.tokenizer.decode(plain[3:5])
    generator.begin_stream_ex(
        prompt, settings_, banned_strings=[word], max_new_tokens=24, ignore_eos=True
    )
    results = run(generator)
    taken = [record.token_id for record in records_of(results)]
    assert any(r.suppressed for r in results)
    assert word.lower() not in text_of(results).lower()
    forced = iter(taken)
    generator.begin_stream_ex(
        prompt, settings_, max_new_tokens=24, ignore_eos=True, on_token=lambda _: next(forced)
    )
    assert [record.token_id for record in records_of(run(generator))] == taken
    # A new continuation of what was taken agrees with the rewound one: the cache is right.
    for cut in (5, 12, 20):
        again = ids_of(generator, [*prompt, *taken[:cut]], SamplingSettings(temperature=0.0))
        fresh = ids_of(
            fresh_engine(tiny_engine), [*prompt, *taken[:cut]], SamplingSettings(temperature=0.0)
        )
        assert again == fresh


def test_stop_strings_in_front_of_a_ban_win_and_behind_it_do_not() -> None:
    for stop, expected, reason in [("b", "a", "stop_string"), ("cd", "aXcd"[:2], "stop_string")]:
        generator = scripted(b"abcd", b"aXcd")
        generator.begin_stream_ex([1], GREEDY, stop=[stop], banned_strings=["bc"])
        results = run(generator)
        assert (text_of(results), results[-1].eos_reason) == (expected, reason)


def test_text_goes_back_exactly() -> None:
    text = TextStream(["stop"], ["ban"])
    text.push("é".encode()[:1])
    mark = text.mark()
    text.push("é".encode()[1:] + b"st ba")
    assert text.ban_start == 4
    assert text.rollback(mark) == "ést ba"
    assert text.push("é".encode()[1:] + b"!") == (0, 2)
    assert text.release() == "é!"
    with pytest.raises(ValueError, match="released"):
        text.rollback(mark)


@pytest.mark.parametrize("banned", [[""], "abc", ["ok", ""]])
def test_bad_lists_are_refused(banned: Sequence[str]) -> None:
    generator = scripted(b"a", b"b")
    with pytest.raises(InvalidInputError) as caught:
        generator.begin_stream_ex([1], GREEDY, banned_strings=banned)
    assert caught.value.param == "banned_strings"


def ids_of(generator: StreamingGenerator, prompt: list[int], how: SamplingSettings) -> list[int]:
    generator.begin_stream_ex(prompt, how, max_new_tokens=24, ignore_eos=True)
    return [record.token_id for record in records_of(run(generator))]


def fresh_engine(engine: Engine) -> StreamingGenerator:
    engine.generator.begin_stream_ex([2], GREEDY, max_new_tokens=1)
    run(engine.generator)
    return engine.generator
