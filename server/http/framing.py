"""Where a request begins and ends in the bytes of a connection, by the letter of HTTP/1.1.

Two programs that disagree about the end of a request can be made to disagree about who sent the
next one. So nothing here is lenient: anything ambiguous is refused before the HTTP parser sees it.
Where the standard allows two forms (a whole URL as the target, empty lines around a request), the
parser gets only one of them. Pure: knows no socket, no clock and no meaning of a request.
"""

import re
from collections.abc import Callable

MAX_HEAD_BYTES = 16 * 1024
MAX_REQUEST_LINE_BYTES = 8 * 1024
MAX_HEADERS = 256
# Each chunk costs the event loop a few microseconds, however small it is.
MAX_CHUNKS = 16384
MAX_EMPTY_LINES = 16
_MAX_CHUNK_LINE_BYTES = 256

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
# Possessive, so that a line that does not match fails in one pass.
_REQUEST_LINE = re.compile(rb"(%b++) ([\x21-\x7e]++) HTTP/1\.([01])" % _TOKEN)
_WHOLE_URL = re.compile(rb"(?i:https?)://([0-9A-Za-z.:_\[\]-]++)((?:[/?][^#]*+)?)")
_EMPTY_LINES = re.compile(rb"(?:\r\n)*+")
_VALUE = rb"[\t\x20-\x7e\x80-\xff]"
_FIELDS = re.compile(rb"(?:%b++:%b*+\r\n)*+" % (_TOKEN, _VALUE))
# The fields that matter here, in lower case, each after the end of a line.
_OURS = re.compile(rb"\r\n(host|content-length|transfer-encoding|upgrade):[ \t]*+([^\r]*+)")
_HOST = re.compile(rb"^host:[^\r]*\r\n", re.MULTILINE | re.IGNORECASE)
_UPGRADE = re.compile(rb"^upgrade:[^\r]*\r\n", re.MULTILINE | re.IGNORECASE)
_LENGTH = re.compile(rb"[0-9]{1,18}")
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,8})(?:;%b*+)?" % _VALUE)
# Bytes that no head can contain: no need to wait for the rest of it.
_FOREIGN = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\r(?=[^\n])")


