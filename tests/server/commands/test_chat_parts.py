"""The parts of a chat that need no terminal: entries, history, files, settings, cells."""

import dataclasses
import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import Engine, ReplyFormat, SamplingSettings
from server.commands.chatting import sampling
from server.commands.chatting.answer import Answer, ChatSettings, Piece, Statistics
from server.commands.chatting.conversation import Conversation
from server.commands.chatting.entry import read_entry
from server.commands.chatting.history import History
from server.commands.chatting.in_process import InProcess
from server.commands.chatting.slash import completions
from server.commands.chatting.stored import StoredChat, load, save
from server.commands.chatting.why import Marks
from server.commands.chatting.wire import pieces
from server.commands.terminal import CommandError
from server.commands.token_text import cells, percent


def reader(*lines: str) -> Callable[[bool], str]:
    rest: Iterator[str] = iter(lines)

    def read_line(is_first: bool) -> str:
        line = next(rest, None)
        if line is None:
            raise EOFError
        return line

    return read_line


@pytest.mark.parametrize(
    ("lines", "entry"),
    [
        (["one"], "one"),
        (["one\\", "two"], "one\ntwo"),
        (["one\\"], "one"),
        (['"""one"""'], "one"),
        (['"""', "  one", "", "two", '"""'], "  one\n\ntwo"),
        (['"""one', 'two"""'], "one\ntwo"),
        (['"""', "cut off"], "cut off"),
        ([" /etc is a path"], "/etc is a path"),
    ],
)
def test_entries(lines: list[str], entry: str) -> None:
    assert read_entry(reader(*lines)) == entry


def test_an_input_that_has_ended_is_no_entry() -> None:
    with pytest.raises(EOFError):
        read_entry(reader())


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_cells_are_the_text_of_all_tokens(words: list[str]) -> None:
    data = "".join(words).encode()
    tokens = [data[i : i + 2] for i in range(0, len(data), 2)]
    found = cells(tokens)
    assert "".join(cell.text for cell in found) == "".join(words)
    assert [index for cell in found for index in cell.tokens] == list(range(len(tokens)))


def test_malformed_bytes_are_shown() -> None:
    assert "".join(cell.text for cell in cells([b"a\xff", b"\xe2", b"\x82"])) == "a\ufffd\ufffd"


@pytest.mark.parametrize(
    ("p", "text"),
    [(1.0, "100 %"), (0.9999, ">99 %"), (0.53, "53 %"), (0.0942, "9.4 %"), (0.0001, "<0.1 %")],
)
def test_percentages(p: float, text: str) -> None:
    assert percent(p) == text


