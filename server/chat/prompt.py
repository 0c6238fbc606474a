"""From a chat request to the ids of its prompt, by way of the model's own chat template.

Owns which fields of the request are variables of the template, and that one which it does not use
is told of. Knows no template's text but by asking it for names.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from engine import Engine, describe_tools, spelled_calls

from ..errors import RequestError
from ..request.aliases import Given, given, settings_by_name
from ..request.options import Options, check_cut_length, prompt_room, truncated
from ..request.text import LONG_TEXT, check_text
from ..request.unknown_fields import Warnings, warning
from ..schema.chat import ChatCompletionRequest
from ..schema.messages import ContentPart
from ..service import Service
from .conversation import template_messages
from .tools import ToolUse

_VARIABLES = {
    name: setting
    for name, setting in settings_by_name(ChatCompletionRequest).items()
    if setting == "chat_template_kwargs"
}
MAX_UNUSED = 64
"""Variables without effect that an answer warns of; more are refused, as unknown fields are."""

# As many characters are about as much work as a message, without its text.
_PART_LENGTH = 64
# Templates differ in what they call it.
_THINKING = ("enable_thinking", "thinking")
_SYSTEM_ROLES = ("system", "developer")


async def prompt_ids(
    service: Service,
    body: ChatCompletionRequest,
    tools: ToolUse,
    options: Options | None = None,
    *,
    n_body: int,
) -> list[int]:
    """The rendered conversation, of a request of `n_body` bytes; of its end what `options` keep.

    Raises RequestError, InvalidInputError and TemplateError."""
    engine = service.engine
    _check_end(body)
    knows_tools = engine.reply_format.tools.in_template
    kwargs = template_kwargs(body)
    goes_on = bool(body.continue_final_message)

    n_characters = _n_characters(body, tools, n_body)
    if options is not None:
        check_cut_length(options, n_characters, max_seq_len=engine.max_seq_len, param="messages")

    def encode() -> list[int]:
        conversation = template_messages(body.messages)
        return engine.encode_chat(
            conversation if knows_tools else _described(engine, conversation, tools, kwargs),
            tools=tools.template_tools if knows_tools and tools.shown else None,
            documents=body.documents or None,
            add_generation_prompt=not goes_on and body.add_generation_prompt is not False,
            continue_final_message=goes_on,
            template_kwargs=kwargs,
            must_fit=options is None or options.truncate_prompt_tokens is None,
        )

    input_ids = await service.large_bodies.run(encode, n_characters, inline_below=LONG_TEXT)
    if options is None:
        return input_ids
    room = prompt_room(options, max_seq_len=engine.max_seq_len, default_max_tokens=1)
    return list(truncated(input_ids, options, room=room))


def _described(
    engine: Engine,
    conversation: list[dict[str, Any]],
    tools: ToolUse,
    variables: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """The conversation for a template that knows of no tools: they stand in its system message,
    behind the text that the template would have written there by itself.
    """
    messages = spelled_calls(conversation)
    if not tools.shown:
        return messages
    description = describe_tools(tools.shown)
    check_text(description, param="functions" if tools.legacy else "tools")
    if messages[0]["role"] not in _SYSTEM_ROLES and engine.template is not None:
        default = engine.template.default_system(variables)
        description = f"{default}\n\n{description}" if default else description
    return _with_description(messages, description)


def _check_end(body: ChatCompletionRequest) -> None:
    if not body.continue_final_message:
        return
    if body.add_generation_prompt:
        raise RequestError(
            "continue_final_message goes on with the last message; add_generation_prompt begins "
            "another one",
            param="add_generation_prompt",
        )
    if body.messages[-1].role != "assistant":
        raise RequestError(
            "continue_final_message needs a last message of role assistant",
            param="continue_final_message",
        )


def content_length(content: str | Sequence[ContentPart] | None) -> int:
    """About how many characters of work it is."""
    if content is None or isinstance(content, str):
        return len(content or "")
    return sum(_PART_LENGTH + len(part.text or "") for part in content)


def _n_characters(body: ChatCompletionRequest, tools: ToolUse, n_body: int) -> int:
    """How much there is to render; with tools or documents as much as the whole body, and long."""
    if tools.shown or body.documents:
        return max(LONG_TEXT, n_body)
    n_characters = 0
    for message in body.messages:
        n_characters += _PART_LENGTH + content_length(message.content)
        n_characters += len(message.reasoning_content or message.reasoning or "")
        for call in message.tool_calls or ():
            n_characters += _PART_LENGTH + len(call.function.arguments)
    return n_characters + _PART_LENGTH * len(body.chat_template_kwargs or ())


def template_kwargs(body: ChatCompletionRequest) -> dict[str, Any]:
    """The variables that the request sets. Raises RequestError where it sets one in two ways."""
    variables, param = _variables(body)
    kwargs = dict(variables)
    thinking = body.enable_thinking
    if body.reasoning_effort == "none":
        if thinking:
            raise RequestError(
                "reasoning_effort none turns thinking off, enable_thinking on",
                param="enable_thinking",
            )
        thinking = False
    given: dict[str, Any] = {
        "reasoning_effort": None if body.reasoning_effort == "none" else body.reasoning_effort,
        "verbosity": body.verbosity,
        **dict.fromkeys(_THINKING, thinking),
    }
    for name, value in given.items():
        if value is None:
            continue
        if name in kwargs and kwargs[name] != value:
            raise RequestError(
                f"{param}.{name} says another thing than the field of the request",
                param=f"{param}.{name}",
            )
        kwargs[name] = value
    return kwargs


def unused_variables(body: ChatCompletionRequest, engine: Engine) -> Warnings:
    """Warnings for variables that the model's template does not use.

    None for a value that asks for what is so anyway. Raises RequestError instead where the request
    is strict.
    """
    asked: dict[str, tuple[str, ...]] = {}
    if body.reasoning_effort not in (None, "none"):
        asked["reasoning_effort"] = ("reasoning_effort",)
    if body.verbosity not in (None, "medium"):
        asked["verbosity"] = ("verbosity",)
    if body.enable_thinking:
        asked["enable_thinking"] = _THINKING
    if body.documents:
        asked["documents"] = ("documents",)
    variables, param = _variables(body)
    if not (asked or variables) or engine.template is None:
        return []
    known = set(re.findall(r"\w+", engine.template.source))
    strangers = [*islice((name for name in variables if name not in known), MAX_UNUSED + 1)]
    if len(strangers) > MAX_UNUSED:
        raise RequestError(
            f"{param} has more than {MAX_UNUSED} variables that the model's chat template does not "
            "use: leave them out",
            param=param,
        )
    unused = [f"{param}.{name}" for name in strangers]
    unused += [field for field, names in asked.items() if known.isdisjoint(names)]
    message = "the model's chat template does not use it; it had no effect"
    return [warning(field, message, strict=bool(body.strict)) for field in unused]


def _variables(body: ChatCompletionRequest) -> Given:
    """The variables that the request names itself, and the field in which it does."""
    said = given(body, _VARIABLES, {"chat_template_kwargs": lambda value, _: value or None})
    return said.get("chat_template_kwargs", Given({}, "chat_template_kwargs"))


def _with_description(messages: list[dict[str, Any]], description: str) -> list[dict[str, Any]]:
    """The conversation with `description` in its system message, the first one."""
    first, *others = messages
    if first["role"] in _SYSTEM_ROLES:
        return [{**first, "content": f"{first['content']}\n\n{description}"}, *others]
    return [{"role": "system", "content": description}, *messages]
