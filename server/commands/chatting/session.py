"""The loop of a chat: read an entry, do it or ask it, show the answer.

Owns the state of the chat and what Ctrl-C does. The slash commands are `slash.py`'s.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from ..terminal import CommandError, without_echo
from .answer import Answer, ChatSettings, Piece, Reply, Source
from .conversation import Conversation
from .editor import Editor
from .screen import Screen
from .styles import Style, style_of
from .why import Marks

_SEEDS = 2**63
_HOW_TO_LEAVE = "Ctrl-D or /quit leaves; /help lists the commands."


@dataclass(frozen=True)
class State:
    """What a command may change, and /undo brings back."""

    conversation: Conversation
    settings: ChatSettings
    marks: Marks | None = None
    """The numbers that /why gave to the tokens of the last answer."""


class Session:
    """One chat. `act` does a line that begins with a slash; it returns False to leave."""

    def __init__(
        self,
        source: Source,
        screen: Screen,
        editor: Editor,
        state: State,
        *,
        is_interactive: bool,
        act: Callable[["Session", str], bool],
    ) -> None:
        self.source = source
        self.screen = screen
        self.editor = editor
        self.state = state
        self.is_interactive = is_interactive
        self.shows_colors = False
        """Whether the tokens of an answer have the colours of their probabilities as they come."""
        self._act = act
        self._entry = ""  # what is being done
        self._earlier: list[tuple[str, State]] = []  # before each entry that changed it
        self._n_again = 0  # how often the last question was asked again

    def run(self) -> None:
        """Chat until the input ends. Raises CommandError if nobody is there to read it."""
        try:
            if self.is_interactive:
                self.screen.line(f"{self.source.model} · {_HOW_TO_LEAVE}", Style.FAINT)
            while self._turn():
                pass
        finally:
            self.source.close()

    def _turn(self) -> bool:
        """One entry. False at the end."""
        try:
            self.screen.end_line()
            entry = self._entry = self.editor.read()
            if entry.startswith("/"):
                return self._act(self, entry)
            if entry.strip():
                self.ask(entry)
        except EOFError:
            if self.is_interactive:
                self.screen.break_line()
            return False
        except KeyboardInterrupt:
            had_text = self.editor.has_text
            self.screen.break_line()
            if not had_text:
                self.note(_HOW_TO_LEAVE)
        except CommandError as error:
            if not self.is_interactive:
                raise
            self.screen.line(f"{error}", Style.ERROR)
        return True

    def note(self, text: str) -> None:
        """Something that the program says by itself."""
        if self.is_interactive:
            self.screen.line(text, Style.FAINT)

    def change(self, **fields: Any) -> None:
        """Another state, from which /undo leads back."""
        self._earlier.append((self._entry, self.state))
        self.state = replace(self.state, **fields)

    def mark(self, marks: Marks) -> None:
        """The numbers that /branch means from now on."""
        self.state = replace(self.state, marks=marks)

    def undo(self) -> str:
        """Take the last change back. Returns the entry that made it. Raises CommandError if there
        is none.
        """
        if not self._earlier:
            raise CommandError("there is nothing to undo")
        entry, self.state = self._earlier.pop()
        return entry

    def ask(self, question: str, *, before: Conversation | None = None) -> None:
        """A question and its answer. `before`: what has been said, if not all of it."""
        self._n_again = 0
        self._ask((before or self.state.conversation).with_question(question))

    def ask_again(self) -> None:
        """The last question once more, with the next seed. Raises CommandError without any."""
        conversation = self.state.conversation
        split = conversation.before_last_question()
        if split is None:
            raise CommandError("there is no question to ask again")
        self._n_again += 1
        old = conversation.messages[-1]["content"]
        self._ask(split[0].with_question(split[1]))
        new = self.state.conversation.messages[-1]["content"]
        if new == old and self.state.conversation.answer is not None:
            self.note("The same answer. A higher temperature gives others: /set temperature 1")

    def branch(self, at: int, token_id: int | None) -> None:
        """The last answer from token `at` on in another way."""
        conversation, settings = self.state.conversation, self.state.settings
        assert conversation.answer is not None
        old = conversation.answer
        answer = self._shown(lambda: self.source.branch(old, at, token_id, settings))
        self.change(conversation=conversation.with_answer(answer), marks=None)

    def _ask(self, conversation: Conversation) -> None:
        answer = self._shown(lambda: self.source.ask(conversation.sent, self._settings()))
        self.change(conversation=conversation.with_answer(answer), marks=None)

    def _settings(self) -> ChatSettings:
        """Those of the next answer: another seed if the same question is asked again."""
        settings = self.state.settings
        seed = settings.sampling.get("seed")
        if seed is None or not self._n_again:
            return settings
        sampling = {**settings.sampling, "seed": (seed + self._n_again) % _SEEDS}
        return replace(settings, sampling=sampling)

    def _shown(self, begin: Callable[[], Reply]) -> Answer:
        """Show a reply as it comes. Of a stopped one, what was shown is the answer."""
        pieces: list[Piece] = []
        was_stopped = False
        asked = time.perf_counter()
        with without_echo():
            reply = begin()
            try:
                self._stream(reply, pieces, asked)
            except KeyboardInterrupt:
                was_stopped = True
            finally:
                reply.close()
        if was_stopped:
            self.screen.write(" …", Style.FAINT)
        self.screen.end_line()
        answer = Answer(tuple(pieces), reply.statistics, reply.place, was_stopped)
        if not answer.text and not self.is_interactive:
            self.screen.line()
        self.note(summary(answer))
        return answer

    def _stream(self, reply: Reply, pieces: list[Piece], asked: float) -> None:
        n_tokens, was_reasoning = 0, False
        for piece in reply:
            now = time.perf_counter()
            if pieces and was_reasoning and not piece.is_reasoning and piece.text:
                self._end_reasoning()
            is_inherited = n_tokens < reply.statistics.n_inherited
            n_tokens += len(piece.tokens)
            pieces.append(piece)
            self._write(piece, is_inherited=is_inherited)
            was_reasoning = piece.is_reasoning or (was_reasoning and not piece.text)
            if is_inherited:
                continue
            if reply.statistics.first_s is None:
                reply.statistics.first_s = now - asked
            reply.statistics.rest_s = now - asked - reply.statistics.first_s

    def _end_reasoning(self) -> None:
        if self.is_interactive:
            self.screen.end_line()
            self.screen.break_line()

    def _write(self, piece: Piece, *, is_inherited: bool) -> None:
        if piece.is_reasoning:
            if self.is_interactive:
                self.screen.write(piece.text, Style.REASONING)
        elif is_inherited:
            self.screen.write(piece.text, Style.FAINT)
        elif not self.shows_colors:
            self.screen.write(piece.text)
        else:
            for cell in piece.cells():
                p = min((piece.tokens[index].p for index in cell.tokens), default=1.0)
                self.screen.write(cell.text, style_of(p))


def summary(answer: Answer) -> str:
    """The line below an answer."""
    numbers = answer.statistics
    n_new = (numbers.n_tokens or 0) - numbers.n_inherited
    parts: list[str | None] = [
        f"{n_new} token{'s' if n_new != 1 else ''}" if numbers.n_tokens else None,
        None if (speed := numbers.tokens_per_second) is None else f"{speed:,.0f} per second",
        None if numbers.first_s is None else f"first after {seconds(numbers.first_s)}",
        "stopped: /branch goes on" if answer.was_stopped and answer.place else None,
        "cut off: /branch goes on" if numbers.end == "length" and answer.place else None,
    ]
    return joined(parts)


def joined(parts: Iterable[str | None]) -> str:
    return " · ".join(part for part in parts if part)


def seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 0.9995 else f"{1000 * value:.0f} ms"
