"""Text of a stream: never garbled, and stop strings cut exactly, for any tokens."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.matcher import StringMatcher
from engine.text.text_stream import TextStream

TEXTS = [
    "naïve café",
    "日本語のテスト",
    "👩‍👩‍👧 emoji 🏳️‍🌈",
    "ascii only",
    "mixed é👍z\n\u2028end",
    "\x00\u0301",
    "one \ufffd, two \ufffd\ufffd, many \ufffd\ufffd\ufffd\ufffd\ufffd\ufffd",
]


def stream_text(pieces: list[bytes], stop: tuple[str, ...] = ()) -> tuple[str, list[str]]:
    """The whole text and its chunks, as a generator would use a TextStream."""
    stream = TextStream(stop)
    chunks = []
    for piece in pieces:
        stream.push(piece)
        if stream.stop_match:
            break
        chunks.append(stream.release())
    chunks.append(stream.finish()[0])
    return "".join(chunks), chunks


@pytest.mark.parametrize("text", TEXTS)
def test_two_cuts_anywhere_never_garble(text: str) -> None:
    data = text.encode()
    for first, second in itertools.combinations_with_replacement(range(len(data) + 1), 2):
        whole, chunks = stream_text([data[:first], data[first:second], data[second:]])
        assert whole == text
        assert "\ufffd" in text or all("\ufffd" not in chunk for chunk in chunks)


@given(st.text(), st.lists(st.integers(1, 5), min_size=1))
def test_any_split_gives_the_same_text(text: str, sizes: list[int]) -> None:
    data = text.encode()
    pieces, start = [], 0
    for size in itertools.cycle(sizes):
        if start >= len(data):
            break
        pieces.append(data[start : start + size])
        start += size
    assert stream_text(pieces)[0] == text


@given(st.binary(), st.integers(1, 4))
def test_malformed_bytes_decode_as_python_does(data: bytes, size: int) -> None:
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    assert stream_text(pieces)[0] == data.decode(errors="replace")


def test_incomplete_character_is_flushed_at_the_end() -> None:
    stream = TextStream()
    assert stream.push("é".encode()[:1]) == (0, 1), "the byte belongs to the character to come"
    assert stream.release() == ""
    assert stream.finish() == ("\ufffd", "")


def test_spans_of_a_split_character_overlap() -> None:
    stream = TextStream()
    spans = [stream.push(b"a"), stream.push("é".encode()[:1]), stream.push("é".encode()[1:] + b"b")]
    assert spans == [(0, 1), (1, 2), (1, 3)]
    assert stream.push(b"") == (3, 3)


@pytest.mark.parametrize("cut", range(13))
def test_stop_string_is_cut_at_every_boundary(cut: int) -> None:
    text, stop = "one STOP two!", "STOP"
    whole, chunks = stream_text([text[:cut].encode(), text[cut:].encode()], (stop,))
    assert whole == "one "
    assert "S" not in "".join(chunks)


def test_stop_string_token_by_token_is_cut_too() -> None:
    for stop in ["two", " tw", "o!", "\n\n"]:
        text = "one two three\n\nfour!"
        expected = text.partition(stop)[0]
        assert stream_text([bytes([byte]) for byte in text.encode()], (stop,))[0] == expected


def test_a_stop_string_that_does_not_complete_is_released() -> None:
    stream = TextStream(["abcd"])
    stream.push(b"xabc")
    assert stream.release() == "x"
    stream.push(b"e")
    assert stream.release() == "abce"
    stream.push(b"ab")
    assert stream.release() == ""
    assert stream.finish() == ("ab", "")


def test_the_text_behind_a_stop_is_reported_as_dropped() -> None:
    stream = TextStream(["bc"])
    stream.push(b"abcdef")
    assert stream.stop_match is not None
    assert (stream.stop_match.string, stream.stop_match.start) == ("bc", 1)
    assert stream.finish() == ("a", "bcdef")


def test_first_to_end_wins_then_the_longest() -> None:
    assert stream_text([b"abcd"], ("abcd", "c"))[0] == "ab", "c ends before abcd does"
    stream = TextStream(["c", "abc", "bc"])
    stream.push(b"xabc")
    assert stream.stop_match is not None
    assert stream.stop_match.string == "abc", "of those that end together the longest"


def test_overlapping_beginnings_are_followed() -> None:
    assert stream_text([b"aab"], ("ab",))[0] == "a"
    assert stream_text([b"ababac"], ("abac",))[0] == "ab"


@given(
    st.text("ab", max_size=12),
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_matcher_equals_the_plain_definition(text: str, stops: list[str]) -> None:
    expected = None
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            expected = (end, max(ending, key=len))
            break
    matcher = StringMatcher(stops)
    found = None
    for end, character in enumerate(text, start=1):
        string = matcher.step(character)
        if string is not None:
            found = (end, string)
            break
        partial = max(
            (n for stop in stops for n in range(1, len(stop)) if text[:end].endswith(stop[:n])),
            default=0,
        )
        assert matcher.n_partial == partial
    assert found == expected