def test_the_history_keeps_entries_to_its_user(tmp_path: Path) -> None:
    path = tmp_path / "new" / "history"
    History(path).add("one\ntwo")
    History(path).add("three 獅子")
    assert History(path).entries() == ["one\ntwo", "three 獅子"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("".join(f'"{n}"\n' for n in range(2500)) + "not JSON\n7\n")
    assert History(path).entries()[-1] == "2499"
    assert len(path.read_text().splitlines()) <= 1000, "the file was cut"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_history_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    history = History(tmp_path / "file" / "history")
    history.add("one")
    assert history.entries() == []


def test_a_saved_chat_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    chat = StoredChat(
        Conversation("Be brief.").with_question("Hello 獅子"),
        ChatSettings({"temperature": 0.5, "logit_bias": {5: 1.0}}, 20),
    )
    save(path, "a model", chat)
    save(path, "a model", chat)
    assert load(path) == chat


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("nonsense", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "its format is not"),
        ({"messages": "Hello"}, "messages must be a list"),
        ({"messages": [{"role": "king", "content": "Hello"}]}, "messages must be a list"),
        ({"messages": [], "settings": {"temprature": 1}}, "'temprature' is not a setting"),
        ({"messages": [], "settings": {"max_tokens": 0}}, "max_tokens must be 1 or more"),
        ({"messages": [], "settings": {"logit_bias": {"x": 1}}}, "token ids as keys"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(content: object, message: str, tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    if isinstance(content, dict):
        content = json.dumps({"format": "soliton chat 1", **content})
    path.write_text(str(content))
    with pytest.raises(CommandError, match=message):
        load(path)


def test_no_other_file_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "thesis.tex"
    path.write_text("\\documentclass{article}")
    with pytest.raises(CommandError, match="not a saved chat"):
        save(path, "a model", StoredChat(Conversation(), ChatSettings()))
    assert path.read_text() == "\\documentclass{article}"


def test_every_setting_can_be_set_and_taken_back() -> None:
    others = {
        "logit_bias": "5=-1.5,7=2", "allowed_tokens": "5,7", "banned_tokens": "9",
        "sampler_order": "top_k,temperature", "dry_sequence_breakers": ", . \\n",
    }  # fmt: skip
    fields = dataclasses.fields(SamplingSettings)
    assert {each.name for each in fields} == set(sampling.SETTINGS) - {sampling.MAX_TOKENS}
    for each in fields:
        text = others.get(each.name, "on" if each.type is bool else "1")
        changed = sampling.changed(ChatSettings(), each.name, text)
        SamplingSettings(**{"top_k": 1, **changed.sampling})
        assert sampling.is_set(changed, each.name)
        assert sampling.value_of(changed, {}, each.name) == text
        assert sampling.changed(changed, each.name, "default") == ChatSettings()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("temperature", "warm", "temperature must be a finite number, not 'warm'"),
        ("mirostat", "2", "mirostat must be on or off, not '2'"),
        ("max_tokens", "0", "max_tokens must be 1 or more, not 0"),
        ("top_k", "1.5", "top_k must be a whole number, not '1.5'"),
    ],
)
def test_a_wrong_value_is_one_sentence(name: str, text: str, message: str) -> None:
    with pytest.raises(CommandError) as raised:
        sampling.changed(ChatSettings(), name, text)
    assert str(raised.value) == message


def test_a_setting_may_be_written_as_its_option() -> None:
    assert sampling.checked_name("--top-k") == "top_k"
    with pytest.raises(CommandError, match="did you mean repetition_penalty"):
        sampling.checked_name("repetition_penality")


def test_tab_completes_commands_settings_and_files(tmp_path: Path) -> None:
    (tmp_path / "chat.json").write_text("")
    (tmp_path / "chats").mkdir()
    assert completions("/br") == ["/branch "]
    assert completions("/s") == ["/system ", "/set ", "/stats", "/save "]
    assert completions("/set temperature_") == ["temperature_last ", "temperature_exponent "]
    assert completions(f"/load {tmp_path}/ch") == [f"{tmp_path}/chat.json", f"{tmp_path}/chats/"]
    assert completions("an ordinary question") == []


def test_a_branch_is_the_reply_with_another_token(bundled_engine: Engine) -> None:
    """Its tokens, its text, and its seed are those of the reply up to there."""
    source = InProcess(bundled_engine)
    settings = ChatSettings({"seed": 7, "temperature": 1.0}, 30)
    reply = source.ask([{"role": "user", "content": "Tell me a story."}], settings)
    said = tuple(reply)
    tokens = [token for piece in said for token in piece.tokens]
    at = next(i for i, token in enumerate(tokens) if token.p < 0.5 and i > 3)
    other = tokens[at].alternatives[0]
    answer = Answer(said, reply.statistics, reply.place)
    assert Marks.of(answer).indices, "some tokens are below 50 %"
    branch = source.branch(answer, at, other.token_id, settings)
    branched = [token for piece in branch for token in piece.tokens]
    assert [token.data for token in branched[:at]] == [token.data for token in tokens[:at]]
    assert branched[at].data == other.data
    assert branched[at].p == pytest.approx(other.p)
    assert branch.statistics.seed == 7
    assert branch.statistics.n_inherited == at
    again = source.branch(answer, at, None, settings)
    assert [token.data for piece in again for token in piece.tokens][:at] == [
        token.data for token in tokens[:at]
    ]


def test_a_model_that_marks_its_reasoning_says_the_same(bundled_engine: Engine) -> None:
    """Its reply is read for tags; without any in it, all is content, with the same tokens."""
    form = ReplyFormat.of("{% if x %}<think>{{ x }}</think>{% endif %}", bundled_engine.tokenizer)
    assert form.needs_reader(reads_tools=False)
    settings = ChatSettings({"seed": 7}, 30)
    question = [{"role": "user", "content": "Tell me a story."}]
    plain = [*InProcess(bundled_engine).ask(question, settings)]
    source = InProcess(dataclasses.replace(bundled_engine, reply_format=form))
    reply = source.ask(question, settings)
    read = [*reply]
    for attribute in ("text", "tokens"):
        assert getattr(Answer(tuple(read), reply.statistics), attribute) == getattr(
            Answer(tuple(plain), reply.statistics), attribute
        )
    answer = Answer(tuple(read), reply.statistics, reply.place)
    branch = source.branch(answer, 10, None, settings)
    branched = Answer(tuple(branch), branch.statistics)
    assert branched.tokens[:10] == answer.tokens[:10]


def test_reasoning_of_a_server_is_no_content() -> None:
    def event(**delta: str) -> dict[str, object]:
        return {"choices": [{"index": 0, "delta": delta, "logprobs": None}]}

    sent = [event(role="assistant", content=""), event(reasoning_content="Hm."), event(content="A")]
    found = [piece for each in sent for piece in pieces(each)]
    assert found == [Piece("Hm.", (), True), Piece("A")]
    assert Answer(tuple(found), Statistics()).text == "A"
