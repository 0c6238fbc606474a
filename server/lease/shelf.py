"""The models of this server, and which of them have their weights in memory.

Owns when weights leave memory: when nothing was asked of a model for long enough. Knows no queue:
the engine thread calls it between two tickets, and alone changes what is in memory.
"""

import time
from collections.abc import Callable, Sequence

from .served_model import OnProgress, ServedModel


class Shelf:
    """The models, of which there is one so far; the trials of grammars have none."""

    def __init__(
        self,
        models: Sequence[ServedModel],
        *,
        idle_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`idle_seconds`: how long a model stays in memory that nothing is asked of; None: for
        ever.
        """
        self.models = tuple(models)
        self._idle_seconds = idle_seconds
        self._clock = clock

    @property
    def is_loading(self) -> bool:
        return any(model.state == "loading" for model in self.models)

    @property
    def is_asleep(self) -> bool:
        """Whether the next request will wait for weights."""
        return not any(model.state in ("loaded", "loading") for model in self.models)

    def rest_in(self) -> float | None:
        """Seconds until `rest` has something to do, if nothing is asked before; None: for ever."""
        if self._idle_seconds is None:
            return None
        used = [model.used_at for model in self.models if model.is_loaded]
        return max(0.0, min(used) + self._idle_seconds - self._clock()) if used else None

    # The methods below run on the engine thread.

    def warm_up(self) -> None:
        """Before the first ticket: so the server takes requests before its engines are warm."""
        for model in self.models:
            model.warm_up()

    def bring(self, model: ServedModel, on_progress: OnProgress) -> None:
        """Make sure that the model's weights are in memory. Raises as ServedModel.bring."""
        model.used_at = self._clock()
        model.bring(on_progress)

    def used(self, model: ServedModel | None) -> None:
        """It has done what it was asked for. None: the work needed no weights."""
        if model is not None:
            model.used_at = self._clock()

    def rest(self) -> None:
        """Put away what nothing was asked of for long enough."""
        if self._idle_seconds is None:
            return
        since = self._clock() - self._idle_seconds
        for model in self.models:
            if model.is_loaded and model.used_at <= since:
                model.put_away()
