"""A small Hugging Face Hub on this machine: the few routes that huggingface_hub needs to fetch
models, over real HTTP.
"""

import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit


class Request(NamedTuple):
    """What a client asked for."""

    method: str
    path: str
    range: str | None
    token: str | None


@dataclass
class Repository:
    """A model: its files are those of a directory. The other fields make it misbehave."""

    directory: Path
    revisions: tuple[str, ...] = ("main",)
    token: str | None = None
    """The files are gated: only requests with this token get them."""
    cut: set[str] = field(default_factory=set)
    """Files whose next answer ends in the middle."""
    broken: set[str] = field(default_factory=set)
    """Files that are answered with 500."""
    claimed_bytes: int | None = None
    """The size that the Hub claims for every file of weights."""

    @property
    def commit(self) -> str:
        return hashlib.sha1(str(self.directory).encode()).hexdigest()

    def knows(self, revision: str) -> bool:
        return revision in self.revisions or revision == self.commit

    def info(self, name: str) -> dict[str, Any]:
        files = sorted(path for path in self.directory.rglob("*") if path.is_file())
        siblings = [
            {
                "rfilename": str(file.relative_to(self.directory)),
                "size": self._claimed(file),
                "blobId": "0" * 40,
            }
            for file in files
        ]
        return {"id": name, "modelId": name, "sha": self.commit, "siblings": siblings}

    def _claimed(self, file: Path) -> int:
        claims = self.claimed_bytes is not None and file.suffix == ".safetensors"
        return self.claimed_bytes or 0 if claims else file.stat().st_size


class Hub(http.server.ThreadingHTTPServer):
    """The server; `requests` has every request in the order of arrival."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, Repository] = {}
        self.requests: list[Request] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def fetched(self) -> list[str]:
        """The files whose bytes were asked for, in order."""
        parts = [
            request.path.partition("/resolve/")[2].partition("/")[2]
            for request in self.requests
            if request.method == "GET"
        ]
        return [part for part in parts if part]


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        token = (self.headers["Authorization"] or "").removeprefix("Bearer ") or None
        self.server.requests.append(Request(self.command, path, self.headers["Range"], token))
        if path.startswith("/api/models/"):
            name, _, revision = path.removeprefix("/api/models/").partition("/revision/")
            file = None
        else:
            name, _, rest = path.removeprefix("/").partition("/resolve/")
            revision, _, file = rest.partition("/")
        repository = self.server.repositories.get(name)
        if repository is None and token is None:
            self._send(401, {"X-Error-Message": "Invalid username or password."})
        elif repository is None:
            self._send(404, {"X-Error-Code": "RepoNotFound"})
        elif not repository.knows(revision or "main"):
            self._send(404, {"X-Error-Code": "RevisionNotFound"})
        elif file is None:
            self._send(200, {"Content-Type": "application/json"}, _json(repository.info(name)))
        elif repository.token not in (None, token):
            self._send(403, {"X-Error-Code": "GatedRepo"})
        else:
            self._send_file(repository, file)

    def _send_file(self, repository: Repository, name: str) -> None:
        file = repository.directory / name
        headers = {"X-Repo-Commit": repository.commit}
        if not file.is_file():
            self._send(404, {**headers, "X-Error-Code": "EntryNotFound"})
            return
        data = file.read_bytes()
        headers |= {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "Accept-Ranges": "bytes"}
        if self.command == "GET" and name in repository.broken:
            self._send(500, headers)
            return
        begin = 0
        if wanted := self.headers["Range"]:
            begin = int(wanted.removeprefix("bytes=").partition("-")[0])
            headers["Content-Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
        cut = self.command == "GET" and name in repository.cut
        repository.cut.discard(name if cut else "")
        self._send(206 if begin else 200, headers, data[begin:], cut=cut)

    def _send(
        self, status: int, headers: dict[str, str], body: bytes = b"", *, cut: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = cut


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


@contextmanager
def hub_server() -> Iterator[Hub]:
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
