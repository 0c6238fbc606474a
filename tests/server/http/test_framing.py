"""Where a request ends: one reading, or none."""

from itertools import pairwise

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.http.framing import (
    MAX_CHUNKS,
    MAX_EMPTY_LINES,
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_REQUEST_LINE_BYTES,
    FramingError,
    RequestFraming,
)

HOST = b"host: a\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"


def request(headers: bytes = HOST, line: bytes = b"POST / HTTP/1.1") -> bytes:
    return line + b"\r\n" + headers + b"\r\n"


def taken(pieces: list[bytes]) -> tuple[bytes, bytes, bool]:
    """What the parser gets, what lies after the request, and whether that is complete."""
    framing = RequestFraming()
    passed = behind = b""
    for piece in pieces:
        part, late = framing.take(piece)
        passed += part
        behind += late
    return passed, behind, framing.complete


def in_pieces(raw: bytes) -> list[bytes]:
    """Byte by byte if it is short."""
    step = max(1, len(raw) // 500)
    return [raw[start : start + step] for start in range(0, len(raw), step)]


def parsed(raw: bytes) -> tuple[h11.Request, bytes]:
    """The request as the parser reads it, and its body."""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(raw)
    first = connection.next_event()
    assert isinstance(first, h11.Request)
    body = b""
    while isinstance(event := connection.next_event(), h11.Data):
        body += event.data
    assert isinstance(event, h11.EndOfMessage)
    return first, body


REFUSED = {
    "length and coding": request(HOST + b"content-length: 4\r\ntransfer-encoding: chunked\r\n"),
    "coding and length": request(HOST + b"transfer-encoding: chunked\r\nContent-Length: 4\r\n"),
    "two lengths": request(HOST + b"content-length: 4\r\ncontent-length: 5\r\n"),
    "two equal lengths": request(HOST + b"content-length: 4\r\ncontent-length: 4\r\n"),
    "a list of lengths": request(HOST + b"content-length: 4, 4\r\n"),
    "length with a plus": request(HOST + b"content-length: +2\r\n"),
    "length below zero": request(HOST + b"content-length: -1\r\n"),
    "length in hexadecimal": request(HOST + b"content-length: 0x2\r\n"),
    "length in other digits": request(HOST + b"content-length: \xc2\xb2\r\n"),
    "no length": request(HOST + b"content-length:\r\n"),
    "endless length": request(HOST + b"content-length: 9999999999999999999\r\n"),
    "unknown coding": request(HOST + b"transfer-encoding: xchunked\r\n"),
    "two codings": request(HOST + b"transfer-encoding: gzip, chunked\r\n"),
    "coding twice": request(HOST + b"transfer-encoding: chunked\r\n" * 2),
    "coding in 1.0": request(HOST + b"transfer-encoding: chunked\r\n", b"POST / HTTP/1.0"),
    "bare line feeds": b"GET / HTTP/1.1\nhost: a\n\n",
    "one bare line feed": request(b"host: a\nx: y\r\n"),
    "bare carriage return": request(b"host: a\rx: y\r\n"),
    "folded header": request(HOST + b"x: a\r\n b\r\n"),
    "folded first header": request(b" x: a\r\n" + HOST),
    "space before the colon": request(HOST + b"content-length : 4\r\n"),
    "no colon": request(HOST + b"bad header line\r\n"),
    "no name": request(HOST + b": x\r\n"),
    "NUL in a value": request(HOST + b"x: a\0b\r\n"),
    "escape in a value": request(HOST + b"x: \x1b[31m\r\n"),
    "NUL in a name": request(HOST + b"x\0: a\r\n"),
    "space in the target": request(line=b"GET /a b HTTP/1.1"),
    "control in the target": request(line=b"GET /\x1b[31m HTTP/1.1"),
    "no ASCII in the target": request(line="GET /é HTTP/1.1".encode()),
    "two spaces": request(line=b"GET  / HTTP/1.1"),
    "version 9.9": request(line=b"GET / HTTP/9.9"),
    "version 1.2": request(line=b"GET / HTTP/1.2"),
    "version 2.0": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "version 0.9": b"GET /\r\n",
    "no target": request(line=b"GET HTTP/1.1"),
    "a proxy's method": request(line=b"CONNECT a:1 HTTP/1.1"),
    "no host": request(b""),
    "two hosts": request(HOST + HOST),
    "half an empty line before": b"\r" + request(),
    "an empty line of another kind before": b"\n" + request(),
    "many empty lines before": b"\r\n" * (MAX_EMPTY_LINES + 1) + request(),
    "a URL of another scheme": request(line=b"GET ftp://a/health HTTP/1.1"),
    "a URL without a host": request(line=b"GET http:///health HTTP/1.1"),
    "a URL with a user": request(line=b"GET http://x@a/health HTTP/1.1"),
    "a URL with a fragment": request(line=b"GET http://a/health#x HTTP/1.1"),
    "a URL and no host header": request(b"", b"GET http://a/health HTTP/1.1"),
    "a URL and two host headers": request(HOST + HOST, b"GET http://a/health HTTP/1.1"),
    "a relative target": request(line=b"GET health HTTP/1.1"),
    "an asterisk for another method": request(line=b"GET * HTTP/1.1"),
    "a TLS hello": bytes.fromhex("16030100c8010000c40303"),
    "no size of a chunk": CHUNKED + b"\r\n",
    "a bad size": CHUNKED + b"4g\r\n",
    "a signed size": CHUNKED + b"+4\r\n",
    "a spaced size": CHUNKED + b" 4\r\n",
    "an endless size": CHUNKED + b"ffffffffffffffff\r\n",
    "a chunk without an end": CHUNKED + b"4\r\nabcd0\r\n\r\n",
    "a chunk with half an end": CHUNKED + b"4\r\nabcd\rx",
    "a chunk that ends in a line feed": CHUNKED + b"4\r\nabcd\n0\r\n\r\n",
    "a size that ends in a line feed": CHUNKED + b"4\nabcd",
    "a long extension": CHUNKED + b"4;" + b"x" * 2**20,
    "a long extension that ends": CHUNKED + b"4;" + b"x" * 300 + b"\r\nabcd\r\n",
    "a folded trailer": CHUNKED + b"0\r\nx: a\r\n b\r\n\r\n",
    "one-byte chunks": CHUNKED + b"1\r\nx\r\n" * (MAX_CHUNKS + 1),
}  # fmt: skip
LIMITED = {
    "a long line": (414, request(line=b"GET /" + b"x" * 2**16 + b" HTTP/1.1")),
    "a long line that does not end": (414, b"GET /" + b"x" * (MAX_REQUEST_LINE_BYTES + 1)),
    "a header of 16 KiB and 1": (431, request(HOST + b"x: " + b"x" * (2**14 + 1) + b"\r\n")),
    "a header of 1 MiB": (431, request(HOST + b"x: " + b"x" * 2**20 + b"\r\n")),
    "headers that do not end": (431, request(HOST) [:-2] + b"x: y\r\n" * MAX_HEAD_BYTES),
    "257 headers": (431, request(HOST + b"x: y\r\n" * MAX_HEADERS)),
    "many trailers": (431, CHUNKED + b"0\r\n" + b"x: y\r\n" * 10_000),
}  # fmt: skip


@pytest.mark.parametrize("raw", REFUSED.values(), ids=REFUSED)
def test_what_has_two_readings_is_refused(raw: bytes) -> None:
    with pytest.raises(FramingError) as refused:
        RequestFraming().take(raw)
    assert (refused.value.status, refused.value.code) == (400, "invalid_http")


@pytest.mark.parametrize("raw", REFUSED.values(), ids=REFUSED)
def test_it_is_refused_however_it_comes(raw: bytes) -> None:
    with pytest.raises(FramingError):
        taken(in_pieces(raw))


@pytest.mark.parametrize(("status", "raw"), LIMITED.values(), ids=LIMITED)
def test_what_is_too_much_is_refused_with_the_limit(status: int, raw: bytes) -> None:
    with pytest.raises(FramingError) as refused:
        RequestFraming().take(raw)
    assert refused.value.status == status
    with pytest.raises(FramingError) as refused:
        taken(in_pieces(raw))
    assert refused.value.status in (status, 431)


def test_no_message_repeats_what_the_client_sent() -> None:
    for raw in [*REFUSED.values(), *(raw for _, raw in LIMITED.values())]:
        with pytest.raises(FramingError) as refused:
            RequestFraming().take(raw.replace(b"host: a", b"host: SECRET"))
        assert "SECRET" not in str(refused.value)
        assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    "headers",
    [
        HOST,
        b"Host:a\r\n",
        b"HOST:\t a \t\r\nx:\r\n",
        HOST + b"x: caf\xe9 \xc3\xa9\r\n",
        HOST + b"cookie: a=b\r\ncookie: c=d\r\n",
        HOST + b"x: y\r\n" * (MAX_HEADERS - 1),
        HOST + b"x: " + b"y" * (MAX_HEAD_BYTES - 100) + b"\r\n",
    ],
)
def test_ordinary_heads_pass_as_they_came(headers: bytes) -> None:
    raw = request(headers, b"GET /v1/models?x=%00 HTTP/1.1")
    assert taken([raw]) == (raw, b"", True)
    assert parsed(raw)[0].target == b"/v1/models?x=%00"


