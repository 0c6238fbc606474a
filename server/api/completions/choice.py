"""One choice of /v1/completions as JSON: the whole of it, or its next piece.

Owns which keys a choice has, and that the pieces, joined, are the whole: one function writes both.
Knows no stream.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from engine import PromptToken, StreamResult, Tokenizer

from ...answer.choices import sampled
from ...answer.finish_reason import FINISH_REASONS, stop_reason
from ...answer.logprobs import Token, TokenNames, legacy_logprobs, prompt_logprobs
from ...answer.metadata import (
    Include,
    ending_fields,
    event_fields,
    opening_fields,
    token_lists,
)
from ...stream.jobs import Begun, CompletionJob, Step
from .prompts import Prompt


class Opening(NamedTuple):
    """How a choice begins."""

    job: CompletionJob
    begun: Begun
    prompt_tokens: Sequence[PromptToken]
    """Reported with the first choice of a prompt, for all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceShape:
    """Which parts of a choice a request wants to see."""

    tokenizer: Tokenizer
    eos_token_ids: Sequence[int]
    names: TokenNames
    echo: bool
    logprobs: int | None
    """Alternatives per token; None: no logprobs."""
    prompt_logprobs: int | None
    token_ids: bool
    include: Include

    @property
    def is_text_alone(self) -> bool:
        """Whether a piece in the middle of a choice is its text and nothing else."""
        return not self.describes_tokens and not self.include.wants_events

    @property
    def describes_tokens(self) -> bool:
        """Whether a piece says something of each of its tokens."""
        return self.logprobs is not None or self.token_ids

    @property
    def prompt_top(self) -> int | None:
        """Alternatives needed per token of the prompt; None: the prompt is not reported."""
        wanted = [self.prompt_logprobs, self.logprobs if self.echo else None]
        return max((n_top for n_top in wanted if n_top is not None), default=None)

    def says_something(self, result: StreamResult) -> bool:
        """Whether a piece needs a chunk: text may be held, and a hidden token has none."""
        if result.chunk or result.eos:
            return True
        if "suppressed" in self.include and result.taken_back:
            return True
        return bool(result.tokens) and self.describes_tokens

    def choice(
        self,
        index: int,
        prompt: Prompt,
        pieces: Sequence[Step],
        opening: Opening | None = None,
    ) -> dict[str, Any]:
        """The choice that `pieces` make, one after another. `opening`: if it begins with them."""
        last = pieces[-1].result
        text = last.chunk if len(pieces) == 1 else "".join([p.result.chunk for p in pieces])
        choice: dict[str, Any] = {
            "index": index,
            "text": prompt.text + text if opening and self.echo else text,
            "logprobs": self._logprobs(prompt, pieces, opening),
            "finish_reason": FINISH_REASONS[str(last.eos_reason)] if last.eos else None,
        }
        if last.eos:
            choice["stop_reason"] = stop_reason(last, self.eos_token_ids)
            choice |= ending_fields(pieces[-1], self.include)
        choice |= event_fields([piece.result for piece in pieces], self.tokenizer, self.include)
        if opening is not None:
            choice |= opening_fields(opening.begun, opening.job, self.tokenizer, self.include)
        if opening is not None and self.prompt_logprobs is not None:
            choice["prompt_logprobs"] = prompt_logprobs(
                opening.prompt_tokens, self.names, n_top=self.prompt_logprobs
            )
        if self.token_ids:
            if opening is not None:
                choice["prompt_token_ids"] = list(prompt.input_ids)
            choice["token_ids"] = [
                record.token_id for piece in pieces for record in sampled(piece.result)
            ]
        return choice

    def _logprobs(
        self, prompt: Prompt, pieces: Sequence[Step], opening: Opening | None
    ) -> dict[str, Any] | None:
        if self.logprobs is None:
            return None
        tokens: list[Token] = [record for piece in pieces for record in sampled(piece.result)]
        n_before = len(prompt.text)
        offsets = [n_before + record.text_start for record in tokens]
        if opening is not None and self.echo:
            tokens[:0] = opening.prompt_tokens
            hidden = prompt.n_hidden
            offsets[:0] = [max(0, token.text_start - hidden) for token in opening.prompt_tokens]
        lists = legacy_logprobs(tokens, offsets, self.names, n_top=self.logprobs)
        if self.include.wants_tokens:
            clocks = [piece.clock for piece in pieces for _ in sampled(piece.result)]
            of_prompt = [None] * (len(tokens) - len(clocks))
            clocked = [*of_prompt, *clocks]
            lists |= token_lists(
                tokens, clocked, self.include, name_of=self.names.distinct, n_top=self.logprobs
            )
        return lists
