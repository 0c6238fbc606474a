"""From a chat request to the ids of its prompt, by way of the model's own chat template.

Owns which fields of the request are variables of the template, and that one which it does not use
is told of. Knows no template's text but by asking it for names.
"""

import re
from collections.abc import Sequence
from typing import Any

from engine import Engine, describe_tools, spelled_calls

from .conversation import template_messages
from .errors import RequestError
from .options import generation_options, truncated
from .schema.chat import ChatCompletionRequest
from .schema.unsupported import Warnings, warning
from .service import LONG_TEXT, Service, check_text, encoded
from .tools import ToolUse

# Templates differ in what they call it.
_THINKING = ("enable_thinking", "thinking")
_SYSTEM_ROLES = ("system", "developer")


async def prompt_ids(service: Service, body: ChatCompletionRequest, tools: ToolUse) -> list[int]:
    """The rendered conversation. Raises RequestError, InvalidInputError and TemplateError."""
    engine, messages = service.engine, template_messages(body.messages)
    _check_end(body, messages)
    kwargs = template_kwargs(body)
    knows_tools = engine.reply_format.tools.in_template
    if not knows_tools:
        messages = spelled_calls(messages)
        if tools.shown:
            description = describe_tools(tools.shown)
            check_text(description, param="functions" if tools.legacy else "tools")
            if messages[0]["role"] not in _SYSTEM_ROLES and engine.template is not None:
                default = engine.template.default_system(kwargs)
                description = f"{default}\n\n{description}" if default else description
            messages = _with_description(messages, description)
    goes_on = bool(body.continue_final_message)
    input_ids = await encoded(
        lambda: engine.encode_chat(
            messages,
            tools=tools.template_tools if knows_tools and tools.shown else None,
            documents=body.documents or None,
            add_generation_prompt=not goes_on and body.add_generation_prompt is not False,
            continue_final_message=goes_on,
            template_kwargs=kwargs,
            must_fit=body.truncate_prompt_tokens is None,
        ),
        _n_characters(body, messages, tools),
    )
    return input_ids if body.truncate_prompt_tokens is None else _end_of(input_ids, engine, body)


def _check_end(body: ChatCompletionRequest, messages: Sequence[dict[str, Any]]) -> None:
    if not body.continue_final_message:
        return
    if body.add_generation_prompt:
        raise RequestError(
            "continue_final_message goes on with the last message; add_generation_prompt begins "
            "another one",
            param="add_generation_prompt",
        )
    if messages[-1]["role"] != "assistant":
        raise RequestError(
            "continue_final_message needs a last message of role assistant",
            param="continue_final_message",
        )


def _n_characters(
    body: ChatCompletionRequest, messages: Sequence[dict[str, Any]], tools: ToolUse
) -> int:
    """How much there is to render; tools and documents are taken for long without a look."""
    if tools.shown or body.documents:
        return LONG_TEXT
    return sum(len(message["content"] or "") for message in messages)


def _end_of(input_ids: list[int], engine: Engine, body: ChatCompletionRequest) -> list[int]:
    options = generation_options(body, vocab_size=engine.config.vocab_size)
    room = engine.max_seq_len - max(1, options.max_tokens or 1)
    return list(truncated(input_ids, options, room=max(1, room)))


def template_kwargs(body: ChatCompletionRequest) -> dict[str, Any]:
    """The variables that the request sets. Raises RequestError where it sets one in two ways."""
    kwargs = dict(body.chat_template_kwargs or {})
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
                f"chat_template_kwargs.{name} says another thing than the field of the request",
                param=f"chat_template_kwargs.{name}",
            )
        kwargs[name] = value
    return kwargs


def unused_variables(body: ChatCompletionRequest, engine: Engine) -> Warnings:
    """Warnings for variables that the model's template does not use.

    None for a value that asks for what is so anyway. Raises RequestError instead where the request
    is strict.
    """
    asked: dict[str, tuple[str, ...]] = {}
    for name in body.chat_template_kwargs or {}:
        asked[f"chat_template_kwargs.{name}"] = (name,)
    if body.reasoning_effort not in (None, "none"):
        asked["reasoning_effort"] = ("reasoning_effort",)
    if body.verbosity not in (None, "medium"):
        asked["verbosity"] = ("verbosity",)
    if body.enable_thinking:
        asked["enable_thinking"] = _THINKING
    if body.documents:
        asked["documents"] = ("documents",)
    if not asked or engine.template is None:
        return []
    known = set(re.findall(r"\w+", engine.template.source))
    unused = [param for param, names in asked.items() if known.isdisjoint(names)]
    message = "the model's chat template does not use it; it had no effect"
    return [warning(param, message, strict=bool(body.strict)) for param in unused]


def _with_description(messages: list[dict[str, Any]], description: str) -> list[dict[str, Any]]:
    """The conversation with `description` in its system message, the first one."""
    first, *others = messages
    if first["role"] in _SYSTEM_ROLES:
        return [{**first, "content": f"{first['content']}\n\n{description}"}, *others]
    return [{"role": "system", "content": description}, *messages]
