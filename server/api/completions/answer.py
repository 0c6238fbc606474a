"""The choices of /v1/completions in the order of the answer, whole or in chunks."""

from collections.abc import Sequence
from itertools import count
from typing import Any

from engine import PromptToken, StreamResult

from ...answer.choices import best, by_choice
from ...stream.jobs import Begun, CompletionJob, Event, Step
from .choice import ChoiceShape, Opening
from .prompts import Prompt


class CompletionChoices:
    """Those of one request."""

    n_reasoning = 0
    is_plain = True

    def __init__(
        self,
        prompts: Sequence[Prompt],
        jobs: Sequence[CompletionJob],
        n: int,
        shape: ChoiceShape,
    ) -> None:
        """`jobs`: prompt after prompt, as many of each. `n`: choices per prompt, the best of its
        jobs; all of them where the answer is streamed.
        """
        self._prompts = prompts
        self._jobs = jobs
        self._n = n
        self._shape = shape
        self._index = 0  # of the running choice
        self._opening: Opening | None = None  # until its first chunk
        self._prompt_tokens: Sequence[PromptToken] = ()

    @property
    def is_text_alone(self) -> bool:
        return self._shape.is_text_alone

    def whole(self, events: Sequence[Event]) -> list[dict[str, Any]]:
        choices: list[dict[str, Any]] = []
        candidates = [candidate for _, candidate in sorted(by_choice(events).items())]
        n_candidates = len(self._jobs) // len(self._prompts)
        for prompt, start in zip(self._prompts, count(step=n_candidates)):
            of_prompt = candidates[start : start + n_candidates]
            prompt_tokens = of_prompt[0].begun.prefill.prompt_tokens
            if self._n < n_candidates:
                of_prompt = best(of_prompt, self._n)
            for one in of_prompt:
                opening = Opening(self._jobs[one.begun.choice], one.begun, prompt_tokens)
                choices.append(self._shape.choice(len(choices), prompt, one.pieces, opening))
        return choices

    def begin(self, begun: Begun) -> tuple[()]:
        if begun.choice % self._n == 0:
            self._prompt_tokens = begun.prefill.prompt_tokens
        self._index = begun.choice
        self._opening = Opening(self._jobs[begun.choice], begun, self._prompt_tokens)
        return ()

    def add(self, step: Step) -> Sequence[dict[str, Any]]:
        shape, opening = self._shape, self._opening
        if not shape.says_something(step.result) and not (opening and shape.echo):
            return ()
        self._opening = None
        return (shape.choice(self._index, self._prompt, [step], opening),)

    def go_back(self, steps: Sequence[Step]) -> None:
        """Nothing of the text is remembered."""

    def of_text(self, text: str) -> dict[str, Any]:
        step = Step(self._index, StreamResult({"chunk": text}), 0.0)
        return self._shape.choice(self._index, self._prompt, [step])

    @property
    def _prompt(self) -> Prompt:
        return self._prompts[self._index // self._n]
