"""What a replica tells of the prompts that it keeps computed.

Owns the last prompts, by the hashes that the door sent with them, and asks the engine how much of
each it still has. Knows no text.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from engine import Reuse

from ..stream.jobs import CompletionJob
from .routed import Prompt

_MOST_PROMPTS = 64
# Of all prompts together, longest first known: 32 KiB a publication.
_MOST_STEPS = 4096

ExpectedReuse = Callable[[CompletionJob, str], Reuse]
"""How much of a job's prompt is cached, if a caller sent it now."""


class _Known(NamedTuple):
    prompt: Prompt
    job: CompletionJob
    caller: str

    def kept(self, expected_reuse: ExpectedReuse) -> Sequence[bytes]:
        """The steps that the engine need not compute: of the text as many as of the tokens."""
        reuse = expected_reuse(self.job, self.caller)
        share = reuse.n_reused / max(1, len(self.job.input_ids) - 1)
        return self.prompt.steps[: int(share * len(self.prompt.steps) + 1e-9)]


class KeptPrompts:
    """The last prompts of one replica. `add` on the event loop, `steps` on any thread."""

    def __init__(self, expected_reuse: ExpectedReuse) -> None:
        self._expected_reuse = expected_reuse
        # By the last step, the oldest first.
        self._known: OrderedDict[bytes, _Known] = OrderedDict()

    def add(self, prompt: Prompt, job: CompletionJob, caller: str) -> None:
        """A job has been queued."""
        if not prompt.steps:
            return
        for step in prompt.steps:  # an earlier turn of the same conversation
            self._known.pop(step, None)
        self._known[prompt.steps[-1]] = _Known(prompt, job, caller)
        while len(self._known) > _MOST_PROMPTS:
            self._known.popitem(last=False)

    @property
    def bytes_per_token(self) -> float | None:
        """Of the last prompts; None before the first."""
        known = [*self._known.values()]
        n_tokens = sum(len(each.job.input_ids) for each in known)
        return sum(each.prompt.n_bytes for each in known) / n_tokens if n_tokens else None

    def steps(self) -> frozenset[bytes]:
        """The steps that the engine keeps now."""
        steps = set[bytes]()
        for each in reversed([*self._known.values()]):
            steps.update(each.kept(self._expected_reuse))
            if len(steps) >= _MOST_STEPS:
                break
        return frozenset(steps)