class FramingError(Exception):
    """A request that is refused unread; the text names the broken rule and quotes nothing of it."""

    def __init__(self, message: str, *, status: int = 400, code: str = "invalid_http") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class RequestFraming:
    """One request, from its first byte to its last, and an optional empty line after it."""

    def __init__(self, head: bytes = b"") -> None:
        """`head`: what has arrived of it already; nothing, or half of an empty line."""
        self.started = False
        """Whether its first byte has arrived; empty lines before it do not count."""
        self.has_head = False
        self._head = head
        self._n_empty_lines = 0
        self._behind = b""  # the part of an empty line that has arrived after the request
        self._n_scanned = 0
        self._n_left = 0  # bytes of a body whose length is known
        self._chunks: _Chunks | None = None
        self._take: Callable[[bytes], tuple[bytes, bytes]] | None = self._take_head

    @property
    def complete(self) -> bool:
        return self._take is None

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        """Divides the next bytes of the connection: those of this request, those after it.

        The first part is for the parser. The head is as sent, except that Upgrade is removed and a
        whole URL becomes a path. The body has as few chunks as possible, and no chunk extensions or
        trailers. An empty line directly after the request is in neither part. Raises FramingError.
        """
        taken = b""
        while data and self._take is not None:
            part, data = self._take(data)
            taken = taken + part if taken else part
        return taken, self._pass_over_end(data) if data else data

    def next(self) -> "RequestFraming":
        """The request after this one, which is complete."""
        return RequestFraming(self._behind if self._behind == b"\r" else b"")

    def _pass_over_end(self, data: bytes) -> bytes:
        """Drops an extra line end after the body, as some clients send it. It belongs neither to
        the body nor to the next request.
        """
        while data and data[:1] == b"\r\n"[len(self._behind) :][:1]:
            self._behind += data[:1]
            data = data[1:]
        return data

    def _take_head(self, data: bytes) -> tuple[bytes, bytes]:
        if self._head:
            data = self._head + data
        if not self.started:
            data = self._pass_over_empty_lines(data)
            if data in (b"", b"\r"):
                self._head = data
                return b"", b""
            self.started = True
        end = data.find(b"\r\n\r\n", max(0, self._n_scanned - 3))
        if end < 0:
            self._check_unfinished(data)
            self._head = data
            self._n_scanned = len(data)
            return b"", b""
        self._head = b""
        end_of_line = data.find(b"\r\n")
        line = _check_request_line(data[:end_of_line])
        if end + 4 > MAX_HEAD_BYTES:
            raise _too_many_headers()
        has_upgrade = self._check_fields(data[end_of_line : end + 2], line[3])
        self.has_head = True
        head, rest = data[: end + 4], data[end + 4 :]
        # This server offers no other protocol, and the parser would stop reading to switch.
        head = _UPGRADE.sub(b"", head) if has_upgrade else head
        return head if line[2].startswith(b"/") else _in_one_form(head, line), rest

    def _pass_over_empty_lines(self, data: bytes) -> bytes:
        match = _EMPTY_LINES.match(data)
        assert match is not None
        self._n_empty_lines += match.end() // 2
        if self._n_empty_lines > MAX_EMPTY_LINES:
            raise FramingError(f"more than {MAX_EMPTY_LINES} empty lines come before the request")
        return data[match.end() :]

    def _check_unfinished(self, buffer: bytes) -> None:
        """Refuse what can no longer become a valid head."""
        if _FOREIGN.search(buffer, max(0, self._n_scanned - 1)):
            raise FramingError(
                "a line of the head has a control character, or does not end in CRLF"
            )
        line, end, _ = buffer.partition(b"\r\n")
        if end or len(line) > MAX_REQUEST_LINE_BYTES:
            _check_request_line(line)
        if len(buffer) > MAX_HEAD_BYTES:
            raise _too_many_headers()

    def _check_fields(self, fields: bytes, version: bytes) -> bool:
        """Find out how long the body is. Returns whether a field asks for another protocol."""
        if not _FIELDS.fullmatch(fields, 2):
            raise FramingError("a header does not have the form `name: value` on one line")
        if fields.count(b"\r\n") - 1 > MAX_HEADERS:
            raise _too_many_headers()
        hosts, lengths, codings, has_upgrade = 0, [], [], False
        for name, value in _OURS.findall(fields.lower()):
            if name == b"host":
                hosts += 1
            elif name == b"content-length":
                lengths.append(value.rstrip(b" \t"))
            elif name == b"transfer-encoding":
                codings.append(value.rstrip(b" \t"))
            else:
                has_upgrade = True
        if hosts > 1 or (not hosts and version == b"1"):
            raise FramingError("the request must have exactly one Host header")
        self._take = self._body_reader(version, lengths, codings)
        return has_upgrade

    def _body_reader(
        self, version: bytes, lengths: list[bytes], codings: list[bytes]
    ) -> Callable[[bytes], tuple[bytes, bytes]] | None:
        if codings:
            if lengths or version == b"0" or codings != [b"chunked"]:
                raise FramingError(
                    "transfer-encoding must be `chunked` alone, in HTTP/1.1, without content-length"
                )
            self._chunks = _Chunks()
            return self._take_chunks
        if len(lengths) > 1 or (lengths and not _LENGTH.fullmatch(lengths[0])):
            raise FramingError("content-length must be one number of at most 18 digits")
        self._n_left = int(lengths[0]) if lengths else 0
        return self._take_length if self._n_left else None

    def _take_length(self, data: bytes) -> tuple[bytes, bytes]:
        part, rest = data[: self._n_left], data[self._n_left :]
        self._n_left -= len(part)
        if not self._n_left:
            self._take = None
        return part, rest

    def _take_chunks(self, data: bytes) -> tuple[bytes, bytes]:
        assert self._chunks is not None
        part, rest = self._chunks.take(data)
        if self._chunks.complete:
            self._take = None
        return part, rest


