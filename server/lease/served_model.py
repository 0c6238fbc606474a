"""A model that this server serves: its names, and whether its weights are in memory.

Owns how they come into memory and go again, and what that took. The engine thread alone loads and
unloads; every other thread may look. Knows no queue.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from engine import Engine, ModelLoadError

from ..errors import LoadFailedError

_logger = logging.getLogger(__name__)

State = Literal["loaded", "loading", "asleep"]
OnProgress = Callable[[int, int], None]


@dataclass(slots=True)
class Loads:
    """What it took to bring the weights into memory."""

    n: int = 0
    n_failed: int = 0
    seconds: float = 0.0
    """Of the last one that succeeded."""


class ServedModel:
    """One model. Its engine stays, with tokenizer, template and cached prompts, so that a request
    can be prepared at any time; the weights come and go.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        engine: Engine,
        *,
        load_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`names`: the one that it goes by first. `engine` is loaded, which took `load_seconds`."""
        self.names = names
        self.engine = engine
        self.loads = Loads(n=1, seconds=load_seconds)
        self.used_at = clock()
        """When something was last asked of it, in seconds of the clock."""
        self._clock = clock
        self._is_loading = False

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def is_loaded(self) -> bool:
        return self.state == "loaded"

    @property
    def state(self) -> State:
        if self._is_loading:
            return "loading"
        return "asleep" if self.engine.is_asleep else "loaded"

    # The methods below run on the engine thread.

    def warm_up(self) -> None:
        """Let the engine get ready for its first stream, if the weights are in memory."""
        if self.is_loaded:
            self.engine.warm_up()

    def bring(self, on_progress: OnProgress, make_room: Callable[[], None] = lambda: None) -> None:
        """Make sure that the weights are in memory. `make_room` is called before any is read, but
        not if the files are gone or have changed. Raises LoadFailedError, and what `on_progress`
        raises to stop it; the next call tries again.
        """
        if self.is_loaded:
            return
        begin = self._clock()
        self._is_loading = True
        try:
            self.engine.wake(on_progress, make_room)
            self.engine.warm_up()  # of what was put away before it was first asked
        except ModelLoadError as error:
            self.loads.n_failed += 1
            _logger.error("%s could not be loaded: %s", self.name, error)
            raise LoadFailedError(
                f"{self.name} could not be loaded, and the server's log says why; the next "
                "request tries again",
                param="model",
            ) from error
        finally:
            self._is_loading = False
        self.loads.n += 1
        self.loads.seconds = self._clock() - begin
        _logger.info("%s: loaded in %.1f s", self.name, self.loads.seconds)

    def put_away(self) -> None:
        """Give the memory of the weights back."""
        if self.is_loaded:
            self.engine.sleep()
            _logger.info("%s: its weights are out of memory until it is asked again", self.name)
