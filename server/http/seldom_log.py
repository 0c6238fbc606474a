"""Log lines that a client can cause: at most one of a kind in ten seconds."""

import logging
import time

_SELDOM_S = 10.0


class SeldomLog:
    """Lines that anybody can cause as often as he likes: at most one of a kind in ten seconds, with
    the number of those between.
    """

    def __init__(self, logger: logging.Logger, level: int) -> None:
        self._logger = logger
        self._level = level
        self._said: dict[str, tuple[float, int]] = {}  # kind -> when, and how many times not since

    def say(self, kind: str, text: str) -> None:
        """`kind`: one of few."""
        now = time.monotonic()
        said_at, n_unsaid = self._said.get(kind, (-_SELDOM_S, 0))
        if now < said_at + _SELDOM_S:
            self._said[kind] = said_at, n_unsaid + 1
            return
        more = f"; {n_unsaid} more since the last such line" if n_unsaid else ""
        self._logger.log(self._level, "%s%s", text, more)
        self._said[kind] = now, 0
