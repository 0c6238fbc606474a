"""Servers for `soliton chat --url` that are no Soliton: one with a script, one that never ends."""

import http.server
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        if self.path != "/v1/models":
            self.send_error(404)
            return
        self.begin("application/json")
        self.wfile.write(b'{"data": [{"id": "other"}]}')

    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["content-length"])))
        return body

    def begin(self, content_type: str) -> None:
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.end_headers()

    def event(self, content: str, logprobs: Any = None) -> None:
        choice = {"index": 0, "delta": {"content": content}, "logprobs": logprobs}
        self.wfile.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())

    def log_message(self, format: str, *args: object) -> None:
        """Keeps the test's output quiet."""


@contextmanager
def _listening(handler: type[_Handler]) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def endless_server(hung_up: threading.Event) -> Iterator[str]:
    """One that lists a model and never ends a reply by itself; sets `hung_up` when it has to."""

    class Endless(_Handler):
        def do_POST(self) -> None:
            self.body()
            self.begin("text/event-stream")
            try:
                while True:
                    self.event("la ")
                    time.sleep(0.001)
            except OSError:
                hung_up.set()

    with _listening(Endless) as url:
        yield url


@contextmanager
def scripted_server(
    reply: Sequence[tuple[str, Sequence[bytes]]], *, has_logprobs: bool
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """One that always sends `reply`, piece by piece, each with the bytes of its tokens. Without
    `has_logprobs` it answers 400 to who asks for them. Yields the URL and the bodies it was sent.
    """
    bodies: list[dict[str, Any]] = []

    class Scripted(_Handler):
        def do_POST(self) -> None:
            body = self.body()
            bodies.append(body)
            if "logprobs" in body and not has_logprobs:
                self.send_error(400)
                return
            self.begin("text/event-stream")
            for text, tokens in reply:
                self.event(text, {"content": [_entry(each) for each in tokens]})
            self.wfile.write(b"data: [DONE]\n\n")

    with _listening(Scripted) as url:
        yield url, bodies


def _entry(token: bytes) -> dict[str, Any]:
    name = token.decode(errors="replace")
    others = [{"token": " other", "logprob": -0.5, "bytes": list(b" other")}]
    return {"token": name, "logprob": -3.0, "bytes": list(token), "top_logprobs": others}
