"""The log: records on stderr.

Owns its format, and what it shows of exceptions and control characters. Knows no request: the
caller decides what to log, which is nothing that a client sent but the origin of a refused page.
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

# They would control the terminal that shows the log, or fake a line that the server never wrote.
_ESCAPES = {
    code: f"\\u{code:04x}"
    for code in (*range(32), *range(127, 160), 0x2028, 0x2029)
    if chr(code) not in "\t\n"
}


def configure_logging(level: str, *, alone: bool = False) -> None:
    """`level`: level of the root logger. "debug" also shows the messages of exceptions. `alone`:
    whether handlers that others have set up are removed.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter(with_messages=level == "debug"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=alone)
    if level == "info":  # the ready line says more than uvicorn's four startup lines
        logging.getLogger("uvicorn").setLevel(logging.WARNING)


class LineFormatter(logging.Formatter):
    """Records as text; all lines of a record after its first are indented."""

    def __init__(self, *, with_messages: bool) -> None:
        """`with_messages`: whether exceptions show their message in addition to class and place. A
        message may quote a prompt.
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


def _places(error: BaseException | None, shown: set[int]) -> Iterator[str]:
    """The lines of a traceback without messages, the first exception first.

    `shown`: ids of exceptions that were already shown. A group and the exceptions it holds may be
    the context of each other.
    """
    chain = list[BaseException]()
    while error is not None and id(error) not in shown:
        shown.add(id(error))
        chain.append(error)
        error = error.__cause__ if error.__suppress_context__ else error.__context__
    for one in reversed(chain):
        for frame in format_tb(one.__traceback__):
            yield frame.rstrip("\n")
        yield f"{type(one).__module__}.{type(one).__qualname__}"
        if isinstance(one, BaseExceptionGroup):
            for held in one.exceptions:
                yield from _places(held, shown)
