"""Replies from a server over HTTP: one POST per reply, its events read as they come.

Knows OpenAI's API as a client does, and works with any server that has it. A Soliton says more
about its tokens, and keeps its answers (`store`) so that they can be branched; they are deleted
when the chat ends.
"""

import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import httpx

from ..terminal import CommandError
from .answer import N_ALTERNATIVES, Answer, ChatSettings, Message, Piece, Statistics
from .wire import events, message_of, pieces, read_numbers

# No limit on the time between two tokens: a long prompt on a slow machine may take minutes.
_TIMEOUT = httpx.Timeout(10.0, read=None)
_REPORTS: dict[str, Any] = {
    "logprobs": True,
    "top_logprobs": N_ALTERNATIVES + 1,
    "stream_options": {"include_usage": True},
}
_SOLITON: dict[str, Any] = {
    **_REPORTS,
    "include": ["probs", "token_ids", "seed", "stop", "speculation"],
    "store": True,
}
_MOST_KEPT = 8
_REFUSALS = (400, 404, 422, 501)


class OverHttp:
    """A source of replies; see `answer.Source`. `model` None: the first that the server lists."""

    def __init__(self, url: str, *, api_key: str | None, model: str | None) -> None:
        base = url.rstrip("/").removesuffix("/v1")
        if "://" not in base:
            base = f"http://{base}"
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        try:
            self._client = httpx.Client(base_url=base, headers=headers, timeout=_TIMEOUT)
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise CommandError(f"--url {url!r} or --api-key is invalid: {error}") from error
        self._url = base
        self._warned: set[str] = set()
        self._kept: deque[str] = deque()
        self.model = model or self._first_model()
        self._props = self._read_props()
        self._is_soliton = str(self._props.get("build_info", "")).startswith("soliton")
        self._reports = _SOLITON if self._is_soliton else _REPORTS

    @property
    def why_no_branch(self) -> str:
        if not self._is_soliton:
            return "/branch needs a Soliton server; this one cannot go on from a token"
        return "the server does not keep this answer (see its --keep-streams); /regen asks again"

    def ask(self, messages: Sequence[Message], settings: ChatSettings) -> "HttpReply":
        body = {"model": self.model, "messages": list(messages), "stream": True}
        body |= settings.sampling
        if settings.max_tokens is not None:
            body["max_completion_tokens"] = settings.max_tokens
        return HttpReply(self, "/v1/chat/completions", body, Statistics(context=self._context))

    def branch(
        self, answer: Answer, at: int, token_id: int | None, settings: ChatSettings
    ) -> "HttpReply":
        body = {name: value for name, value in settings.sampling.items() if name != "seed"}
        body |= {"at": at, "stream": True}
        if token_id is not None:
            body["token_id"] = token_id
        if settings.max_tokens is not None:
            body["max_completion_tokens"] = at + settings.max_tokens
        numbers = Statistics(n_inherited=at, context=self._context)
        return HttpReply(self, f"/v1/streams/{answer.place}/branch", body, numbers)

    def check(self, sampling: Mapping[str, Any]) -> None:
        """The server knows what it allows, and says so in its answer."""

    def defaults(self) -> Mapping[str, Any]:
        settings = self._props.get("default_generation_settings")
        params = settings.get("params") if self._is_soliton and settings else None
        return params if isinstance(params, dict) else {}

    def close(self) -> None:
        with suppress(httpx.HTTPError):  # a server that does not answer is not asked again
            for kept in self._kept:
                self._delete(kept)
        self._client.close()

    def begin(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        """The answer to a POST, its body still to be read. Raises CommandError for an error.

        A server that refuses the reports is asked without them, then and later.
        """
        reports = self._reports if path.startswith("/v1/chat") else {}
        response = self._post(path, {**reports, **body})
        if response.status_code in _REFUSALS and reports:
            plain = self._post(path, body)
            if plain.is_success:
                response.close()
                self._reports = {}
                return plain
            plain.close()
        if response.is_error:
            response.read()
            raise CommandError(_error_text(response))
        return response

    def keep(self, stream_id: str) -> str | None:
        """What `branch` needs of an answer that has this id."""
        if not self._is_soliton:
            return None
        if stream_id not in self._kept:
            self._kept.append(stream_id)
        if len(self._kept) > _MOST_KEPT:
            with suppress(httpx.HTTPError):
                self._delete(self._kept.popleft())
        return stream_id

    def failed(self, error: httpx.HTTPError) -> CommandError:
        return CommandError(f"{self._url}: {error or type(error).__name__}")

    def warn(self, event: Mapping[str, Any]) -> bool:
        """Prints each of the server's warnings once, such as that it ignored a field. Returns
        whether it said that it keeps nothing.
        """
        keeps_nothing = False
        for warning in event.get("warnings") or []:
            text = f"{warning.get('param')}: {warning.get('message')}"
            if warning.get("param") == "store":
                keeps_nothing = True
            elif text not in self._warned:
                self._warned.add(text)
                print(f"soliton: warning: {text}", file=sys.stderr)
        return keeps_nothing

    @property
    def _context(self) -> int | None:
        settings = self._props.get("default_generation_settings")
        length = settings.get("n_ctx") if isinstance(settings, dict) else None
        return length if isinstance(length, int) else None

    def _post(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        request = self._client.build_request("POST", path, json=body)
        try:
            return self._client.send(request, stream=True)
        except httpx.HTTPError as error:
            raise self.failed(error) from error

    def _delete(self, stream_id: str) -> None:
        self._client.delete(f"/v1/streams/{stream_id}", timeout=2.0)

    def _read_props(self) -> dict[str, Any]:
        """What a Soliton or a llama-server says about itself; empty for others."""
        try:
            response = self._client.get("/props", timeout=5.0)
            props = response.json() if response.is_success else {}
        except (httpx.HTTPError, ValueError):
            return {}
        return props if isinstance(props, dict) else {}

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


class HttpReply:
    """A reply of a server; see `answer.Reply`. Closing it hangs up, so the server stops."""

    def __init__(
        self, source: OverHttp, path: str, body: Mapping[str, Any], numbers: Statistics
    ) -> None:
        self._source = source
        self._path = path
        self._body = body
        self._response: httpx.Response | None = None
        self._id: str | None = None
        self.statistics = numbers

    @property
    def place(self) -> object:
        return None if self._id is None else self._source.keep(self._id)

    def __iter__(self) -> Iterator[Piece]:
        source, n_tokens = self._source, 0
        self._response = source.begin(self._path, self._body)
        keeps = True
        try:
            for event in events(self._response.iter_bytes()):
                keeps = keeps and not source.warn(event)
                self._id = event.get("id") if keeps else None
                read_numbers(event, self.statistics)
                for piece in pieces(event):
                    n_tokens += len(piece.tokens)
                    yield piece
        except httpx.HTTPError as error:
            raise source.failed(error) from error
        finally:
            if self.statistics.n_tokens is None and n_tokens:  # stopped before the usage came
                self.statistics.n_tokens = n_tokens

    def close(self) -> None:
        if self._response is not None:
            self._response.close()


def _error_text(response: httpx.Response) -> str:
    try:
        message = message_of(response.json())
    except ValueError:
        message = response.text[:200]
    return f"{response.url} answered {response.status_code}: {message}"
