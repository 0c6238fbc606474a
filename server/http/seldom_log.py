"""Rate limit for log lines that clients can cause."""

import logging
import time

_SELDOM_S = 10.0


class SeldomLog:
    """Logs at most one line of a kind every ten seconds, with the number of those left out."""

    def __init__(self, logger: logging.Logger, level: int) -> None:
        self._logger = logger
        self._level = level
        self._said: dict[str, tuple[float, int]] = {}  # kind -> (last time, lines left out since)

    def say(self, kind: str, text: str) -> None:
        """Log `text`, unless a line of this `kind` was logged within the last ten seconds. There
        should be few kinds: all are remembered.
        """
        now = time.monotonic()
        said_at, n_unsaid = self._said.get(kind, (-_SELDOM_S, 0))
        if now < said_at + _SELDOM_S:
            self._said[kind] = said_at, n_unsaid + 1
            return
        more = f"; {n_unsaid} more since the last such line" if n_unsaid else ""
        self._logger.log(self._level, "%s%s", text, more)
        self._said[kind] = now, 0
