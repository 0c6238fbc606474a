"""Chat with a server over HTTP: one POST per reply, its Server-Sent Events read as they come.

Knows OpenAI's API as a client does; works with any server that has it.
"""

import json
import sys
from collections.abc import Generator, Iterator
from typing import Any

import httpx

from .terminal import CommandError

# No limit on the time between two tokens: a long prompt on a slow machine may take minutes.
_TIMEOUT = httpx.Timeout(10.0, read=None)


class RemoteChat:
    """Replies from a server. If `model` is None, it is the first one that the server lists."""

    def __init__(
        self, url: str, *, api_key: str | None, model: str | None, options: dict[str, Any]
    ) -> None:
        base = url.rstrip("/").removesuffix("/v1")
        if "://" not in base:
            base = f"http://{base}"
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        try:
            self._client = httpx.Client(base_url=base, headers=headers, timeout=_TIMEOUT)
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise CommandError(f"--url {url!r} or --api-key is invalid: {error}") from error
        self._url = base
        self._options = options
        self._warned: set[str] = set()
        self.model = model or self._first_model()

    def reply(self, messages: list[dict[str, Any]]) -> Generator[str, None, None]:
        """Pieces of the assistant's text. Closing the iterator hangs up, so the server stops.

        Raises CommandError for anything that is not a reply.
        """
        body = {"model": self.model, "messages": messages, "stream": True, **self._options}
        try:
            with self._client.stream("POST", "/v1/chat/completions", json=body) as response:
                if response.is_error:
                    response.read()
                    raise CommandError(_error_text(response))
                for event in _events(response.iter_bytes()):
                    self._warn(event)
                    yield from _delta_text(event)
        except httpx.HTTPError as error:
            raise CommandError(f"{self._url}: {error or type(error).__name__}") from error

    def _warn(self, event: dict[str, Any]) -> None:
        """Prints each of the server's warnings once, such as that it ignored a field."""
        for warning in event.get("warnings", []):
            text = f"{warning.get('param')}: {warning.get('message')}"
            if text not in self._warned:
                self._warned.add(text)
                print(f"soliton: warning: {text}", file=sys.stderr)

    def _first_model(self) -> str:
        try:
            response = self._client.get("/v1/models")
            if response.is_error:
                raise CommandError(_error_text(response))
            return str(response.json()["data"][0]["id"])
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise CommandError(f"{self._url}: {error or type(error).__name__}") from error
        except (ValueError, LookupError, TypeError) as error:
            raise CommandError(f"{self._url}/v1/models did not return a list of models") from error


def _events(stream: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    """The JSON of each `data:` line up to `[DONE]`. LF alone ends a line: JSON may hold U+2028."""
    rest = b""
    for block in stream:
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            data = line.removeprefix(b"data:").strip()
            if data == b"[DONE]":
                return
            if line.startswith(b"data:"):
                yield _json_object(data)


def _json_object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise CommandError(f"the server sent an event that is not JSON: {data[:80]!r}") from error
    if not isinstance(value, dict):
        raise CommandError(f"the server sent an event that is not an object: {data[:80]!r}")
    return value


def _delta_text(event: dict[str, Any]) -> Iterator[str]:
    if "error" in event:
        raise CommandError(f"the server reported an error: {_message(event)}")
    for choice in event.get("choices", []):
        content = choice.get("delta", {}).get("content")
        if content:
            yield content


def _error_text(response: httpx.Response) -> str:
    try:
        message = _message(response.json())
    except ValueError:
        message = response.text[:200]
    return f"{response.url} answered {response.status_code}: {message}"


def _message(body: Any) -> str:
    error = body.get("error", body) if isinstance(body, dict) else body
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)
