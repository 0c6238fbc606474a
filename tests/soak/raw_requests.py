"""Bytes that a careless or a hostile client might send: valid requests, and what spoils them.

Every case depends only on its seed. Knows HTTP and the routes, but not how they are sent.
"""

import itertools
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PATHS = ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/apply-template")
BODIES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/completions", {"model": "fake", "prompt": "hello", "max_tokens": 3}),
    ("/v1/completions", {"model": "fake", "prompt": [104, 105], "max_tokens": 2, "stream": True}),
    (
        "/v1/completions",
        {
            "model": "fake", "prompt": "x", "max_tokens": 3, "temperature": 0.5, "seed": 7,
            "logprobs": 2, "stop": ["q"], "logit_bias": {"97": -1.5},
        },
    ),
    (
        "/v1/chat/completions",
        {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3},
    ),
    (
        "/v1/chat/completions",
        {
            "model": "fake", "stream": True, "max_tokens": 3,
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": [{"type": "text", "text": "caf\u00e9"}]},
            ],
            "stream_options": {"include_usage": True},
        },
    ),
    ("/tokenize", {"model": "fake", "prompt": "some text"}),
    ("/detokenize", {"tokens": [104, 105, 33]}),
    ("/apply-template", {"messages": [{"role": "user", "content": "x"}]}),
)  # fmt: skip
GETS = ("/health/live", "/health/ready", "/v1/models", "/v1/models/fake", "/metrics", "/props")

# Put in place of a value of a body: JSON, and what only looks like it.
VALUES = (
    b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-0.0", b"5e-324", b"-1", b"2147483648",
    b"9223372036854775808", b"1" * 5000, b"1e400", b'"\\ud800"', b'"\\u0000"', b"true", b"null",
    b"[]", b"{}", b'""', b'"' + b"x" * 20_000 + b'"', b"[" * 900 + b"]" * 900, b"[" * 5000,
    b'{"a":' * 5000, b"'x'", b"01", b"+1", b".5", b"1.", b'"\x01"', b"\xff", b"/*", b"undefined",
    b'{"a":1,"a":2}', b"[" + b"1," * 3000 + b"1]",
)  # fmt: skip
# Each stands between the request line and the other headers.
HEADERS = (
    b"transfer-encoding: chunked", b"Transfer-Encoding: xchunked", b"transfer-encoding: gzip",
    b"transfer-encoding: chunked, chunked", b"transfer-encoding : chunked", b"content-length: 5",
    b"transfer-encoding: identity", b"content-length: +2", b"content-length: -1",
    b"content-length: 0x10", b"content-length: 2, 2", b"content-length: 18446744073709551616",
    b"content-length: " + b"9" * 300, b"content-length:", b"content-length: 1 1", b"host: a",
    b"host: evil\x00", b"x: a\r\n b", b"x: a\r\n\tb", b"x:a\nb: c", b"x\x00y: z", b": z", b"x",
    b"x y: z", b"x: \x00", b"x: \xff\xfe", b"x: \r", b"\xff: z", b"x: " + b"y" * 70_000,
    b"y" * 70_000 + b": z", b"\r\n".join(b"x%d: y" % i for i in range(300)),
    b"expect: 100-continue", b"expect: 200-maybe", b"connection: close", b"connection: upgrade",
    b"upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-key: x", b"upgrade: h2c",
    b"connection: keep-alive, transfer-encoding", b"content-type: text/plain",
    b"content-type: multipart/form-data; boundary=x", b"content-encoding: gzip", b"trailer: x",
    b"range: bytes=" + b"0-1," * 2000, b"authorization: Bearer x\r\nauthorization: Bearer y",
    b"cookie: " + b"a=b; " * 1000, b"te: trailers", b"origin: null", b"x-request-id: a\x1b[31m",
    b"accept-encoding: gzip;q=nan",
)  # fmt: skip
REQUEST_LINES = (
    b"GET / HTTP/9.9", b"GET /", b"GET", b"", b"\r\n\r\n", b"GET  / HTTP/1.1", b"GET / HTTP/1.0",
    b"GET\t/\tHTTP/1.1", b"get /health HTTP/1.1", b"GET * HTTP/1.1", b"OPTIONS * HTTP/1.1",
    b"GET http://evil/health HTTP/1.1", b"CONNECT evil:443 HTTP/1.1", b"GET //health HTTP/1.1",
    b"TRACE / HTTP/1.1", b"GET /%00 HTTP/1.1", b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1",
    b"GET /v1/models/../../x HTTP/1.1", b"GET /\xff\xfe HTTP/1.1", b"GET /a b HTTP/1.1",
    b"GET /%zz HTTP/1.1", b"GET /?" + b"x" * 70_000 + b" HTTP/1.1", b"FOO /health HTTP/1.1",
    b"GET /health HTTP/1.1 x", b"GET /health http/1.1", b"GET /health HTTP/1.10",
    b"GET /health#x HTTP/1.1", b"GET /metrics?a=b&a=%ff HTTP/1.1", b"POST /health HTTP/1.1",
    b"PRI * HTTP/2.0", b"HEAD /health HTTP/1.1", b"HEAD /v1/models HTTP/1.1",
    b"DELETE /v1/completions HTTP/1.1", b"A" * 300 + b" / HTTP/1.1", b"GET \x00 HTTP/1.1",
)  # fmt: skip
CHUNK_SIZES = (
    b"ffffffffffffffff", b"-1", b"+5", b"0x5", b"", b" 5", b"5 ", b"5;a=b", b"5;" + b"a" * 70_000,
    b"g", b"00000000000000000005", b"5\x00", b"7fffffff", b"5\n", b"5\r",
)  # fmt: skip
TLS_HELLO = b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + bytes(range(160))


