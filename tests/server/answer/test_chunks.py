"""What is around the choices of an answer, with a wire that is made for this test."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, cast

import pytest

from engine import Prefill, Reuse, SamplingSettings, StreamOptions, StreamResult, TokenRecord
from server.answer.chunks import ChoicesAnswer
from server.answer.metadata import Include
from server.stream.jobs import (
    Begun,
    Clocks,
    CompletionJob,
    Event,
    Progress,
    Step,
    TokenCounts,
)
from server.stream.stream import CompletionStream

HEAD = {"id": "x-1", "object": "test"}
ONCE = {"warnings": ["w"]}


class Shouting:
    """Choices whose text is in capitals. `read` has the steps that `add` looked at."""

    def __init__(self, *, opens: bool, is_text_alone: bool, is_plain: bool) -> None:
        self.opens = opens
        self.is_text_alone = is_text_alone
        self.is_plain = is_plain
        self.n_reasoning = 0
        self.read: list[str] = []
        self._index = -1

    def whole(self, events: Sequence[Event]) -> list[dict[str, Any]]:
        texts = [event.result.chunk for event in events if isinstance(event, Step)]
        return [{"text": "".join(texts).upper()}]

    def begin(self, begun: Begun) -> Iterable[dict[str, Any]]:
        self._index = begun.choice
        return [{"index": self._index, "begins": True}] if self.opens else []

    def add(self, step: Step) -> Iterable[dict[str, Any] | str]:
        self.read.append(step.result.chunk)
        self.n_reasoning += 1
        if step.result.eos:
            return [{"index": self._index, "ends": True}]
        if not step.result.chunk:
            return []
        return [step.result.chunk if self.is_text_alone else self.of_text(step.result.chunk)]

    def go_back(self, steps: Sequence[Step]) -> None:
        self.read = [step.result.chunk for step in steps]

    def of_text(self, text: str) -> dict[str, Any]:
        return {"index": self._index, "text": text}


def job(index: int) -> CompletionJob:
    return CompletionJob(
        index=index, input_ids=[1, 2, 3], settings=SamplingSettings(), options=StreamOptions()
    )


def answer(
    choices: Shouting,
    *,
    n: int = 2,
    include: Sequence[str] = (),
    include_usage: bool = False,
    continuous_usage: bool = False,
) -> ChoicesAnswer:
    return ChoicesAnswer(
        head=HEAD,
        once=ONCE,
        jobs=[job(index) for index in range(2)],
        n=n,
        new_choices=lambda: choices,
        chunk_object=HEAD["object"],
        include=Include.of(include),
        include_usage=include_usage,
        continuous_usage=continuous_usage,
    )


def begun(choice: int) -> Begun:
    reuse = Reuse(1, 2, "active", None, "test")
    prefill = Prefill(n_prompt=3, n_cached=1, aborted=False, seed=0, reuse=reuse)
    return Begun(choice, prefill, 0.0)


def step(choice: int, text: str, *, eos: bool = False) -> Step:
    token = cast(TokenRecord, object())
    reason = {"eos": True, "eos_reason": "length"} if eos else {}
    return Step(choice, StreamResult({"chunk": text, "tokens": (token,), **reason}), 0.0)


EVENTS: list[Event] = [
    Progress(0, 3, 1, 0.0, 1.0), begun(0), step(0, "a"), step(0, ""), step(0, 'b"\n'),
    step(0, "", eos=True), begun(1), step(1, "c"), step(1, "d"), step(1, "", eos=True),
]  # fmt: skip


def chunks(answer: ChoicesAnswer, *, batch: int = 1) -> list[dict[str, Any]]:
    encode = answer.encoder().frames
    frames = b"".join(encode(EVENTS[i : i + batch]) for i in range(0, len(EVENTS), batch))
    return [json.loads(frame.removeprefix(b"data: ")) for frame in frames.split(b"\n\n")[:-1]]


def ended() -> CompletionStream:
    """A stream that has ended, by what an answer asks of it."""

    class Ended:
        counts = TokenCounts(n_prompt=3, n_completion=2)
        clocks = Clocks()
        ends = ()

    return cast(CompletionStream, Ended())


SHAPES = [(opens, alone, plain) for opens in (0, 1) for alone in (0, 1) for plain in (0, 1)]


@pytest.mark.parametrize(("opens", "alone", "plain"), SHAPES)
@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("batch", [1, 3, 10])
def test_chunks_say_the_same_however_they_are_encoded(
    opens: int, alone: int, plain: int, continuous: bool, batch: int
) -> None:
    wire = Shouting(opens=bool(opens), is_text_alone=bool(alone), is_plain=bool(plain))
    progress, *others = chunks(answer(wire, continuous_usage=continuous), batch=batch)
    assert progress.keys() == {*HEAD, "choices", "prompt_progress"}
    expected: list[dict[str, Any]] = []
    for index, texts in enumerate((["a", 'b"\n'], ["c", "d"])):
        expected += [{"index": index, "begins": True}] * opens
        expected += [{"index": index, "text": text} for text in texts]
        expected.append({"index": index, "ends": True})
    assert [chunk["choices"] for chunk in others] == [[choice] for choice in expected]
    assert [chunk.get("warnings") for chunk in others] == [ONCE["warnings"]] + [None] * (
        len(others) - 1
    )
    assert all(chunk | HEAD == chunk for chunk in others)
    assert all(("usage" in chunk) == continuous for chunk in others)


@pytest.mark.parametrize(
    ("opens", "alone", "plain", "read"),
    [
        # The first chunk of a choice shows what is around its text; all others need no look.
        (True, True, True, ["", ""]),
        (False, True, True, ["a", "", "c", ""]),
        (True, True, False, ["a", "", 'b"\n', "", "c", "d", ""]),
        (True, False, True, ["a", "", 'b"\n', "", "c", "d", ""]),
    ],
)
def test_text_alone_is_encoded_without_a_look(
    opens: bool, alone: bool, plain: bool, read: list[str]
) -> None:
    wire = Shouting(opens=opens, is_text_alone=alone, is_plain=plain)
    chunks(answer(wire))
    assert wire.read == read


def test_counts_go_on_from_chunk_to_chunk() -> None:
    wire = Shouting(opens=True, is_text_alone=True, is_plain=True)
    usages = [chunk["usage"] for chunk in chunks(answer(wire, continuous_usage=True))[1:]]
    assert [usage["prompt_tokens"] for usage in usages] == [3] * 8
    assert [usage["completion_tokens"] for usage in usages] == [0, 1, 3, 4, 4, 5, 6, 7]
    reasoning = [usage["completion_tokens_details"]["reasoning_tokens"] for usage in usages]
    assert reasoning == [0, 1, 3, 4, 4, 5, 6, 7]


@pytest.mark.parametrize(("n", "prompt_tokens"), [(2, [3, 3]), (1, [3, 6])])
def test_a_prompt_counts_once_for_all_of_its_choices(n: int, prompt_tokens: list[int]) -> None:
    wire = Shouting(opens=True, is_text_alone=True, is_plain=True)
    said = chunks(answer(wire, n=n, continuous_usage=True))[1:]
    begin = [chunk for chunk in said if "begins" in chunk["choices"][0]]
    assert [chunk["usage"]["prompt_tokens"] for chunk in begin] == prompt_tokens


def test_with_usage_every_chunk_has_the_key_and_the_last_one_the_counts() -> None:
    wire = Shouting(opens=True, is_text_alone=True, is_plain=True)
    one = answer(wire, include_usage=True)
    assert all(chunk["usage"] is None for chunk in chunks(one)[1:])
    wire.n_reasoning = 7
    last, done, end = one.encoder().closing(ended()).split(b"\n\n")
    said = json.loads(last.removeprefix(b"data: "))
    assert said["choices"] == []
    assert said["usage"]["completion_tokens"] == 2
    assert said["usage"]["completion_tokens_details"]["reasoning_tokens"] == 7
    assert (done, end) == (b"data: [DONE]", b"")


def test_the_last_chunk_comes_only_with_something_to_say() -> None:
    wire = Shouting(opens=True, is_text_alone=True, is_plain=True)
    assert answer(wire).encoder().closing(ended()) == b"data: [DONE]\n\n"
    closing = answer(wire, include=["timings"]).encoder().closing(ended())
    assert json.loads(closing.split(b"\n\n")[0].removeprefix(b"data: ")).keys() == {
        *HEAD, "choices", "timings",
    }  # fmt: skip


def test_the_whole_answer_has_all_of_it() -> None:
    wire = Shouting(opens=True, is_text_alone=True, is_plain=True)
    said = json.loads(answer(wire).whole(ended(), EVENTS))
    assert said == {
        **HEAD, "choices": [{"text": 'AB"\nCD'}], "usage": said["usage"], **ONCE,
    }  # fmt: skip
    assert said["usage"]["total_tokens"] == 5
