"""From a body of Ollama's wire to that of the chat route, which then reads it.

Owns what each of its fields means there. Knows no template and no tokens.
"""

import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from ...errors import RequestError
from ...schema.chat import ChatCompletionRequest
from ...schema.completions import CompletionRequest
from ...schema.ollama import OllamaChat, OllamaGenerate, OllamaMessage, OllamaRequest

Body = TypeVar("Body", ChatCompletionRequest, CompletionRequest)

_LATEST = ":latest"
# Options that would stand in for a field of the body itself.
_OF_THE_BODY = ("model", "stream", "messages", "prompt")
# Options of other routes that these answers have no place for -> what they may say.
_ONE_TEXT = {"n": 1, "best_of": 1, "echo": False, "prompt_logprobs": None}


def model_name(name: str) -> str:
    """The name as the server has it: Ollama's clients may add a tag."""
    return name.removesuffix(_LATEST)


def chat_of(body: OllamaChat) -> ChatCompletionRequest:
    """Raises RequestError."""
    fields = _shared(body)
    fields["messages"] = _messages(body.messages)
    if body.tools:
        fields["tools"] = [tool.model_dump(exclude_unset=True) for tool in body.tools]
    if isinstance(body.think, str):
        fields["reasoning_effort"] = body.think
    if body.think is not None:
        fields["enable_thinking"] = bool(body.think)
    return _validated(ChatCompletionRequest, fields)


def chat_of_prompt(body: OllamaGenerate) -> ChatCompletionRequest:
    """A prompt as a conversation of one turn. Raises RequestError."""
    _check_images(body.images, "images")
    turns = [OllamaMessage(role="user", content=body.prompt)]
    if body.system:
        turns.insert(0, OllamaMessage(role="system", content=body.system))
    shared = {name: getattr(body, name) for name in OllamaRequest.model_fields}
    return chat_of(OllamaChat.model_construct(**shared, messages=turns))


def text_of(body: OllamaGenerate) -> CompletionRequest:
    """A prompt that goes to the model as it is. Raises RequestError."""
    _check_images(body.images, "images")
    if body.system:
        raise RequestError(
            "system needs a template, and with raw or suffix none is used", param="system"
        )
    fields = {**_shared(body), "prompt": body.prompt}
    fields.pop("top_logprobs", None)
    if fields.pop("logprobs", None):
        fields["logprobs"] = body.top_logprobs or 0
    if body.suffix:
        fields["suffix"] = body.suffix
    return _validated(CompletionRequest, fields)


def _shared(body: OllamaRequest) -> dict[str, Any]:
    options = dict(body.options or {})
    _check_options(options)
    if options.get("num_predict") == -2:  # to the end of the context, which is what -1 means here
        options["num_predict"] = -1
    fields: dict[str, Any] = {
        **options,
        "model": model_name(body.model),
        "stream": body.stream is not False,
    }
    if body.logprobs:
        fields["logprobs"] = True
        if body.top_logprobs:
            fields["top_logprobs"] = body.top_logprobs
    elif body.top_logprobs:
        raise RequestError("top_logprobs needs logprobs: true", param="top_logprobs")
    if body.format == "json":
        fields["response_format"] = {"type": "json_object"}
    elif body.format:
        fields["json_schema"] = body.format
    return fields


def _check_options(options: Mapping[str, Any]) -> None:
    for name in _OF_THE_BODY:
        if options.get(name) is not None:
            raise RequestError(
                f"options.{name}: {name} stands beside options, not in them",
                param=f"options.{name}",
            )
    for name, only in _ONE_TEXT.items():
        if options.get(name) not in (None, only):
            raise RequestError(
                f"options.{name} is not supported: an answer of this route is one text, without "
                "its prompt; leave it out",
                param=f"options.{name}",
            )


def _messages(messages: Sequence[OllamaMessage]) -> list[dict[str, Any]]:
    """Calls have no ids on this wire: each result answers the first call of its name that has none,
    or the first of all.
    """
    turns: list[dict[str, Any]] = []
    open_calls: deque[tuple[str, str]] = deque()  # id, name
    for i, message in enumerate(messages):
        _check_images(message.images, f"messages[{i}].images")
        turn: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.thinking is not None:
            turn["reasoning_content"] = message.thinking
        if message.tool_calls:
            calls = [
                (f"call{i:03d}{k:02d}", call.function) for k, call in enumerate(message.tool_calls)
            ]
            open_calls.extend((id_, function.name) for id_, function in calls)
            turn["tool_calls"] = [
                {
                    "id": id_,
                    "type": "function",
                    "function": {
                        "name": function.name,
                        "arguments": json.dumps(function.arguments, ensure_ascii=False),
                    },
                }
                for id_, function in calls
            ]
            turn["content"] = message.content or None
        if message.role == "tool":
            name = message.tool_name or message.name
            turn["tool_call_id"] = _answered(open_calls, name, f"messages[{i}]")
            if name:
                turn["name"] = name
        turns.append(turn)
    return turns


def _answered(open_calls: deque[tuple[str, str]], name: str | None, path: str) -> str:
    found = next((call for call in open_calls if name in (None, call[1])), None)
    if found is None:
        raise RequestError(
            f"{path} is the result of a tool, and no call before it waits for one", param=path
        )
    open_calls.remove(found)
    return found[0]


def _check_images(images: Sequence[Any] | None, path: str) -> None:
    if images:
        raise RequestError(f"{path}: images are not supported", param=path)


def _validated(model: type[Body], fields: dict[str, Any]) -> Body:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(map(str, first["loc"]))
        raise RequestError(f"{path}: {first['msg']}", param=path) from None