@dataclass(frozen=True, slots=True)
class RawCase:
    """What is sent, in pieces, and how the client ends."""

    kind: str
    pieces: tuple[bytes, ...]
    ending: str
    """read: until there is an answer; half: it says at once that it sends no more; reset: it leaves
    without reading.
    """

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)


def raw_case(seed: str) -> RawCase:
    """The case of this seed."""
    choose = random.Random(seed)
    kind = choose.choice(list(KINDS))
    data = KINDS[kind](choose)
    ending = choose.choices(("read", "half", "reset"), (90, 6, 4))[0]
    return RawCase(kind, _split(choose, data), ending)


def request(choose: random.Random) -> bytes:
    """A valid request, with a body or without."""
    if choose.random() < 0.1:
        return _head(b"GET", choose.choice(GETS).encode(), [])
    path, body = choose.choice(BODIES)
    data = json.dumps(body).encode()
    return _with_chunks(path, data, choose) if choose.random() < 0.2 else _post(path, data)


def _head(method: bytes, path: bytes, headers: list[bytes]) -> bytes:
    return b"\r\n".join(
        [method + b" " + path + b" HTTP/1.1", b"host: 127.0.0.1", *headers, b"", b""]
    )


def _post(path: str, body: bytes, *headers: bytes) -> bytes:
    length = b"content-length: %d" % len(body)
    kind = b"content-type: application/json"
    return _head(b"POST", path.encode(), [*headers, kind, length]) + body


def _with_chunks(path: str, body: bytes, choose: random.Random) -> bytes:
    kind = b"content-type: application/json"
    head = _head(b"POST", path.encode(), [kind, b"transfer-encoding: chunked"])
    size = choose.choice((1, 7, 4096))
    chunks = [body[i : i + size] for i in range(0, len(body), size)]
    return head + b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n"


def _bytes_changed(choose: random.Random) -> bytes:
    data = bytearray(request(choose))
    for _ in range(choose.randint(1, 6)):
        at = choose.randrange(len(data) + 1)
        match choose.randrange(5):
            case 0 if at < len(data):
                data[at] ^= 1 << choose.randrange(8)
            case 1 if at < len(data):
                data[at] = choose.randrange(256)
            case 2:
                data[at:at] = choose.choice((b"\r\n", b"\n", b"\0", b" ", b":", b"\r", b'"', b"{"))
            case 3:
                del data[at : at + choose.randint(1, 20)]
            case _:
                data[at:at] = data[choose.randrange(len(data) + 1) :][: choose.randint(1, 200)]
    return bytes(data)


def _truncated(choose: random.Random) -> bytes:
    data = request(choose)
    return data[: choose.randrange(len(data))]


def _spliced(choose: random.Random) -> bytes:
    one, other = request(choose), request(choose)
    return one[: choose.randrange(len(one) + 1)] + other[choose.randrange(len(other) + 1) :]


def _header_added(choose: random.Random) -> bytes:
    line, rest = request(choose).split(b"\r\n", 1)
    added = choose.sample(HEADERS, choose.randint(1, 2))
    return b"\r\n".join([line, *added, rest])


