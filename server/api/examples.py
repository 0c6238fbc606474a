"""The examples of the published contract: requests, and what the bundled model answers.

Owns the requests. The answers lie beside it, in examples.json; scripts/api_examples.py sends the
requests and writes it. contract_examples.py knows where they stand in the document.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

ANSWERS = Path(__file__).parent / "examples.json"
MODEL = "soliton-default"


class Example(NamedTuple):
    """A request to an ordinary server; without a body it is a GET, unless `method` says more."""

    path: str
    name: str
    summary: str
    body: dict[str, Any] | list[Any] | None = None
    status: int = 200
    method: str = ""
    route: str = ""
    """In the document, if `path` is that of another stream."""

    @property
    def verb(self) -> str:
        return self.method or ("GET" if self.body is None else "POST")

    def url(self, ids: Mapping[str, str]) -> str:
        """`ids`: of the last answers that were kept, by the parameter of a path."""
        return self.path.format(model_id=MODEL, **ids)

    @property
    def numbered(self) -> bool:
        """Whether each event has its number before it."""
        return self.path.endswith("/events")

    @property
    def end(self) -> tuple[str, ...]:
        """What stands behind the last event."""
        return () if self.named or self.path in (*WITHOUT_DONE, *LINES) else ("[DONE]",)

    @property
    def streamed(self) -> bool:
        asked = isinstance(self.body, dict) and bool(self.body.get("stream"))
        asked = asked or "stream=true" in self.path
        return (asked or self.numbered) and self.status == 200

    @property
    def named(self) -> bool:
        """Whether each event has a name."""
        return self.path.startswith(NAMED)


# Routes whose last event says that it is the last, and no [DONE] stands behind it.
WITHOUT_DONE = ("/completion", "/infill", "/v1/messages", "/v1/responses")
# Routes whose events have names, and the beginnings of others.
NAMED = ("/v1/messages", "/v1/responses")
# Routes whose streams are lines, not events.
LINES = ("/api/chat", "/api/generate")
# Routes that need an admin key.
LOAD, UNLOAD = "/v1/models/load", "/v1/models/unload"

_STORY = {"model": MODEL, "prompt": "Once upon a time", "temperature": 0}
_LLAMA = {"prompt": "One day", "temperature": 0, "seed": 7}
_HELLO = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Hello!"}],
    "temperature": 0,
}
_ASKED = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Is it warm in Rome?"}],
    "temperature": 1,
}
_COUNTED = {"model": MODEL, "messages": [{"role": "user", "content": "Hello!"}]}
_MESSAGE = {**_COUNTED, "temperature": 0}
_ASKED_RESPONSE = {"model": MODEL, "input": "Hello!"}
_RESPONSE = {**_ASKED_RESPONSE, "temperature": 0, "store": False}
_CLOCK_TOOL = {"type": "function", "name": "clock"}
_OLLAMA = {"model": MODEL, "stream": False, "options": {"temperature": 0, "num_predict": 4}}
_CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
_WEATHER = {
    "type": "function",
    "function": {"name": "weather", "description": "The weather now.", "parameters": _CITY},
}
_CLOCK = {"type": "function", "function": {"name": "clock"}}
_TOKENS = [587, 564, 274, 446]

_STREAM = "/v1/streams/{stream_id}"
_SLOT, _SLOTS = "/slots/0?action={}", "/slots/{id_slot}"
_CHAT = "/v1/chat/completions/{completion_id}"
_STORED = "/v1/responses/{response_id}"

# In the order in which they are sent: what a prompt shares with an earlier one is cached.
EXAMPLES = (
    Example("/v1/completions", "text", "A text goes on", {**_STORY, "max_tokens": 4}),
    Example("/metrics", "excerpt", "Some of the lines of a server that has had one request"),
    Example(
        "/v1/completions",
        "logprobs",
        "With the prompt and probabilities",
        {**_STORY, "prompt": "One day", "max_tokens": 1, "logprobs": 2, "echo": True},
    ),
    Example(
        "/v1/completions",
        "metadata",
        "With more about each token, the choice and the request",
        {
            **_STORY,
            "max_tokens": 5,
            "stop": " a",
            "include": ["token_ids", "probs", "rank", "stop", "cache", "timings"],
        },
    ),
    Example(
        "/v1/completions",
        "warnings",
        "With a field that this server does not know",
        {**_STORY, "max_tokens": 1, "smoothing_curve": 2},
    ),
    Example(
        "/v1/completions",
        "stream",
        "Streamed",
        {**_STORY, "max_tokens": 2, "stream": True, "stream_options": {"include_usage": True}},
    ),
    Example(
        "/v1/completions",
        "field",
        "A value out of its range",
        {**_STORY, "temperature": -1},
        400,
    ),
    Example(
        "/v1/completions",
        "context",
        "More than the context holds",
        {**_STORY, "max_tokens": 100_000},
        400,
    ),
    Example(
        "/v1/completions",
        "strict",
        "A field that would have no effect, with `strict`",
        {**_STORY, "smoothing_curve": 2, "strict": True},
        400,
    ),
    Example("/v1/chat/completions", "reply", "A reply", {**_HELLO, "max_completion_tokens": 3}),
    Example(
        "/v1/chat/completions",
        "logprobs",
        "With probabilities and more about each token",
        {
            **_HELLO,
            "max_completion_tokens": 1,
            "logprobs": True,
            "top_logprobs": 2,
            "include": ["token_ids", "probs", "entropy", "margin", "draft"],
        },
    ),
    Example(
        "/v1/chat/completions",
        "tool_call",
        "A tool has to be called",
        {**_ASKED, "seed": 6, "tools": [_WEATHER], "tool_choice": "required"},
    ),
    Example(
        "/v1/chat/completions",
        "json_schema",
        "The reply follows a schema",
        {
            **_ASKED,
            "seed": 11,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "city", "schema": _CITY},
            },
        },
    ),
    Example(
        "/v1/chat/completions",
        "stream",
        "Streamed",
        {
            **_HELLO,
            "max_completion_tokens": 2,
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    ),
    Example(
        "/v1/chat/completions",
        "tool_call_stream",
        "A call, streamed",
        {
            **_ASKED,
            "seed": 4,
            "tools": [_CLOCK],
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "stream": True,
        },
    ),
    Example(
        "/v1/chat/completions",
        "message",
        "A message that cannot be served",
        {**_HELLO, "messages": [{"role": "tool", "content": "22 degrees"}]},
        400,
    ),
    Example(
        "/v1/chat/completions",
        "context",
        "More than the context holds",
        {**_HELLO, "max_completion_tokens": 100_000},
        400,
    ),
    Example(
        "/v1/score",
        "texts",
        "Which name is likelier",
        {"model": MODEL, "prompt": "A girl named", "continuations": [" Lily", " Bob"]},
    ),
    Example(
        "/v1/score",
        "stream",
        "Streamed",
        {
            "model": MODEL,
            "prompt": "A girl named",
            "continuations": [" Lily", " Bob"],
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    ),
    Example(
        "/v1/score",
        "empty",
        "A continuation without tokens",
        {"model": MODEL, "prompt": "A girl named", "continuations": [" Lily", ""]},
        400,
    ),
    Example(
        "/v1/estimate",
        "prompt",
        "Before a completion",
        {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 20},
    ),
    Example(
        "/completion", "text", "As llama-server is asked", {**_LLAMA, "n_predict": 1, "n_probs": 2}
    ),
    Example(
        "/completion",
        "stream",
        "A text that is streamed",
        {**_LLAMA, "n_predict": 2, "stream": True},
    ),
    Example("/completion", "wrong", "A field is wrong", {**_LLAMA, "temperature": -1}, status=400),
    Example(
        "/infill",
        "unsupported",
        "A model that was not made to fill in",
        {"input_prefix": "One day, ", "input_suffix": " was happy.", "n_predict": 4},
        status=501,
    ),
    Example("/v1/messages", "text", "As Anthropic is asked", {**_MESSAGE, "max_tokens": 4}),
    Example(
        "/v1/messages",
        "stream",
        "A message that is streamed",
        {**_MESSAGE, "max_tokens": 2, "stream": True},
    ),
    Example(
        "/v1/messages", "wrong", "A field is wrong", {**_MESSAGE, "temperature": -1}, status=400
    ),
    Example("/v1/messages/count_tokens", "count", "How long the prompt is", _COUNTED),
    Example("/api/chat", "chat", "As Ollama is asked", {**_COUNTED, **_OLLAMA}),
    Example(
        "/api/chat",
        "wrong",
        "A field is wrong",
        {**_COUNTED, **_OLLAMA, "options": {"temperature": -1}},
        status=400,
    ),
    Example("/api/generate", "prompt", "As Ollama is asked", {"prompt": "Hello!", **_OLLAMA}),
    Example(
        "/api/chat",
        "stream",
        "A chat that is streamed",
        {**_COUNTED, **_OLLAMA, "stream": True, "options": {"num_predict": 2, "temperature": 0}},
    ),
    Example(
        "/api/generate",
        "stream",
        "A text that is streamed",
        {"prompt": "Once", **_OLLAMA, "raw": True, "stream": True},
    ),
    Example("/v1/responses", "response", "A response", {**_RESPONSE, "max_output_tokens": 3}),
    Example(
        "/v1/responses",
        "logprobs",
        "With probabilities and more about each token",
        {
            **_RESPONSE,
            "max_output_tokens": 1,
            "top_logprobs": 2,
            "include": ["message.output_text.logprobs", "token_ids", "entropy", "cache"],
        },
    ),
    Example(
        "/v1/responses",
        "tool_call",
        "A tool has to be called",
        {
            **_RESPONSE,
            "temperature": 1,
            "seed": 4,
            "tools": [_CLOCK_TOOL],
            "tool_choice": "required",
        },
    ),
    Example(
        "/v1/responses",
        "stream",
        "A response that is streamed",
        {**_RESPONSE, "max_output_tokens": 2, "stream": True},
    ),
    Example(
        "/v1/responses",
        "refused",
        "What this server cannot do",
        {**_RESPONSE, "tools": [{"type": "file_search"}]},
        status=400,
    ),
    Example("/v1/responses/input_tokens", "count", "How long the prompt is", _ASKED_RESPONSE),
    Example("/api/tags", "models", "The one model"),
    Example("/api/ps", "models", "The one model"),
    Example("/api/version", "version", "The version of this server"),
    Example("/api/show", "model", "The one model", {"model": MODEL}),
    Example("/v1/models", "models", "The one model"),
    Example("/v1/lora", "loras", "There are none"),
    Example("/v1/lora/list", "loras", "There are none"),
    Example("/v1/model/draft/list", "models", "There are none"),
    Example("/v1/model/embedding/list", "models", "There are none"),
    Example("/v1/template/list", "templates", "The one of the model"),
    Example("/v1/sampling/override/list", "overrides", "What holds anyway"),
    Example("/v1/auth/permission", "permission", "Nothing can be changed"),
    Example("/v1/model", "current", "The one model, as TabbyAPI answers"),
    Example("/v1/models/{model_id}", "model", "The one model"),
    Example("/tokenize", "prompt", "A text", {"model": MODEL, "prompt": "Once upon a time"}),
    Example(
        "/tokenize",
        "pieces",
        "As llama-server is asked",
        {"content": "Once upon a time", "with_pieces": True},
    ),
    Example(
        "/tokenize",
        "messages",
        "A conversation",
        {"model": MODEL, "messages": _HELLO["messages"], "return_token_strs": True},
    ),
    Example("/detokenize", "tokens", "A text", {"model": MODEL, "tokens": _TOKENS}),
    Example("/tokenizer_info", "tokenizer", "The tokenizer of the bundled model"),
    Example(
        "/apply-template",
        "messages",
        "A conversation",
        {"model": MODEL, "messages": _HELLO["messages"]},
    ),
    Example(
        "/v1/chat/completions/input_tokens",
        "messages",
        "A conversation",
        {"model": MODEL, "messages": _HELLO["messages"]},
    ),
    Example("/v1/token/encode", "text", "A text", {"text": "Once upon a time"}),
    Example("/v1/token/decode", "tokens", "A text", {"tokens": _TOKENS}),
    Example(
        "/v1/chat/completions",
        "stored",
        "A reply that is kept",
        {**_HELLO, "max_completion_tokens": 2, "store": True, "metadata": {"topic": "greeting"}},
    ),
    Example("/v1/chat/completions", "stored_chats", "The one that is stored", method="GET"),
    Example(_CHAT, "stored_chat", "The reply, and what it is found by"),
    Example(f"{_CHAT}/messages", "messages", "What it answers"),
    Example(_CHAT, "update", "Other metadata", {"metadata": {"topic": "hello"}}),
    Example(_CHAT, "deleted", "It is forgotten", method="DELETE"),
    Example(
        "/v1/responses",
        "stored",
        "A response that is stored",
        {**_RESPONSE, "max_output_tokens": 2, "store": True, "metadata": {"topic": "greeting"}},
    ),
    Example(_STORED, "response", "As it was answered"),
    Example(f"{_STORED}?stream=true&starting_after=3", "events", "Its last events", route=_STORED),
    Example(f"{_STORED}/input_items", "items", "What it answers"),
    Example(f"{_STORED}/cancel", "ended", "One that has ended stays as it is", {}),
    Example(_STORED, "deleted", "It is forgotten", method="DELETE"),
    Example(
        "/v1/completions",
        "stored",
        "A text that is kept",
        {**_STORY, "max_tokens": 3, "store": True, "seed": 1},
    ),
    Example("/v1/streams", "streams", "The one that is kept"),
    Example(_STREAM, "stream", "With its tokens"),
    Example(f"{_STREAM}/events", "events", "All of them"),
    Example(
        f"{_STREAM}/branch",
        "branch",
        "Another third token",
        {"at": 2, "token_id": 274, "include": ["cache"]},
    ),
    Example(
        f"{_STREAM}/branch",
        "branch_stream",
        "Streamed",
        {"at": 2, "text": " were", "max_tokens": 4, "stream": True},
    ),
    Example(f"{_STREAM}/peek", "peek", "Two ways on", {"at": 1, "top": 2, "tokens": 2}),
    Example(f"{_STREAM}/replay", "replay", "It comes out again", {}),
    Example(f"{_STREAM}/control", "ended", "A stream that has ended", {"action": "pause"}, 409),
    Example(
        "/v1/chat/completions/control",
        "without_id",
        "The stream is not named",
        {"action": "pause"},
        400,
    ),
    Example(
        "/v1/streams/{paused_id}/control",
        "inject",
        "The next tokens of a paused stream",
        {"action": "inject", "text": " a king"},
        route=f"{_STREAM}/control",
    ),
    Example(
        "/v1/chat/completions/control",
        "inject",
        "As llama-server is asked",
        {"id": "cmpl-e04ebeb15bf9430a810a06d4ebc2f11d", "action": "inject", "text": " who"},
    ),
    Example(_STREAM, "deleted", "It is forgotten", method="DELETE"),
    Example("/props", "props", "The bundled model on a CPU"),
    Example("/slots", "slots", "Nothing runs"),
    Example(_SLOT.format("save"), "save", "Saved", {"filename": "story.bin"}, route=_SLOTS),
    Example(
        _SLOT.format("restore"), "restore", "Restored", {"filename": "story.bin"}, route=_SLOTS
    ),
    Example(_SLOT.format("erase"), "erase", "Forgotten", {}, route=_SLOTS),
    Example(UNLOAD, "unload", "Out of memory", {"model": MODEL}),
    Example(LOAD, "load", "In memory", {"model": MODEL}),
    Example("/lora-adapters", "adapters", "There are none"),
    Example("/lora-adapters", "none", "None is set", [], method="POST"),
    Example("/health/live", "live", "The process answers"),
    Example("/health/ready", "ready", "The engine takes work"),
    Example("/health", "ready", "The engine takes work"),
)
