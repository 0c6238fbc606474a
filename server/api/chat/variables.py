"""The fields of a chat request that are variables of the model's chat template.

Owns which ones they are, and the warning for one that the template does not use. Knows of a
template nothing but the names in its text.
"""

import re
from itertools import islice
from typing import Any

from engine import ChatTemplate

from ...errors import RequestError
from ...request.aliases import Given, given, settings_by_name
from ...request.unknown_fields import Warnings, warning
from ...schema.chat import ChatCompletionRequest

_VARIABLES = {
    name: setting
    for name, setting in settings_by_name(ChatCompletionRequest).items()
    if setting == "chat_template_kwargs"
}
MAX_UNUSED = 64
"""So many unused variables are answered with warnings; more are refused, like unknown fields."""

# Templates use either name.
_THINKING = ("enable_thinking", "thinking")


def template_variables(body: ChatCompletionRequest) -> dict[str, Any]:
    """The variables that the request sets. Raises RequestError if it sets one in two ways."""
    variables, param = _variables(body)
    kwargs = dict(variables)
    thinking = body.enable_thinking
    if body.reasoning_effort == "none":
        if thinking:
            raise RequestError(
                "reasoning_effort: none turns thinking off, enable_thinking: true turns it on: "
                "send one of them",
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
                f"{param}.{name} and the request's own field differ: send one of them",
                param=f"{param}.{name}",
            )
        kwargs[name] = value
    return kwargs


def unused_variables(body: ChatCompletionRequest, template: ChatTemplate | None) -> Warnings:
    """Warnings for variables that the model's template does not use.

    No warning for a value that is the default anyway. Raises RequestError instead if the request
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
    if not (asked or variables) or template is None:
        return []
    known = set(re.findall(r"\w+", template.source))
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
    """The variables that the request names itself, and the field that holds them."""
    said = given(body, _VARIABLES, {"chat_template_kwargs": lambda value, _: value or None})
    return said.get("chat_template_kwargs", Given({}, "chat_template_kwargs"))
