"""The log: one line for one record, on stderr, and nothing in it of what clients sent.

Owns its format, what becomes of an exception's message and of control characters, and how often one
thing is said. Knows no request: whoever logs decides what to say.
"""

import logging
from collections.abc import Iterator
from traceback import format_tb
from types import TracebackType
from typing import TypeAlias

from typing_extensions import override

_ExcInfo: TypeAlias = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)

# They would drive the terminal that shows the log, or begin a line that the server never wrote.
_ESCAPES = {
    code: f"\\u{code:04x}"
    for code in (*range(32), *range(127, 160), 0x2028, 0x2029)
    if chr(code) not in "\t\n"
}


def configure_logging(level: str) -> None:
    """`level`: of the root logger. "debug" shows the messages of exceptions too."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter(with_messages=level == "debug"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    if level == "info":  # uvicorn's four lines about starting say less than the ready line
        logging.getLogger("uvicorn").setLevel(logging.WARNING)


class LineFormatter(logging.Formatter):
    """Records as text; what a record has beyond its first line is indented."""

    def __init__(self, *, with_messages: bool) -> None:
        """`with_messages`: whether exceptions say more than their class and their place. What they
        say may quote a prompt.
        """
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._with_messages = with_messages

    @override
    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).translate(_ESCAPES).replace("\n", "\n    ")

    @override
    def formatException(self, ei: _ExcInfo) -> str:
        if self._with_messages:
            return super().formatException(ei)
        return "\n".join(_places(ei[1], set()))


def _places(error: BaseException | None, told: set[int]) -> Iterator[str]:
    """The lines of a traceback, from the exception that came first, without any message.

    `told`: the ids of those that need not be told again. A group and what it holds may well be the
    context of each other.
    """
    chain = list[BaseException]()
    while error is not None and id(error) not in told:
        told.add(id(error))
        chain.append(error)
        error = error.__cause__ if error.__suppress_context__ else error.__context__
    for one in reversed(chain):
        for frame in format_tb(one.__traceback__):
            yield frame.rstrip("\n")
        yield f"{type(one).__module__}.{type(one).__qualname__}"
        if isinstance(one, BaseExceptionGroup):
            for held in one.exceptions:
                yield from _places(held, told)
