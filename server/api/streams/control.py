"""From the body of a control to what is done with the stream."""

from collections.abc import Callable

from engine import SamplingSettings

from ...errors import RequestError
from ...kept import controls
from ...kept.controls import Control
from ...kept.kept import Kept
from ...request.options import generation_options
from ...request.sampling import sampling_settings
from ...schema.common import GenerationRequest
from ...schema.control import ControlRequest
from ...schema.sampling import SamplingFields
from ...service import Service
from ..generation import Wire
from .branch import text_ids
from .overrides import overridden, stored_fields, with_changes

# Action -> the field that it needs.
_NEEDS = {
    "rewind": "tokens", "inject": "text", "force": "token_id", "set": "settings",
    "extend": "max_tokens",
}  # fmt: skip


def control_of(service: Service, wire: Wire, kept: Kept, body: ControlRequest) -> Control:
    """What the body asks for. Raises RequestError and RequestValidationError."""
    action = body.action
    needed = _NEEDS.get(action)
    if needed is not None and getattr(body, needed) is None:
        raise RequestError(f"{action} needs {needed}", param=needed)
    plain: dict[str, Callable[[], Control]] = {
        "pause": controls.pause,
        "resume": controls.resume,
        "stop": controls.stop,
        "end_reasoning": lambda: _end_reasoning(service),
        "reasoning_end": lambda: _end_reasoning(service),
        "rewind": lambda: controls.rewind(body.tokens or 0),
        "inject": lambda: controls.inject(text_ids(service, body.text or ""), text=body.text or ""),
        "force": lambda: controls.force(body.token_id or 0),
        "set": lambda: _set(service, wire, kept, body),
        "ban": lambda: _ban(body),
        "extend": lambda: _extend(service, body.max_tokens or 0),
    }
    return plain[action]()


def _set(service: Service, wire: Wire, kept: Kept, body: ControlRequest) -> Control:
    changes = body.settings or {}
    for name in changes:
        if name not in SamplingFields.model_fields:
            raise RequestError(
                f"settings.{name} is not a sampling setting", param=f"settings.{name}"[:256]
            )
    sent = stored_fields(kept)
    before, after = (_settings(service, overridden(wire.body, sent, by)) for by in ({}, changes))
    return controls.set_settings(lambda now: with_changes(now, before, after, changes), changes)


def _settings(service: Service, body: GenerationRequest) -> SamplingSettings:
    engine = service.engine
    generation_options(body, vocab_size=engine.config.vocab_size)
    return sampling_settings(
        body,
        engine.default_settings,
        vocab_size=engine.config.vocab_size,
        eos_token_ids=engine.eos_token_ids,
    )


def _ban(body: ControlRequest) -> Control:
    if not body.strings and not body.token_ids:
        raise RequestError("ban needs strings or token_ids", param="strings")
    return controls.ban(body.token_ids or (), body.strings or ())


def _extend(service: Service, max_tokens: int) -> Control:
    most = service.engine.max_seq_len
    if max_tokens > most:
        raise RequestError(
            f"max_tokens must be at most {most}, the context, not {max_tokens}", param="max_tokens"
        )
    return controls.extend(max_tokens)


def _end_reasoning(service: Service) -> Control:
    reasoning = service.engine.reply_format.reasoning
    if reasoning is None:
        raise RequestError("this model does not mark its reasoning", param="action")
    closing = reasoning.close
    token_ids = (
        [closing.token_id] if closing.token_id is not None else text_ids(service, closing.text)
    )
    return controls.inject(token_ids, action="end_reasoning")
