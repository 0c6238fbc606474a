"""The line editor: the terminal's readline, or plain lines from a pipe and a dumb terminal.

Owns prompts, keys and completion. Where entries are kept is the history's business.
"""

from collections.abc import Callable, Sequence
from types import ModuleType

from .entry import read_entry
from .history import History
from .screen import Screen
from .styles import Style

_FIRST, _NEXT = "> ", "… "


class Editor:
    """Reads entries."""

    def __init__(
        self,
        screen: Screen,
        *,
        is_interactive: bool,
        has_escapes: bool,
        history: History | None,
        complete: Callable[[str], Sequence[str]],
    ) -> None:
        """`is_interactive`: with prompts. `has_escapes`: whether the terminal can do more than
        lines. `complete`: what a line may go on as.
        """
        self._screen = screen
        self._is_interactive = is_interactive
        self._history = history
        self._readline = _readline() if is_interactive and has_escapes else None
        self._initial = ""
        if self._readline is not None:
            self._prepare(self._readline, complete)

    @property
    def can_edit(self) -> bool:
        """Whether `initial` is shown to be changed."""
        return self._readline is not None

    @property
    def has_text(self) -> bool:
        """Whether a line was begun when Ctrl-C came."""
        return self._readline is not None and bool(self._readline.get_line_buffer().strip())

    def read(self, initial: str = "") -> str:
        """The next entry. `initial`: what it begins with. Raises EOFError at the end of the input,
        KeyboardInterrupt on Ctrl-C.
        """
        self._initial = initial
        entry = read_entry(self._line)
        if entry and self._readline is not None:
            self._readline.add_history(entry)
            if self._history is not None:
                self._history.add(entry)
        return entry

    def _line(self, is_first: bool) -> str:
        prompt = (_FIRST if is_first else _NEXT) if self._is_interactive else ""
        if self._readline is None:
            return input(self._screen.paint(prompt, Style.PROMPT))
        before, _, after = self._screen.paint("\n", Style.PROMPT).partition("\n")
        if before:  # readline counts what is not between these marks
            prompt = f"\x01{before}\x02{prompt}\x01{after}\x02"
        return input(prompt)

    def _prepare(self, readline: ModuleType, complete: Callable[[str], Sequence[str]]) -> None:
        def completion(_word: str, index: int) -> str | None:
            found = complete(readline.get_line_buffer())
            return found[index] if index < len(found) else None

        def insert() -> None:
            text, self._initial = self._initial, ""
            readline.insert_text(text)

        readline.set_auto_history(False)
        readline.set_startup_hook(insert)
        readline.set_completer_delims(" ")
        readline.set_completer(completion)
        if "libedit" in (readline.__doc__ or ""):
            readline.parse_and_bind("bind ^I rl_complete")
        else:
            readline.parse_and_bind("tab: complete")
            # A pasted text with several lines is one entry; Alt-Enter begins another line.
            readline.parse_and_bind("set enable-bracketed-paste on")
            readline.parse_and_bind(r'"\e\C-m": "\C-v\C-j"')
        for entry in self._history.entries() if self._history is not None else ():
            readline.add_history(entry)


def _readline() -> ModuleType | None:
    """Python's readline; some builds have none."""
    try:
        import readline
    except ImportError:
        return None
    return readline
