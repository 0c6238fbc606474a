"""What a client sees of a failure that no app could report: its replica is gone, or is none.

Owns which form it takes inside of an answer that has begun. Knows no Ray.
"""

import json
from collections.abc import Sequence

from starlette.responses import Response

from ..answer.sse import encode_json, error_event
from ..api.anthropic import errors as anthropic
from ..api.llama import errors as llama
from ..api.ollama import errors as ollama
from ..api.tabby import errors as tabby
from ..errors import EngineFailedError, ServerError


class ReplicaLostError(EngineFailedError):
    """The replica of a request has ended before its answer did."""


class ReplicaNonsenseError(EngineFailedError):
    """What a replica sent is no answer."""


def shaped(path: str, answer: Response) -> Response:
    """An answer with the usual envelope, in the shape of the wire of `path`."""
    for wire in (anthropic, ollama, llama, tabby):
        if wire.is_of_this_wire(path):
            said = wire.answered_error(json.loads(bytes(answer.body)), answer.status_code, "")
            own = ("content-length", "content-type")
            headers = {name: value for name, value in answer.headers.items() if name not in own}
            body = encode_json(said)
            return Response(body, answer.status_code, headers, media_type="application/json")
    return answer


def failed_stream(path: str, headers: Sequence[tuple[bytes, bytes]], error: ServerError) -> bytes:
    """What ends an answer that has begun; empty if nothing of its form can."""
    media_type = dict(headers).get(b"content-type", b"").partition(b";")[0].strip()
    if media_type == b"application/x-ndjson":
        return ollama.error_line(error)
    if media_type != b"text/event-stream":
        return b""
    if anthropic.is_of_this_wire(path):
        return anthropic.error_event(error)
    if llama.is_of_this_wire(path):
        return llama.error_event(error)
    return error_event(error)
