"""Drafts from a text that the caller expects the output to be, or nearly.

Owns the place in that text up to which the output agrees with it, and finds it again after a
deviation.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

from ..abort import AbortFlag
from .drafter import Origin, Prospect
from .length import Acceptance

_PRIOR = 0.85


class PredictionDrafter:
    """Drafts nothing without a prediction."""

    origin: Origin = "prediction"

    def __init__(self) -> None:
        self._acceptance = Acceptance(_PRIOR)
        self.predict(())
        self.begin((), None)

    def predict(self, token_ids: Sequence[int]) -> None:
        """What the next sequence's output is expected to be."""
        self._predicted = tuple(token_ids)
        self._pairs: dict[tuple[int, int], list[int]] = defaultdict(list)
        for place, pair in enumerate(zip(self._predicted, self._predicted[1:], strict=False)):
            self._pairs[pair].append(place + 2)

    def begin(
        self,
        prompt_ids: Sequence[int],
        abort: AbortFlag | None = None,
        isolation_key: str = "",
    ) -> None:
        self._acceptance.reset()
        self._n_prompt = len(prompt_ids)
        # After each token of the output: that token, where the next one is in the prediction, and
        # whether the output agrees with the prediction there.
        self._states: list[tuple[int, int, bool]] = [(-1, 0, True)]

    def accept(self, token_id: int) -> None:
        last, place, agrees = self._states[-1]
        if agrees and place < len(self._predicted) and self._predicted[place] == token_id:
            self._states.append((token_id, place + 1, True))
            return
        found = self._find((last, token_id), place)
        if found is None:
            self._states.append((token_id, place, False))
        else:
            self._states.append((token_id, found, True))

    def rollback(self, mark: int) -> None:
        self._n_prompt = min(self._n_prompt, mark)
        del self._states[mark - self._n_prompt + 1 :]

    def prospect(self, n_max: int) -> Prospect | None:
        _, place, agrees = self._states[-1]
        left = len(self._predicted) - place
        if not agrees or left <= 0:
            return None
        return Prospect(self._acceptance, min(n_max, left))

    def draft(self, n: int) -> tuple[int, ...]:
        place = self._states[-1][1]
        return self._predicted[place : place + n]

    def end(self) -> None:
        self.predict(())
        self.begin(())

    def _find(self, pair: tuple[int, int], place: int) -> int | None:
        """The place after the next occurrence of `pair` from `place` on, or else after the last."""
        places = self._pairs.get(pair)
        if places is None:
            return None
        index = bisect_left(places, place)
        return places[index] if index < len(places) else places[-1]