def _line_changed(choose: random.Random) -> bytes:
    line = choose.choice(REQUEST_LINES)
    ending = choose.choice((b"\r\n", b"\r\n", b"\n"))
    headers = b"".join(choose.sample([h + ending for h in HEADERS], choose.randint(0, 1)))
    return line + ending + b"host: 127.0.0.1" + ending + headers + ending


def _chunks_changed(choose: random.Random) -> bytes:
    path, body = choose.choice(BODIES)
    data = _with_chunks(path, json.dumps(body).encode(), choose)
    head, _, chunks = data.partition(b"\r\n\r\n")
    at = choose.randrange(len(chunks) + 1)
    wrong = choose.choice((
        choose.choice(CHUNK_SIZES) + b"\r\nhello\r\n", b"\r\n", b"5\r\nhelloXX", b"5\nhello\n",
        b"0\r\n\r\n", b"0\r\nx: y\r\n\r\n", b"0\r\n" + b"x: y\r\n" * 10_000 + b"\r\n",
        b"1\r\nx\r\n" * 2000,
    ))  # fmt: skip
    end = choose.randrange(at, len(chunks) + 1) if choose.random() < 0.5 else at
    return head + b"\r\n\r\n" + chunks[:at] + wrong + chunks[end:]


def _value_changed(choose: random.Random) -> bytes:
    """A field, known or not, has a strange value; the stated length is right."""
    path, body = choose.choice(BODIES)
    name = choose.choice([*body, "n", "top_p", "user", "unknown", "tools", "response_format"])
    marked = json.dumps({**body, name: "\x00mark"}).encode()
    return _post(path, marked.replace(b'"\\u0000mark"', choose.choice(VALUES)))


def _body_changed(choose: random.Random) -> bytes:
    """The body is not JSON, or in another encoding; the stated length is right."""
    path, fields = choose.choice(BODIES)
    text = json.dumps(fields)
    body = bytearray(
        choose.choice(
            (text.encode(), text.encode(), text.encode("utf-16"), text.encode("utf-8-sig"))
        )
    )
    for _ in range(choose.randint(0, 4)):
        body[choose.randrange(len(body))] = choose.randrange(256)
    cut = len(body) if choose.random() < 0.7 else choose.randrange(len(body))
    return _post(path, bytes(body[:cut]))


def _length_wrong(choose: random.Random) -> bytes:
    path, fields = choose.choice(BODIES)
    body = json.dumps(fields).encode()
    said = max(0, len(body) + choose.choice((-20, -1, 1, 2, 100, 10**9, 2**63)))
    headers = [b"content-type: application/json", b"content-length: %d" % said]
    return _head(b"POST", path.encode(), headers) + body


def _several(choose: random.Random) -> bytes:
    """More than one request at once, or bytes after a whole one."""
    behind = (request, _truncated, lambda _: b"x", lambda _: b"\r\n", _garbage)
    return request(choose) + choose.choice(behind)(choose)


def _garbage(choose: random.Random) -> bytes:
    match choose.randrange(5):
        case 0:
            return choose.randbytes(choose.randint(0, 400))
        case 1:
            return bytes(choose.choices(b"GET /HTP1.0\r\n: ax\0\xff", k=choose.randint(1, 300)))
        case 2:
            return TLS_HELLO[: choose.randint(1, len(TLS_HELLO))]
        case 3:
            return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + choose.randbytes(30)
        case _:
            return choose.choice((b"\r\n", b"\n", b"\0", b" ", b"\r")) * choose.choice(
                (1, 100, 10_000)
            )


KINDS: dict[str, Callable[[random.Random], bytes]] = {
    "valid": request,
    "bytes changed": _bytes_changed,
    "truncated": _truncated,
    "spliced": _spliced,
    "header added": _header_added,
    "request line": _line_changed,
    "chunks": _chunks_changed,
    "value": _value_changed,
    "body": _body_changed,
    "length": _length_wrong,
    "several": _several,
    "garbage": _garbage,
}


def _split(choose: random.Random, data: bytes) -> tuple[bytes, ...]:
    """Mostly whole or in a few pieces; now and then byte by byte."""
    if len(data) < 300 and choose.random() < 0.03:
        return tuple(data[i : i + 1] for i in range(len(data)))
    n_cuts = choose.choices((0, 1, 2, 5), (6, 2, 1, 1))[0]
    cuts = sorted(choose.randrange(len(data) + 1) for _ in range(n_cuts))
    ends = [0, *cuts, len(data)]
    return tuple(data[a:b] for a, b in itertools.pairwise(ends) if a < b)
