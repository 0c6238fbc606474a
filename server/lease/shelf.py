"""The models of this server, and which of them have their weights in memory.

Owns when weights leave memory: when nothing was asked of a model for long enough, and when another
one needs the room; and how soon they may do so again, so that the time does not go into loading.
Knows no queue: the engine thread calls it between two tickets, and alone changes what is in memory.
"""

import time
from collections.abc import Callable, Sequence

from .served_model import OnProgress, ServedModel


class Shelf:
    """The models; the trials of grammars have none."""

    def __init__(
        self,
        models: Sequence[ServedModel],
        *,
        max_bytes: int | None = None,
        turn_seconds: float | None = None,
        idle_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`max_bytes`: for the weights in memory and the keys and values of all models; None: one
        model's weights at a time. `turn_seconds`: how long a model that was just loaded stays,
        whatever waits; None: as long as loading it took. `idle_seconds`: how long a model stays
        that nothing is asked of; None: for ever.
        """
        self.models = tuple(models)
        self._max_bytes = max_bytes
        self._turn_seconds = turn_seconds
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._turn_ends = clock()

    @property
    def is_loading(self) -> bool:
        return any(model.state == "loading" for model in self.models)

    @property
    def is_asleep(self) -> bool:
        """Whether the next request will wait for weights, whatever its model."""
        return not any(model.state in ("loaded", "loading") for model in self.models)

    @property
    def in_use(self) -> ServedModel:
        """The model in memory of which something was asked last; the first one if there is none."""
        loaded = [model for model in self.models if model.is_loaded]
        return max(loaded, key=lambda model: model.used_at, default=self.models[0])

    def is_free(self, model: ServedModel | None) -> bool:
        """Whether its weights are in memory, or can come without others leaving. None: no weights
        are needed.
        """
        return model is None or model.is_loaded or not self._leaving(model)

    @property
    def turn_left(self) -> float:
        """Seconds until weights may leave for others again."""
        return max(0.0, self._turn_ends - self._clock())

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
        """Make sure that the model's weights are in memory; those of others leave if they must.
        Raises as ServedModel.bring.
        """
        model.used_at = self._clock()
        if model.is_loaded:
            return
        model.bring(on_progress, lambda: self._make_room(model))
        turn = model.loads.seconds if self._turn_seconds is None else self._turn_seconds
        self._turn_ends = self._clock() + turn

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

    def _make_room(self, model: ServedModel) -> None:
        for other in self._leaving(model):
            other.put_away()

    def _leaving(self, model: ServedModel) -> list[ServedModel]:
        """Those whose weights have to leave for the model's, the longest unused first."""
        others = [other for other in self.models if other.is_loaded and other is not model]
        others.sort(key=lambda other: other.used_at)
        if self._max_bytes is None:
            return others
        staying = [*others, model]
        while len(staying) > 1 and self._n_bytes(staying) > self._max_bytes:
            staying.pop(0)
        return others[: len(others) + 1 - len(staying)]

    def _n_bytes(self, loaded: Sequence[ServedModel]) -> int:
        """What is in memory while these are loaded: keys and values stay without weights."""
        weights = sum(model.engine.weight_bytes for model in loaded)
        return weights + sum(model.engine.kv_bytes for model in self.models)
