"""The published contract: what FastAPI says of the routes, made true.

Owns what the framework does not know: the events of a stream, the examples, that no 422 is sent.
"""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from typing_extensions import override

from ..schema.anthropic_answer import MESSAGE_EVENTS
from ..schema.chat import ChatCompletionChunk
from ..schema.completions import Completion
from ..schema.errors import ErrorResponse
from ..schema.llama_completion import ChosenFields, LlamaCompletion
from ..schema.llama_slots import LlamaError
from ..schema.responses_events import RESPONSE_EVENTS
from ..schema.score import Scores
from .contract_examples import add_examples
from .examples import LINES, WITHOUT_DONE

Document = dict[str, Any]

# Route -> the schemas of its events.
_EVENTS: dict[str, tuple[type[BaseModel], ...]] = {
    "/v1/completions": (Completion, ErrorResponse),
    "/v1/chat/completions": (ChatCompletionChunk, ErrorResponse),
    "/v1/responses": RESPONSE_EVENTS,
    "/completion": (LlamaCompletion, ChosenFields, LlamaError),
    "/infill": (LlamaCompletion, ChosenFields, LlamaError),
    "/v1/messages": MESSAGE_EVENTS,
    "/v1/score": (Scores, ErrorResponse),
}
_STREAM = (
    "Server-sent events. An event is one line, `data: ` and JSON, and a blank line. {end} A line "
    "that begins with `:` is a comment, which keeps a silent connection open."
)
_DONE = (
    "Behind the last one stands `data: [DONE]`; a stream that fails ends with an event that is an "
    "error, and without it."
)
_STOP = "The last one has `stop: true`; a stream that fails ends with an event that is an error."
_NAMED = (
    "Before it stands a line `event: ` and the name that is also its `type`. The last one is "
    "message_stop; a stream that fails ends with the event `error`."
)
_STATES = (
    "Before it stands a line `event: ` and the name that is also its `type`. The last one is "
    "response.completed, response.incomplete, response.failed, or the event `error`."
)
_ENDS = {
    "/completion": _STOP,
    "/infill": _STOP,
    "/v1/messages": _NAMED,
    "/v1/responses": _STATES,
}


class ContractApp(FastAPI):
    """FastAPI whose document says what is sent."""

    @override
    def openapi(self) -> Document:
        if not self.openapi_schema:
            document = get_openapi(
                title=self.title,
                version=self.version,
                description=self.description,
                routes=self.routes,
            )
            _drop_framework_errors(document)
            _describe_streams(document)
            add_examples(document)
            self.openapi_schema = document
        return self.openapi_schema


def _drop_framework_errors(document: Document) -> None:
    """Remove the 422 that FastAPI documents and this app never sends."""
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)


def _describe_streams(document: Document) -> None:
    models = {model for events in _EVENTS.values() for model in events}
    ordered = sorted(models, key=lambda model: model.__name__)
    _, definitions = models_json_schema(
        [(model, "serialization") for model in ordered],
        ref_template="#/components/schemas/{model}",
    )
    schemas = document["components"]["schemas"]
    for name, schema in definitions["$defs"].items():
        schemas.setdefault(name, schema)
    for path, events in _EVENTS.items():
        content = document["paths"][path]["post"]["responses"]["200"]["content"]
        has_done = path not in WITHOUT_DONE
        described = _STREAM.format(end=_ENDS.get(path, _DONE))
        content["text/event-stream"] = {
            "schema": {"type": "string", "description": described},
            # The itemSchema of OpenAPI 3.2, whose words 3.1 does not have yet.
            "x-itemSchema": {"oneOf": [_event(events), *([_LAST_EVENT] if has_done else [])]},
        }

    for path in LINES:
        content = document["paths"][path]["post"]["responses"]["200"]["content"]
        references = [
            {"$ref": f"#/components/schemas/{name}"} for name in ("OllamaAnswer", "OllamaError")
        ]
        text = "Lines of JSON. The last one has `done: true`, or is an error."
        content["application/x-ndjson"] = {
            "schema": {"type": "string", "description": text},
            "x-itemSchema": {"oneOf": references},
        }


_LAST_EVENT: Document = {
    "title": "The end",
    "type": "object",
    "required": ["data"],
    "properties": {"data": {"const": "[DONE]"}},
}


def _event(models: tuple[type[BaseModel], ...]) -> Document:
    references = [{"$ref": f"#/components/schemas/{model.__name__}"} for model in models]
    data = {
        "type": "string",
        "contentMediaType": "application/json",
        # Chosen fields may be all of them.
        "contentSchema": {"anyOf" if ChosenFields in models else "oneOf": references},
    }
    return {
        "title": "An event",
        "type": "object",
        "required": ["data"],
        "properties": {"data": data},
    }
