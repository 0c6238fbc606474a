"""Fields that the schema does not declare: refused, quietly accepted, or reported.

A field of OpenAI's API that would change the answer, and that this server cannot honour, is a 400
unless its value is the one that changes nothing. A field that asks nothing of the model is accepted
in silence. Every other unknown field is answered with a warning, or with `strict` refused; none is
dropped in silence.
"""

import json
from collections.abc import Iterable
from typing import Any

from ..errors import RequestError
from ..schema.parts import RequestModel

MAX_UNKNOWN_FIELDS = 64
MAX_PARAM_LENGTH = 256

Warnings = list[dict[str, str]]

# Field -> the values, besides null, that ask for nothing.
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"], []),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "continue_final_message": (False,),
    "add_generation_prompt": (True,),
    "documents": ([],),
    "prompt_embeds": (),
    "ebnf": (),
    "structured_outputs.structural_tag": (),
    "stream_options.include_obfuscation": (False,),
    "mcp_servers": ([],),
    "container": (),
    "messages[].audio": (),
    "messages[].annotations": ([],),
}

# Fields of other servers that this one does not have: a warning, but for these values.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    # Samplers.
    "smoothing_curve": (1, 1.0),
    "epsilon_cutoff": (0, 0.0),
    "eta_cutoff": (0, 0.0),
    "encoder_repetition_penalty": (1, 1.0),
    "no_repeat_ngram_size": (0,),
    "penalty_alpha": (0, 0.0),
    "num_beams": (1,),
    "use_beam_search": (False,),
    "length_penalty": (1, 1.0),
    "early_stopping": (False,),
    "do_sample": (True,),
    "rep_pen_slope": (0, 1, 0.0, 1.0),
    "penalize_nl": (False,),
    "min_keep": (0, 1),
    "adaptive_target": (-1, -1.0, -0.01),
    "backend_sampling": (True, False),
    "dynatemp_mode": (0, 1),
    # Drafts and caches, which change no text.
    "speculative_ngram": (True,),
    "n_cache_reuse": (0,),
    "id_slot": (-1, 0),
    # Prompt and context.
    "n_keep": (0,),
    "n_discard": (0,),
    "n_indent": (0,),
    "lora": ([],),
    # The answer.
    "n_cmpl": (1,),
    "prompt_logprobs": (),
    "spaces_between_special_tokens": (True,),
    "include_reasoning": (True,),
    "return_prompt_text": (False,),
    "verbose": (False,),
    "max_tokens_second": (0,),
    "stream_interval": (1,),
    "priority": (0,),
    "response_fields": ([],),
    "structured_outputs.disable_fallback": (True, False),
    "structured_outputs.disable_any_whitespace": (False,),
    "structured_outputs.disable_additional_properties": (False,),
}
# What to send in place of a field that is refused.
_INSTEAD = {
    "ebnf": "it is a language of its own; send a grammar in GBNF or Lark as `grammar`",
}
_WHY = {
    "do_sample": "this server does not know the field; `temperature: 0` is greedy",
    "speculative_ngram": "drafts never change the text; `speculate: false` turns them off",
    "truncation_length": "a prompt is not cut to a length; see `truncate_prompt_tokens`",
    "num_ctx": "the context has the length with which the model was loaded",
}

_QUIET = frozenset(
    {
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "request_id",
        "session_id",
        # SillyTavern's words to its own backend.
        "api_type",
        "api_server",
        # Of samplers that this server does not have.
        "adaptive_decay",
    }
)


def check_unknown_fields(
    body: RequestModel, nested: Iterable[tuple[str, RequestModel]], *, strict: bool
) -> Warnings:
    """The warnings for a body's unknown fields; raises RequestError for an unsupported one.

    `nested`: the parts of the body, each with its path, such as ("messages[0]", message).
    `strict`: what would be a warning is a RequestError.
    """
    warnings: dict[str, dict[str, str]] = {}
    for path, part in [("", body), *nested]:
        for name, value in (part.model_extra or {}).items():
            param = f"{path}.{name}" if path else name
            if _is_silent(_generic(param), value, param=param):
                continue
            if len(warnings) == MAX_UNKNOWN_FIELDS and param not in warnings:
                raise RequestError(
                    f"the body has more than {MAX_UNKNOWN_FIELDS} unknown fields", param=None
                )
            message = _WHY.get(param, "this server does not know the field; it had no effect")
            warnings[param] = warning(param, message, strict=strict)
    return list(warnings.values())


def warning(param: str, message: str, *, strict: bool) -> dict[str, str]:
    """A warning for a field without effect; with `strict` a RequestError instead."""
    param = param[:MAX_PARAM_LENGTH]
    if strict:
        raise RequestError(f"{param}: {message} (strict)", param=param)
    return {"param": param, "action": "ignored", "message": message}


def _is_silent(name: str, value: Any, *, param: str) -> bool:
    """Whether the field needs no warning; raises RequestError when it cannot be honoured."""
    if name in _QUIET:
        return True
    neutral = _UNSUPPORTED.get(name)
    if neutral is None:
        return name in _NEUTRAL and (value is None or _is_one_of(value, _NEUTRAL[name]))
    if value is None or _is_one_of(value, neutral):
        return True
    if name in _INSTEAD:
        raise RequestError(f"{param} is not supported: {_INSTEAD[name]}", param=param)
    allowed = " or ".join([*(json.dumps(same) for same in neutral), "null"])
    raise RequestError(f"{param} is not supported: leave it out, or send {allowed}", param=param)


def _is_one_of(value: Any, values: tuple[Any, ...]) -> bool:
    """JSON's equality: 1 and true are two values."""
    return any(type(value) is type(same) and value == same for same in values)


def _generic(param: str) -> str:
    """messages[3].audio -> messages[].audio"""
    head, bracket, rest = param.partition("[")
    return f"{head}[]{rest.partition(']')[2]}" if bracket and head == "messages" else param
