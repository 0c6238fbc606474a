"""The slash commands: their names, what they do, and completion.

Owns how their arguments are read and what they answer. What they change belongs to the session.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ...suggest import did_you_mean
from ..terminal import CommandError
from . import sampling
from .answer import Answer, Statistics
from .conversation import Conversation
from .session import Session, seconds
from .stored import StoredChat, load, save
from .styles import Style
from .why import N_MARKED, Marks, show

_LONGEST_SHOWN = 60  # characters of an entry


class _Command(NamedTuple):
    act: Callable[[Session, str], None]
    arguments: str
    help: str


def act(session: Session, line: str) -> bool:
    """Do a line that begins with a slash. False for one that leaves. Raises CommandError."""
    name, _, arguments = line[1:].partition(" ")
    if name in ("quit", "exit"):
        return False
    if name not in COMMANDS:
        near = did_you_mean(name, [*COMMANDS, "quit"], prefix="/", cutoff=0.5)
        raise CommandError(
            f"no command is called /{name}{near}"
            f"{'' if near else '; /help lists them'} (a space before / sends it as text)"
        )
    COMMANDS[name].act(session, arguments.strip())
    return True


def completions(line: str) -> Sequence[str]:
    """What the last word of a line may become."""
    words = line.split(" ")
    if len(words) == 1 and line.startswith("/"):
        names = [f"/{name} " if COMMANDS[name].arguments else f"/{name}" for name in COMMANDS]
        return [name for name in [*names, "/quit"] if name.startswith(line)]
    if len(words) == 2 and words[0] == "/set":
        return [f"{name} " for name in sampling.SETTINGS if name.startswith(words[1])]
    if len(words) == 2 and words[0] in ("/load", "/save"):
        return _files(words[1])
    return []


def _files(begun: str) -> list[str]:
    folder, _, start = begun.rpartition("/")
    base = Path(f"{folder}/" if "/" in begun else ".").expanduser()
    try:
        found = sorted(os.scandir(base), key=lambda entry: entry.name)
    except OSError:
        return []
    before = f"{folder}/" if "/" in begun else ""
    return [
        f"{before}{entry.name}{'/' if entry.is_dir() else ''}"
        for entry in found
        if entry.name.startswith(start) and (start or not entry.name.startswith("."))
    ]


def _help(session: Session, _: str) -> None:
    screen = session.screen
    for name, command in COMMANDS.items():
        _entry(session, f"/{name} {command.arguments}".rstrip(), command.help)
    _entry(session, "/quit", "leave; so does Ctrl-D")
    screen.line()
    _entry(session, "Ctrl-C", "stop the answer")
    _entry(session, "several lines", 'end a line with \\, or write between """ and """')
    if session.editor.can_edit:
        _entry(session, "Alt-Enter", "begin another line")
        _entry(session, "arrow keys, Ctrl-R", "earlier entries; Tab completes commands")


def _entry(session: Session, head: str, text: str) -> None:
    session.screen.entry(head, text.split(), style=Style.NUMBER)


def _system(session: Session, text: str) -> None:
    conversation = session.state.conversation
    if text:
        session.change(conversation=conversation.with_system(None if text == "-" else text))
        session.note("From the next question on. /regen asks the last one again.")
    else:
        session.screen.line(conversation.system or "There is no system message.")


def _set(session: Session, text: str) -> None:
    name, _, value = text.replace("=", " ", 1).partition(" ")
    settings, defaults = session.state.settings, session.source.defaults()
    if not name:
        _list_settings(session)
        return
    name = sampling.checked_name(name)
    if value.strip():
        changed = sampling.changed(settings, name, value.strip())
        session.source.check(changed.sampling)
        session.change(settings=changed)
        shown = sampling.value_of(changed, defaults, name) or "the server's default"
        session.note(f"{name} is {shown}")
    else:
        shown = sampling.value_of(settings, defaults, name) or "the server's default"
        _entry(session, f"{name} {shown}", sampling.meaning(name))


def _list_settings(session: Session) -> None:
    settings, defaults = session.state.settings, session.source.defaults()
    for name, value, is_set in sampling.listed(settings, defaults):
        style = Style.NUMBER if is_set else Style.PLAIN
        session.screen.entry(name, [f"{value or '-'}{' *' if is_set else ''}"], style=style)
    session.note("* is set here. /set NAME explains one, /set NAME default takes it back.")


def _regen(session: Session, _: str) -> None:
    session.ask_again()


def _edit(session: Session, text: str) -> None:
    split = session.state.conversation.before_last_question()
    if split is None:
        raise CommandError("there is no question to edit")
    before, question = split
    if not text:
        if not session.editor.can_edit:
            session.note(f"The question was: {question}")
        text = session.editor.read(initial=question)
    if text.strip():
        session.ask(text, before=before)


def _branch(session: Session, text: str) -> None:
    answer = _answer(session)
    if answer.place is None:
        raise CommandError(session.source.why_no_branch)
    words = text.split()
    if not all(word.isascii() and word.isdigit() for word in words) or len(words) > 2:
        raise CommandError(
            "/branch takes the number of a token and of an alternative, such as /branch 3 2, "
            f"not {text!r}"
        )
    if not words:
        session.branch(len(answer.tokens), None)
        return
    marks = session.state.marks
    if marks is None:
        raise CommandError("type /why first: it numbers the tokens of the answer")
    number = _within(int(words[0]), len(marks.indices), "tokens that /why has numbered")
    index = marks.indices[number - 1]
    if len(words) == 1:
        session.branch(index, None)
        return
    others = answer.tokens[index].alternatives
    choice = _within(int(words[1]), len(others), f"alternatives of [{number}]")
    token_id = others[choice - 1].token_id
    if token_id is None:
        raise CommandError(session.source.why_no_branch)
    session.branch(index, token_id)


def _within(number: int, most: int, what: str) -> int:
    if not most:
        raise CommandError(f"there are no {what}")
    if not 1 <= number <= most:
        raise CommandError(f"{number} is not among the {what}: 1 to {most}")
    return number


def _why(session: Session, text: str) -> None:
    answer = _answer(session)
    if not answer.tokens:
        raise CommandError("the server sends no probabilities")
    if text and not (text.isascii() and text.isdigit() and int(text)):
        raise CommandError(
            f"/why takes the number of tokens to mark, such as /why 20, not {text!r}"
        )
    marks = Marks.of(answer, int(text) if text else N_MARKED)
    session.mark(marks)
    show(marks, session.screen)


def _answer(session: Session) -> Answer:
    conversation = session.state.conversation
    if conversation.answer is None:
        loaded = bool(conversation.messages)
        raise CommandError(
            "the last answer was loaded, without its tokens; /regen generates it again"
            if loaded
            else "there is no answer yet"
        )
    return conversation.answer


def _stats(session: Session, _: str) -> None:
    numbers = _answer(session).statistics
    n_new = (numbers.n_tokens or 0) - numbers.n_inherited
    speed = numbers.tokens_per_second
    rows = {
        "first token after": None if numbers.first_s is None else seconds(numbers.first_s),
        "tokens per second": None if speed is None else f"{speed:,.0f}",
        "tokens": None if numbers.n_tokens is None else _counted(n_new, numbers.n_inherited),
        "prompt": None if numbers.n_prompt is None else _cached(numbers),
        "drafts": None if numbers.n_drafted is None else _drafts(numbers),
        "context": None
        if numbers.context is None or numbers.n_prompt is None
        else f"{numbers.n_prompt + (numbers.n_tokens or 0):,} of {numbers.context:,} tokens",
        "seed": None if numbers.seed is None else str(numbers.seed),
        "ended by": _END.get(numbers.end or "", numbers.end),
    }
    for name, value in rows.items():
        _entry(session, name, "not known" if value is None else value)


_END = {"aborted": "Ctrl-C", "stop_token": "the model", "stop": "the model", "length": "the limit"}


def _cached(numbers: Statistics) -> str:
    inherited = f" and {numbers.n_inherited:,} inherited" if numbers.n_inherited else ""
    cached = "" if numbers.n_cached is None else f", {numbers.n_cached:,} of them cached"
    return f"{numbers.n_prompt:,} tokens{inherited}{cached}"


def _drafts(numbers: Statistics) -> str:
    if not numbers.n_drafted:
        return "none"
    return f"{numbers.n_accepted or 0:,} of {numbers.n_drafted:,} tokens accepted"


def _counted(n_new: int, n_inherited: int) -> str:
    return f"{n_new:,}" + (f" after {n_inherited:,} of the answer before" if n_inherited else "")


def _colors(session: Session, _: str) -> None:
    session.shows_colors = not session.shows_colors
    session.note(
        "Unlikely tokens of the next answers have colours: below 50 %, underlined below 10 %."
        if session.shows_colors
        else "The next answers are plain."
    )


def _save(session: Session, text: str) -> None:
    path = _path(text, "/save")
    state = session.state
    save(path, session.source.model, StoredChat(state.conversation, state.settings))
    session.note(f"saved to {path}")


def _load(session: Session, text: str) -> None:
    path = _path(text, "/load")
    chat = load(path)
    session.source.check(chat.settings.sampling)
    session.change(conversation=chat.conversation, settings=chat.settings, marks=None)
    n = len(chat.conversation.messages)
    session.note(f"{path}: {n} message{'s' if n != 1 else ''}; its settings hold. /undo goes back.")


def _path(text: str, command: str) -> Path:
    if not text:
        raise CommandError(f"{command} needs the name of a file")
    return Path(text).expanduser()


def _undo(session: Session, _: str) -> None:
    entry = session.undo().replace("\n", " ")
    session.note(
        f"undone: {entry if len(entry) <= _LONGEST_SHOWN else f'{entry[:_LONGEST_SHOWN]}…'}"
    )


def _reset(session: Session, _: str) -> None:
    cleared: Conversation = session.state.conversation.cleared()
    session.change(conversation=cleared, marks=None)
    session.note("The conversation begins again. /undo brings it back.")


COMMANDS = {
    "help": _Command(_help, "", "this list"),
    "why": _Command(_why, "[N]", "number the tokens that the model expected least, with others"),
    "branch": _Command(
        _branch,
        "[N [M]]",
        "go on differently from token N of /why, with its alternative M; without N: go on "
        "where the answer stopped",
    ),
    "regen": _Command(_regen, "", "ask the last question again"),
    "edit": _Command(_edit, "[TEXT]", "change the last question and ask it"),
    "undo": _Command(_undo, "", "take back what was last said or set"),
    "system": _Command(_system, "[TEXT]", "set or show the system message; - removes it"),
    "set": _Command(_set, "[NAME [VALUE]]", "a setting, such as /set temperature 0.7"),
    "stats": _Command(_stats, "", "speed, cache and drafts of the last answer"),
    "colors": _Command(_colors, "", "colour tokens by their probability as they come, or not"),
    "save": _Command(_save, "FILE", "save the conversation and its settings"),
    "load": _Command(_load, "FILE", "go on with a saved conversation"),
    "reset": _Command(_reset, "", "begin again; the system message stays"),
}