class _Chunks:
    """A chunked body, from its first byte to the empty line after its trailers."""

    def __init__(self) -> None:
        self.complete = False
        self._rest = b""  # the beginning of a line
        self._n_left = 0  # bytes of the current chunk's content
        self._at_chunk_end = False
        self._n_chunks = 0
        self._n_trailer_bytes: int | None = None  # None: before the last chunk

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        """Returns the content as one chunk, with the end of the body if it is reached, and the
        bytes after the body.
        """
        data = self._rest + data
        pieces: list[bytes] = []
        start = 0
        while start < len(data) and not self.complete:
            if self._n_left:
                piece = data[start : start + self._n_left]
                pieces.append(piece)
                self._n_left -= len(piece)
                start += len(piece)
                continue
            end = data.find(b"\r\n", start)
            if end < 0:
                break
            self._take_line(data[start:end])
            start = end + 2
        content = b"".join(pieces)
        framed = b"%x\r\n%b\r\n" % (len(content), content) if content else b""
        if self.complete:
            return framed + b"0\r\n\r\n", data[start:]
        self._rest = data[start:]
        self._check_rest()
        return framed, b""

    def _take_line(self, line: bytes) -> None:
        if self._at_chunk_end:
            if line:
                raise _bad_chunk()
            self._at_chunk_end = False
        elif self._n_trailer_bytes is None:
            self._take_size(line)
        else:
            self._take_trailer(line)

    def _take_size(self, line: bytes) -> None:
        match = _CHUNK_LINE.fullmatch(line)
        if match is None or len(line) > _MAX_CHUNK_LINE_BYTES:
            raise _bad_chunk()
        self._n_chunks += 1
        if self._n_chunks > MAX_CHUNKS:
            raise FramingError(f"the body has more than {MAX_CHUNKS:,} chunks")
        self._n_left = int(match[1], 16)
        self._at_chunk_end = bool(self._n_left)
        if not self._n_left:
            self._n_trailer_bytes = 0

    def _take_trailer(self, line: bytes) -> None:
        assert self._n_trailer_bytes is not None
        self._n_trailer_bytes += len(line) + 2
        if self._n_trailer_bytes > MAX_HEAD_BYTES:
            raise _too_many_headers()
        if line and not _FIELDS.fullmatch(line + b"\r\n"):
            raise FramingError("a trailer does not have the form `name: value` on one line")
        self.complete = not line

    def _check_rest(self) -> None:
        """Refuse the beginning of a line that is already too long or invalid."""
        if self._at_chunk_end:
            limit = 1
        elif self._n_trailer_bytes is None:
            limit = _MAX_CHUNK_LINE_BYTES
        else:
            limit = MAX_HEAD_BYTES
        if len(self._rest) > limit or _FOREIGN.search(self._rest):
            raise _bad_chunk()


def _check_request_line(line: bytes) -> re.Match[bytes]:
    """Matches the method, the target and the second digit of the version."""
    if len(line) > MAX_REQUEST_LINE_BYTES:
        raise _long_request_line()
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        raise FramingError("the request does not begin with `METHOD target HTTP/1.1`")
    if match[1] == b"CONNECT":
        raise FramingError("CONNECT is not supported")
    return match


def _in_one_form(head: bytes, line: re.Match[bytes]) -> bytes:
    """The head with a path instead of a whole URL, whose host replaces that of the header."""
    method, target = line[1], line[2]
    if target == b"*" and method == b"OPTIONS":
        return head
    url = _WHOLE_URL.fullmatch(target)
    if url is None:
        raise FramingError("the target is neither a path nor an http URL")
    host, path = url[1], url[2]
    if not path.startswith(b"/"):
        path = b"*" if method == b"OPTIONS" and not path else b"/" + path
    fields = _HOST.sub(b"", head[line.end() + 2 :])
    return b"%b %b HTTP/1.%b\r\nhost: %b\r\n%b" % (method, path, line[3], host, fields)


def _bad_chunk() -> FramingError:
    return FramingError(
        "a chunk must be its hexadecimal size and its content, each on its own line"
    )


def _long_request_line() -> FramingError:
    return FramingError(
        f"the request line is longer than {MAX_REQUEST_LINE_BYTES:,} bytes",
        status=414,
        code="uri_too_long",
    )


def _too_many_headers() -> FramingError:
    return FramingError(
        f"the headers are too many or too long: at most {MAX_HEADERS}, with {MAX_HEAD_BYTES:,} "
        "bytes in all",
        status=431,
        code="headers_too_large",
    )
