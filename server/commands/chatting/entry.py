r'''One entry of the user out of one or more lines.

Owns how an entry goes over several lines: a line that ends with \ continues on the next, and
between """ and """ lines are taken as they are. Knows no terminal.
'''

from collections.abc import Callable

FENCE = '"""'


def read_entry(read_line: Callable[[bool], str]) -> str:
    """`read_line(is_first)`: the next line; raises EOFError at the end of the input.

    Raises EOFError only if nothing was read: the end of the input also ends an entry.
    """
    line = read_line(True)
    if line.lstrip().startswith(FENCE):
        return _fenced(line.lstrip().removeprefix(FENCE), read_line)
    lines = []
    while line.endswith("\\"):
        lines.append(line.removesuffix("\\"))
        try:
            line = read_line(False)
        except EOFError:
            line = ""
    return "\n".join([*lines, line]).strip()


def _fenced(line: str, read_line: Callable[[bool], str]) -> str:
    lines = []
    while not line.rstrip().endswith(FENCE):
        lines.append(line)
        try:
            line = read_line(False)
        except EOFError:
            line = FENCE
    lines.append(line.rstrip().removesuffix(FENCE))
    return "\n".join(lines).strip("\n")