def test_an_old_client_needs_no_host() -> None:
    raw = request(b"", b"GET /health HTTP/1.0")
    assert taken([raw]) == (raw, b"", True)


@pytest.mark.parametrize(
    ("line", "headers", "expected"),
    [
        (b"GET http://b:80/health?x=y HTTP/1.1", b"host: a\r\n", b"GET /health?x=y HTTP/1.1"),
        (b"GET HTTPS://b:80//health HTTP/1.1", b"HOST:a\r\n", b"GET //health HTTP/1.1"),
        (b"GET http://b:80 HTTP/1.1", b"x: host: a\r\nHost: a\r\n", b"GET / HTTP/1.1"),
        (b"GET http://b:80?x HTTP/1.0", b"", b"GET /?x HTTP/1.0"),
        (b"OPTIONS http://b:80 HTTP/1.1", b"host: a\r\n", b"OPTIONS * HTTP/1.1"),
    ],
)
def test_of_a_whole_url_the_parser_gets_the_path_and_the_host(
    line: bytes, headers: bytes, expected: bytes
) -> None:
    raw = request(headers + b"content-length: 3\r\n", line) + b"abc"
    others = b"".join(each + b"\r\n" for each in headers.split(b"\r\n") if each[:1] == b"x")
    head = expected + b"\r\nhost: b:80\r\n" + others + b"content-length: 3\r\n\r\n"
    assert taken([raw]) == (head + b"abc", b"", True)
    assert taken(in_pieces(raw)) == (head + b"abc", b"", True)


