"""Where the examples stand in the published contract: beside the schema of what they show.

Owns the errors that every route may answer with, and how the events of an example are written.
"""

import json
from collections.abc import Sequence
from typing import Any

from ..answer.sse import named_event
from .anthropic import errors as anthropic
from .examples import ANSWERS, EXAMPLES, LINES, MODEL, NAMED, Example
from .llama import errors as llama
from .ollama import errors as ollama
from .responses.events import broken_off
from .tabby import errors as tabby

Document = dict[str, Any]

_STREAMS = ("text/event-stream", "application/x-ndjson")

# Errors that are the same on all routes -> what they stand below in the document.
ERRORS = {
    "invalid_json": (400, "The body is no JSON"),
    "wrong_query": (400, "A value out of its range"),
    "invalid_api_key": (401, "No API key"),
    "origin_not_allowed": (403, "A web page of another origin asks a server without keys"),
    "model_not_found": (404, "Another model"),
    "wrong_state": (409, "The stream has ended"),
    "body_too_large": (413, "A body that is too large"),
    "unsupported_media_type": (415, "A body of another type"),
    "host_not_allowed": (421, "A Host header with another name"),
    "queue_full": (429, "As many wait as may wait"),
    "engine_error": (500, "The engine failed"),
    "not_implemented": (501, "This server does not do that"),
    "unavailable": (503, "The server starts or ends"),
    "first_token_timeout": (504, "The first token took too long"),
}


def add_examples(document: Document) -> None:
    """Put every example where it belongs in an OpenAPI document, in place."""
    answers = json.loads(ANSWERS.read_text())
    for example in EXAMPLES:
        _add_example(document, example, answers[example.path][example.name])
    _add_infill(document)
    document["components"]["examples"] = {
        code: {"summary": summary, "value": answers["errors"][code]}
        for code, (_, summary) in ERRORS.items()
    }
    for path, operations in document["paths"].items():
        for operation in operations.values():
            _add_errors(operation, path, answers["errors"])


def _add_example(document: Document, example: Example, answer: Any) -> None:
    operation = document["paths"][example.route or example.path][example.verb.lower()]
    if example.body is not None and "requestBody" in operation:
        request = operation["requestBody"]["content"]["application/json"]
        _named(request)[example.name] = {"summary": example.summary, "value": example.body}
    for parameter in operation.get("parameters", ()):
        if parameter["name"] == "model_id":
            parameter["example"] = MODEL
    content = operation["responses"][str(example.status)]["content"]
    if example.path in LINES and example.streamed:
        text = "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in answer)
        named = _named(content["application/x-ndjson"])
        named[example.name] = {"summary": example.summary, "value": text}
    elif example.streamed:
        _named(content["text/event-stream"])[example.name] = {
            "summary": example.summary,
            "value": _events(
                [*answer, *example.end],
                numbered=example.numbered,
                named=example.named,
            ),
        }
    else:
        _named(_only_media(content))[example.name] = {"summary": example.summary, "value": answer}


def _add_infill(document: Document) -> None:
    """The bundled model was not made to fill in; an answer has the form of that of /completion."""
    content, other = (
        document["paths"][path]["post"]["responses"]["200"]["content"]
        for path in ("/infill", "/completion")
    )
    for kind, media in content.items():
        _named(media).update(other[kind]["examples"])


def _events(data: Sequence[Any], *, numbered: bool, named: bool) -> str:
    events = [_event(one, named=named) for one in data]
    return "".join(f"id: {i}\n{one}" if numbered else one for i, one in enumerate(events, 1))


def _event(data: Any, *, named: bool) -> str:
    """As it is sent."""
    if named:
        return named_event(data["type"], data).decode()
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    return f"data: {text}\n\n"


def _only_media(content: Document) -> Document:
    """Of an answer that is no stream."""
    (media,) = (value for name, value in content.items() if name not in _STREAMS)
    found: Document = media
    return found


def _add_errors(operation: Document, path: str, answers: Document) -> None:
    for code, (status, _) in ERRORS.items():
        response = operation["responses"].get(str(status))
        fits = status != 400 or (code == "invalid_json") == ("requestBody" in operation)
        if response and fits:
            named = _named(response["content"]["application/json"])
            named[code] = {"$ref": f"#/components/examples/{code}"}
            value = _in_shape(path, answers[code], status)
            if value is not answers[code]:
                named[code] = {"summary": ERRORS[code][1], "value": value}
    events = operation["responses"]["200"]["content"].get("text/event-stream")
    if events:
        # On that route an engine that fails is a state of the response.
        code = "unavailable" if path == "/v1/responses" else "engine_error"
        status, summary = ERRORS[code]
        said = _in_shape(path, answers[code], status)
        if path == "/v1/responses":
            said = {"type": "error", "sequence_number": 3, **broken_off(said)}
        _named(events)[code] = {
            "summary": summary,
            "value": _event(said, named=path in NAMED),
        }


def _in_shape(path: str, envelope: Document, status: int) -> Document:
    """The error as the route of that path answers it."""
    if anthropic.is_of_this_wire(path):
        return anthropic.shaped(envelope, status)
    for wire in (ollama, llama, tabby):
        if wire.is_of_this_wire(path):
            said: Document = wire.answered_error(envelope, status, "")
            return said
    return envelope


def _named(media: Document) -> Document:
    examples: Document = media.setdefault("examples", {})
    return examples
