"""Kept streams and all that may be done to them over HTTP, against what the engine itself says.

Random sequences of operations on one server, which keeps running: nothing waits for anything, so a
control meets the stream wherever it is and says where that was. `make test` runs few of them:
SOLITON_SEQUENCES=1000 runs so many with each format of the cache.
"""

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from engine import Engine, StreamOptions
from tests.support.event_reader import EventReader, texts_of
from tests.support.kept_client import BEGIN, CONTROLS, Kept, KeptClient, told_numbers
from tests.support.live_server import Answer, LiveServer, live_server, wait_until
from tests.support.stream_script import Act, Oracle, Outcome, Script, numbers_of

N_SEQUENCES = int(os.environ.get("SOLITON_SEQUENCES", "6"))
PICK = st.integers(0, 9)
SHARE = st.integers(0, 10)  # tenths


class StreamsMachine(RuleBasedStateMachine):
    client: ClassVar[KeptClient]
    oracle: ClassVar[Oracle]

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Kept] = []
        self.checks: list[Callable[[], None]] = []
        """What is compared with the oracle once the server is idle: the native code serves one
        thread of a process at a time.
        """

    @initialize(drawn=BEGIN, is_background=st.booleans())
    def first(self, drawn: dict[str, Any], is_background: bool) -> None:
        self.another(drawn, is_background)

    @rule(drawn=BEGIN, is_background=st.booleans())
    def another(self, drawn: dict[str, Any], is_background: bool) -> None:
        body, scripts = self.client.request(**drawn)
        body["background"] = is_background
        first = EventReader(self.client.server.send("/v1/completions", body))
        self._add(first, scripts, is_background=is_background)

    def _add(self, first: EventReader, scripts: list[Script], *, is_background: bool) -> None:
        assert first.response.status == 200, first.response.read()
        first.read(1)
        id_ = json.loads(first.frames[0].removeprefix(b"data: "))["id"]
        self.kept.append(Kept(id_, scripts, first, is_background))

    @rule(which=PICK, share=SHARE)
    def read(self, which: int, share: int) -> None:
        """Some of the events that there are."""
        kept = self._one(which)
        if kept.is_deleted or kept.first.has_hung_up:
            return
        n_events = self.client.shown(kept, 0)["events"]
        kept.first.read((n_events - len(kept.first.frames)) * share // 10)

    @rule(which=PICK, share=SHARE, is_header=st.booleans())
    def read_along(self, which: int, share: int, is_header: bool) -> None:
        """Another reader, from any event on."""
        kept = self._one(which)
        path = f"/v1/streams/{kept.id}/events"
        if kept.is_deleted:
            assert self.client.server.get(path).status == 404
            return
        after = self.client.shown(kept, 0)["events"] * share // 10
        reader = self.client.reader(path, after, is_header=is_header)
        reader.read(1)
        kept.later.append((after, reader))

    @rule(which=PICK, choice=PICK, more=st.lists(PICK, max_size=2), data=st.data())
    def control(self, which: int, choice: int, more: list[int], data: st.DataObject) -> None:
        """One control, or several at once, which take effect in one order or another."""
        kept = self._one(which)
        index = choice % len(kept.scripts)
        bodies = [data.draw(CONTROLS, label="control") for _ in range(1 + len(more))]
        with ThreadPoolExecutor(len(bodies)) as pool:
            answers = list(
                pool.map(lambda body: self.client.post(kept, index, "control", body), bodies)
            )
        done = []
        for body, answer in zip(bodies, answers, strict=True):
            if answer.status == 200:
                done.append((answer.json["event"], body, answer.json))
            else:
                self._check_refused(kept, index, body, answer)
        for _, body, said in sorted(done, key=lambda each: int(each[0])):
            self._note(kept, index, body, said)

    def _check_refused(self, kept: Kept, index: int, body: dict[str, Any], answer: Answer) -> None:
        """A control has a reason not to be done."""
        if kept.is_deleted:
            assert answer.status == 404
            return
        message = answer.error["message"]
        if answer.status == 409:
            assert answer.error["code"] == "wrong_state"
            if "queued" in message:
                assert index
            elif "ended" in message:
                assert self.client.shown(kept, index)["state"] == "ended"
            elif "before its first token" in message:
                assert self.client.waits(kept, index)
            elif "stopped" not in message:  # by another control at this moment
                assert body["action"] in ("pause", "resume")
            return
        assert answer.status == 400, answer.body
        assert body["action"] in ("rewind", "inject", "force"), message

    def _note(self, kept: Kept, index: int, body: dict[str, Any], said: dict[str, Any]) -> None:
        kept.controls.append({**said, "index": index})
        assert said["action"] == body["action"]
        n_tokens, script = said["completion_tokens"], kept.scripts[index]
        if body["action"] == "rewind":
            n_taken = body["tokens"]
            back = Act(n_tokens + n_taken, lambda stream: stream.rewind(n_taken), goes_back=True)
            script.acts.append(back)
        elif body["action"] == "stop":
            script.acts.append(Act(n_tokens, None))
        elif body["action"] not in ("pause", "resume"):
            script.acts.append(Act(n_tokens, self.client.change(body)))
            script.has_bans |= bool(body.get("strings"))

    @rule(
        which=PICK,
        choice=PICK,
        share=st.none() | SHARE,
        way=st.none() | st.sampled_from(["otter", " the"]) | st.integers(5, 319),
        temperature=st.none() | st.sampled_from([0.0, 0.8, 1.5]),
        seed=st.none() | st.integers(0, 99),
        max_tokens=st.none() | st.integers(1, 180),
        n=st.sampled_from([None, 1, 2]),
        is_background=st.booleans(),
    )
    def branch(
        self,
        which: int,
        choice: int,
        share: int | None,
        way: str | int | None,
        temperature: float | None,
        seed: int | None,
        max_tokens: int | None,
        n: int | None,
        is_background: bool,
    ) -> None:
        kept = self._one(which)
        index = choice % len(kept.scripts)
        at = self.client.place_of(kept, index, share)
        overrides = {"temperature": temperature, "seed": seed, "max_tokens": max_tokens}
        changes = {name: value for name, value in overrides.items() if value is not None}
        opening = {} if way is None else {"text" if isinstance(way, str) else "token_id": way}
        body = {**changes, **opening, "at": at, "n": n, "stream": True}
        parent = kept.scripts[index].frozen()
        path = f"/v1/streams/{kept.stream_id(index)}/branch"
        first = EventReader(self.client.server.send(path, body))
        if first.response.status != 200:
            answer = Answer(first.response.status, {}, first.response.read())
            first.hang_up()
            self._check_unplaced(kept, index, answer, is_given=way is not None)
            return
        place = json.loads(self._first_frame(first))["branch"]
        assert place["id"] == kept.stream_id(index)
        assert at is None or place["at"] == at
        scripts = [
            replace(parent, parent=parent, at=place["at"], opening=opened, acts=[])
            for opened in self.client.openings(changes, way, n or 1)
        ]
        self._add(first, scripts, is_background=kept.is_background)

    @rule(
        which=PICK,
        choice=PICK,
        share=st.none() | SHARE,
        token_ids=st.none() | st.lists(st.integers(5, 319), min_size=1, max_size=3),
        top=st.integers(1, 3),
        tokens=st.integers(1, 6),
    )
    def peek(
        self,
        which: int,
        choice: int,
        share: int | None,
        token_ids: list[int] | None,
        top: int,
        tokens: int,
    ) -> None:
        kept = self._one(which)
        index = choice % len(kept.scripts)
        at = self.client.place_of(kept, index, share)
        script = kept.scripts[index].frozen()
        asked = {"at": at, "token_ids": token_ids, "top": top, "tokens": tokens}
        answer = self.client.post(kept, index, "peek", asked)
        if answer.status != 200:
            self._check_unplaced(kept, index, answer, is_given=True)
            return
        said = answer.json
        assert at is None or said["at"] == at
        found = [
            (one["text"], one["stop"], told_numbers(one["tokens"])) for one in said["alternatives"]
        ]

        def check() -> None:
            wanted = self.oracle.peeks(script, said["at"], token_ids, top, tokens)
            seen = [
                [(one.text, one.eos_reason, numbers_of(one.tokens)) for one in glimpses]
                for glimpses in wanted
            ]
            assert found in seen

        self.checks.append(check)

    def _check_unplaced(self, kept: Kept, index: int, answer: Answer, *, is_given: bool) -> None:
        """There is a reason why nothing can be done at that place."""
        if kept.is_deleted:
            assert answer.status == 404
        elif answer.status == 409:
            shown = self.client.shown(kept, index)
            never_began = shown["state"] == "ended" and not shown["completion_tokens"]
            assert index or never_began or self.client.waits(kept, index), answer.body
        else:
            assert (answer.status, is_given) == (400, True), answer.body

    @rule(which=PICK, choice=PICK)
    def replay(self, which: int, choice: int) -> None:
        kept = self._one(which)
        index = choice % len(kept.scripts)
        answer = self.client.post(kept, index, "replay", {})
        if kept.is_deleted:
            assert answer.status == 404
        elif answer.status == 200:
            asked = (kept.scripts[index], kept.controls)
            assert answer.json["first_difference"] is None, asked
            assert answer.json["tokens"] == self.client.shown(kept, index)["completion_tokens"]
        else:
            assert answer.status == 409
            if "first token" in answer.error["message"]:
                assert not self.client.shown(kept, index)["completion_tokens"]
            else:
                assert "can be replayed" in answer.error["message"]

    @rule(which=PICK)
    def hang_up(self, which: int) -> None:
        """The client that began it leaves."""
        self._one(which).hang_up()

    @rule(which=PICK)
    def hang_up_later(self, which: int) -> None:
        """A reader leaves: nobody notices."""
        kept = self._one(which)
        if kept.later:
            kept.later[-1][1].hang_up()

    @rule(which=PICK)
    def delete(self, which: int) -> None:
        kept = self._one(which)
        answer = self.client.server.request("DELETE", f"/v1/streams/{kept.id}")
        assert answer.status == (404 if kept.is_deleted else 200)
        kept.is_deleted = True

    @rule(is_time=st.booleans())
    def restart(self, is_time: bool) -> None:
        """The server ends and comes again. What ran or waited is paused; nothing else changes."""
        if not is_time:
            return
        for kept in self.kept:
            kept.hang_up()  # an open connection would have its time to finish
            kept.hang_up_later()
        left = [kept for kept in self.kept if not kept.is_deleted]
        before = [self.client.shown_all(kept) for kept in left]
        self.client.restart()
        for kept, old in zip(left, before, strict=True):
            kept.check_restarted(old, self.client.shown_all(kept))

    @rule(which=PICK)
    def finish(self, which: int) -> None:
        """Let it run to its end, and compare."""
        self._finish(self._one(which))

    @rule(seed=st.integers(0, 99))
    def unkept(self, seed: int) -> None:
        """A request like any other in between."""
        body = {"prompt": "The", "max_tokens": 8, "seed": seed, "temperature": 0.8}
        said = self.client.server.post("/v1/completions", body).json["choices"][0]
        script = Script(
            self.client.engine.tokenizer.encode("The"),
            replace(self.client.engine.default_settings, temperature=0.8, seed=seed),
            StreamOptions(max_new_tokens=8, stop_token_ids=self.client.engine.eos_token_ids),
        )

        def check() -> None:
            assert said["text"] == next(self.oracle.outcomes(script)).text

        self.checks.append(check)

    def teardown(self) -> None:
        try:
            for kept in self.kept:
                self._finish(kept)
            wait_until(lambda: self.client.server.running is None)
            for check in self.checks:
                check()
        finally:
            for kept in self.kept:
                kept.hang_up()
                kept.hang_up_later()
                self.client.server.request("DELETE", f"/v1/streams/{kept.id}")
            wait_until(lambda: self.client.server.running is None)
        for kept in self.kept:
            assert self.client.server.get(f"/v1/streams/{kept.stream_id(0)}").status == 404
            assert self.client.post(kept, 0, "branch", {}).status == 404
        assert self.client.server.get("/v1/streams").json["data"] == []

    def _finish(self, kept: Kept) -> None:
        if kept.is_deleted:
            return
        for index in range(len(kept.scripts)):
            wait_until(lambda index=index: self._goes_on(kept, index))  # type: ignore[misc]
        for index in range(len(kept.scripts)):
            wait_until(
                lambda index=index: self.client.shown(kept, index)["state"] == "ended"  # type: ignore[misc]
            )
            assert self.client.post(kept, index, "control", {"action": "resume"}).status == 409
        log = self.client.reader(f"/v1/streams/{kept.id}/events", 0).rest()
        kept.check_readers(log)
        texts = texts_of(log)
        for index, script in enumerate(kept.scripts):
            shown = self.client.shown(kept, index)
            assert texts.get(index, "") == shown["text"]
            assert len(shown["tokens"]) == shown["completion_tokens"]
            found = Outcome(told_numbers(shown["tokens"]), shown["text"], shown["finish"])
            self.checks.append(partial(self._check_outcome, kept.was_cut, script, found))

    def _goes_on(self, kept: Kept, index: int) -> bool:
        """Resume it if it is paused. Whether it has ended."""
        shown = self.client.shown(kept, index)
        if shown["state"] == "paused":
            answer = self.client.post(kept, index, "control", {"action": "resume"})
            if answer.status == 200:
                kept.controls.append({**answer.json, "index": index})
        return bool(shown["state"] == "ended")

    def _check_outcome(self, was_cut: bool, script: Script, found: Outcome) -> None:
        is_cut = was_cut and found.finish == "error"
        wanted: Outcome | None = None
        for wanted in self.oracle.outcomes(script):
            if found == wanted or (is_cut and wanted.begins_with(found)):
                return
        if is_cut and (script.has_bans or script.options.stop):
            return  # what was held when it was cut off has been shown
        raise AssertionError(f"{script}\nsaid {found}\nnot {wanted}")

    def _one(self, which: int) -> Kept:
        return self.kept[which % len(self.kept)]

    @staticmethod
    def _first_frame(reader: EventReader) -> bytes:
        reader.read(1)
        return reader.frames[0].removeprefix(b"data: ")


@pytest.mark.timeout(60 + 5 * N_SEQUENCES)
@pytest.mark.parametrize("kv_cache", ["auto", "8bit"])
def test_sequences(tiny_model: Path, tmp_path: Path, kv_cache: str) -> None:
    load = partial(Engine.load, tiny_model, device="cpu", dtype="float32", kv_cache=kv_cache)

    def serve() -> AbstractContextManager[LiveServer]:
        return live_server(load(), keep_streams_dir=tmp_path / "kept")

    with closing(KeptClient(serve, load())) as StreamsMachine.client:
        StreamsMachine.oracle = Oracle(load())
        run_state_machine_as_test(
            StreamsMachine,
            settings=settings(
                max_examples=N_SEQUENCES,
                stateful_step_count=20,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