def test_a_request_about_the_whole_server_passes_as_it_came() -> None:
    raw = request(line=b"OPTIONS * HTTP/1.1")
    assert taken([raw]) == (raw, b"", True)


@pytest.mark.parametrize("n_lines", [1, 2, MAX_EMPTY_LINES])
def test_empty_lines_before_a_request_are_passed_over(n_lines: int) -> None:
    raw = request(HOST + b"content-length: 3\r\n") + b"abc"
    sent = b"\r\n" * n_lines + raw
    assert taken([sent]) == (raw, b"", True)
    assert taken(in_pieces(sent)) == (raw, b"", True)
    framing = RequestFraming()
    framing.take(b"\r\n\r")
    assert not framing.started, "nothing was asked"


@pytest.mark.parametrize(
    ("behind", "left"),
    [
        (b"\r\n", b""),
        (b"\r", b""),
        (b"\n", b"\n"),
        (b"\rx", b"x"),
        (b"\r\nx", b"x"),
        (b"\r\n\r\n", b"\r\n"),
    ],
)
def test_one_empty_line_behind_a_request_is_passed_over(behind: bytes, left: bytes) -> None:
    raw = request(HOST + b"content-length: 3\r\n") + b"abc"
    assert taken([raw + behind]) == (raw, left, True)
    assert taken(in_pieces(raw + behind)) == (raw, left, True)


def test_an_empty_line_may_lie_between_two_requests_however_it_comes() -> None:
    raw = request(b"host: a\r\n", b"GET / HTTP/1.1")
    first = RequestFraming()
    assert first.take(raw + b"\r") == (raw, b"")
    assert first.next().take(b"\n" + raw) == (raw, b"")
    with pytest.raises(FramingError):
        first.next().take(raw)


def test_an_upgrade_header_is_left_out() -> None:
    raw = request(b"upgrade: a\r\nhost: a\r\nUpgrade: h2c\r\nx: upgrade: no\r\n")
    assert taken([raw]) == (request(b"host: a\r\nx: upgrade: no\r\n"), b"", True)


def test_what_follows_a_request_is_told_apart() -> None:
    raw = request(HOST + b"content-length: 3\r\n") + b"abc"
    assert taken([raw + b"GET /"]) == (raw, b"GET /", True)
    assert taken([raw, b"x"]) == (raw, b"x", True)
    assert taken([raw[:-1]]) == (raw[:-1], b"", False)
    whole, behind, _ = taken([CHUNKED + b"3\r\nabc\r\n0\r\n\r\n" + b"GET /"])
    assert (parsed(whole)[1], behind) == (b"abc", b"GET /")


def test_chunks_that_come_together_are_one() -> None:
    raw = CHUNKED + b"1;a=b\r\na\r\n02\r\nbc\r\n0\r\nx: y\r\n\r\n"
    assert taken([raw]) == (CHUNKED + b"3\r\nabc\r\n0\r\n\r\n", b"", True)


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=6),
    st.booleans(),
    st.lists(st.integers(0, 400), max_size=12),
)
def test_every_division_of_the_bytes_is_read_alike(
    contents: list[bytes], is_chunked: bool, cuts: list[int]
) -> None:
    body = b"".join(contents)
    if is_chunked:
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in contents)
        raw = CHUNKED + chunks + b"0\r\n\r\n"
    else:
        raw = request(HOST + b"content-length: %d\r\n" % len(body)) + body
    sent = raw + b"behind"
    edges = sorted({0, len(sent), *(cut for cut in cuts if cut < len(sent))})
    passed, behind, complete = taken([sent[a:b] for a, b in pairwise(edges)])
    assert complete
    assert behind == b"behind"
    assert parsed(passed)[1] == body
