"""What a response says of itself: its request, its state, its output, what it cost.

Owns the state in which a reply leaves it. The last event and the whole answer are made here, so
that both are the same.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect

from engine import SamplingSettings

from ...answer.finish_reason import FINISH_REASONS, stop_reason
from ...answer.metadata import closing_fields, ending_fields, event_fields, opening_fields
from ...answer.shape import GeneratedAnswer
from ...errors import StreamCancelledError, error_body, error_status
from ...schema.responses import ResponsesRequest
from ...stream.jobs import Begun, Step, TokenCounts
from ...stream.stream import CompletionStream
from ..chat.reply import Reader, ReplyShape
from .items import Items
from .output import NamedCall, shown_item

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def described(
    body: ResponsesRequest, settings: SamplingSettings, head: Mapping[str, Any], *, status: str
) -> dict[str, Any]:
    """A response without output: what was asked for. `settings`: what was made of the body. `head`:
    its `id`, `created` and `model`.
    """
    reasoning, text = body.reasoning, body.text
    sent = body.model_dump(
        mode="json", include={"tools", "tool_choice", "text"}, exclude_unset=True, by_alias=True
    )
    form = (sent.get("text") or {}).get("format") or {"type": "text"}
    return {
        "id": head["id"],
        "object": "response",
        "created_at": head["created"],
        "completed_at": None,
        "status": status,
        "background": bool(body.background),
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": body.max_tool_calls,
        "model": head["model"],
        "output": [],
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {
            "effort": reasoning.effort if reasoning else None,
            "summary": asked_summary(body),
        },
        "safety_identifier": body.safety_identifier,
        "service_tier": "default",
        "store": bool(body.store),
        "temperature": settings.temperature,
        "text": {"format": form, "verbosity": (text.verbosity if text else None) or "medium"},
        "tool_choice": sent.get("tool_choice") or "auto",
        "tools": sent.get("tools") or [],
        "top_logprobs": body.top_logprobs or 0,
        "top_p": settings.top_p,
        "truncation": body.truncation or "disabled",
        "usage": None,
        "user": body.user,
        "metadata": body.metadata or {},
    }


def asked_summary(body: ResponsesRequest) -> str | None:
    """Which summary of its reasoning the request asks for."""
    reasoning = body.reasoning
    return (reasoning.summary or reasoning.generate_summary) if reasoning else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseBase(GeneratedAnswer):
    """The response to one request."""

    new_reader: Callable[[], Reader]
    shape: ReplyShape
    calls: Mapping[str, NamedCall]
    """By the names that the model knows."""
    asked: Mapping[str, Any]
    """Of `described`."""
    describes_all: bool
    """Whether reasoning and calls have logprobs, too, if the text has."""
    in_summary: bool
    """Whether the text of reasoning stands in its summary."""

    def items(self) -> Items:
        """Reads a reply from its beginning."""
        return Items(
            self.id,
            self.new_reader(),
            self.shape,
            self.calls,
            describes_all=self.describes_all,
        )

    def begun(self, begun: Begun | None) -> dict[str, Any]:
        """The response before its output."""
        (job,) = self.jobs
        include, tokenizer = self.shape.include, self.shape.tokenizer
        opening = {} if begun is None else opening_fields(begun, job, tokenizer, include)
        if "prompt" in opening:  # in OpenAI's response that is a template
            opening["rendered_prompt"] = opening.pop("prompt")
        # One that was taken up again has the head of the first.
        head = {"id": self.id, "created_at": self.head["created"], "model": self.head["model"]}
        return {**self.asked, **head, "status": "in_progress", **opening, **self.once}

    def events_of(self, steps: Sequence[Step]) -> dict[str, Any]:
        """Keys that say what happened on the way to the text of `steps`."""
        results = [step.result for step in steps]
        return event_fields(results, self.shape.tokenizer, self.shape.include)

    def ended(
        self, stream: CompletionStream, items: Items, begun: Begun | None, steps: Sequence[Step]
    ) -> dict[str, Any]:
        """The response of a stream that has ended with the last of `steps`."""
        last, include = steps[-1], self.shape.include
        incomplete = _INCOMPLETE.get(FINISH_REASONS[str(last.result.eos_reason)])
        said = {
            **self.begun(begun),
            "status": "incomplete" if incomplete else "completed",
            "incomplete_details": {"reason": incomplete} if incomplete else None,
            "completed_at": None if incomplete else self._completed_at(stream),
            "output": self.output(items, last),
            "usage": usage(stream.counts, items.n_reasoning),
            **self.events_of(steps),
            **ending_fields(last, include),
            **closing_fields(stream, include),
        }
        stopped_at = stop_reason(last.result, self.shape.eos_token_ids)
        if stopped_at is not None:
            said["stop_reason"] = stopped_at
        if items.held:
            said["logprobs"] = items.held
        return said

    def failed(self, error: Exception, items: Items, begun: Begun | None) -> dict[str, Any]:
        """The response that `error` ended, as far as it came."""
        is_cancelled = isinstance(error, StreamCancelledError | ClientDisconnect)
        return {
            **self.begun(begun),
            "status": "cancelled" if is_cancelled else "failed",
            "error": None if is_cancelled else failure(error),
            "output": self.output(items, None),
        }

    def output(self, items: Items, last: Step | None) -> list[dict[str, Any]]:
        """All items. `last`: the step that the reply ended with; None if it was broken off."""
        return [
            shown_item(item, self.status_of(items, item.index, last), in_summary=self.in_summary)
            for item in items.listed
        ]

    def status_of(self, items: Items, index: int, last: Step | None) -> str:
        """Of an item that no text is added to any more. A call that was cut off is incomplete."""
        if index + 1 < len(items.listed):
            return "completed"
        if last is None or FINISH_REASONS[str(last.result.eos_reason)] in _INCOMPLETE:
            return "incomplete"
        is_cut = items.listed[index].call is not None and not items.reader.call_complete
        return "incomplete" if is_cut else "completed"

    def _completed_at(self, stream: CompletionStream) -> int:
        clocks = stream.clocks
        return int(self.head["created"] + clocks.queued_s + clocks.prefill_s + clocks.decode_s)


def failure(error: Exception) -> dict[str, Any]:
    """The error of a response, with OpenAI's codes for it."""
    said, status = error_body(error)["error"], error_status(error)
    code = "invalid_prompt" if status < 500 else "server_error"
    return {
        "code": "rate_limit_exceeded" if status == 429 else code,
        "message": said["message"],
        "type": said["code"],
        "param": said["param"],
    }


def usage(counts: TokenCounts, n_reasoning: int) -> dict[str, Any]:
    """Tokens, in this wire's names."""
    return {
        "input_tokens": counts.n_prompt,
        "input_tokens_details": {"cached_tokens": counts.n_cached, "cache_write_tokens": 0},
        "output_tokens": counts.n_completion,
        "output_tokens_details": {"reasoning_tokens": n_reasoning},
        "total_tokens": counts.n_prompt + counts.n_completion,
    }
