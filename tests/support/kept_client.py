"""The clients of kept streams: what they ask for, and what the engine would have to do for it.

Owns the requests that a sequence may draw, each with its meaning in the engine's own terms, and the
readers of one answer, who must all see the same. Knows neither sequences nor which text comes out.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from engine import ConstraintSpec, Engine, Snapshot, Stream, StreamOptions, derived_seed
from server.kept.kept import SHUT_DOWN
from tests.support.event_reader import EventReader, chunks_of
from tests.support.live_server import Answer, LiveServer
from tests.support.stream_script import NUMBERS, Script

TEXTS = ("Once upon a time", "The river was", "otter")

# What a stream may be under: fields of the request, and what they are in the engine's options.
UNDER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": ({}, {}),
    "no drafts": ({"speculate": False}, {}),
    "bans": ({"banned_strings": ["e", "th", "ri"]}, {"banned_strings": ("e", "th", "ri")}),
    "stops": ({"stop": ["zq", "e w", "!"]}, {"stop": ("zq", "e w", "!")}),
    "constraint": (
        {"structured_outputs": {"regex": "[a-z ,]{150}"}},
        {"constraint": ConstraintSpec("regex", "[a-z ,]{150}")},
    ),
    "guidance": ({"negative_prompt": "otter", "cfg_scale": 1.5}, {"cfg_scale": 1.5}),
    "healing": ({"token_healing": True}, {"token_healing": True}),
}
# Fields that change what the events say, and nothing of the text.
TOLD: tuple[dict[str, Any], ...] = (
    {}, {}, {"logprobs": 2}, {"stream_options": {"include_usage": True}},
    {"include": ["suppressed", "timings", "stop"]},
)  # fmt: skip


BEGIN = st.fixed_dictionaries(
    {
        "under": st.sampled_from(sorted(UNDER)),
        "text": st.sampled_from(TEXTS),
        "temperature": st.sampled_from([0.0, 0.8, 1.5]),
        "seed": st.integers(0, 99),
        "max_tokens": st.integers(10, 180),
        "ignores_eos": st.booleans(),
        "n": st.sampled_from([1, 1, 1, 2]),
        "told": st.sampled_from(TOLD),
    }
)
CONTROLS = st.one_of(
    st.sampled_from([{"action": "pause"}, {"action": "resume"}]),
    st.sampled_from([{"action": "pause"}, {"action": "stop"}]),
    st.builds(lambda n: {"action": "rewind", "tokens": n}, st.integers(1, 30)),
    st.builds(lambda text: {"action": "inject", "text": text}, st.sampled_from(TEXTS)),
    st.builds(lambda token_id: {"action": "force", "token_id": token_id}, st.integers(4, 319)),
    st.builds(
        lambda values: {"action": "set", "settings": values},
        st.fixed_dictionaries(
            {"temperature": st.sampled_from([0.0, 0.8, 1.5])},
            optional={"seed": st.integers(0, 99), "top_k": st.sampled_from([5, 40])},
        ),
    ),
    st.builds(
        lambda values: {"action": "ban", **values},
        st.sampled_from([{"strings": ["a"]}, {"token_ids": [70, 80]}, {"strings": ["in", "o"]}]),
    ),
    st.builds(lambda n: {"action": "extend", "max_tokens": n}, st.integers(0, 200)),
)


@dataclass
class Kept:
    """One answer of the server, as its clients know it."""

    id: str
    scripts: list[Script]
    """Of its choices."""
    first: EventReader
    is_background: bool
    later: list[tuple[int, EventReader]] = field(default_factory=list)
    """Other readers, each with the number of the last event before it."""
    controls: list[dict[str, Any]] = field(default_factory=list)
    """What has been answered to them."""
    was_cut: bool = False
    is_deleted: bool = False

    def stream_id(self, index: int) -> str:
        return self.id if len(self.scripts) == 1 else f"{self.id}-{index}"

    def hang_up(self) -> None:
        """The client that began it leaves."""
        if not self.first.has_hung_up:
            self.was_cut |= not self.is_background and not self.first.is_over
            self.first.hang_up()

    def hang_up_later(self) -> None:
        for _, reader in self.later:
            reader.hang_up()

    def check_readers(self, log: list[bytes]) -> None:
        """Numbers without a gap, every control in its place, and every reader's bytes the same: to
        the end, or as far as it got.
        """
        plain = []
        for number, frame in enumerate(log, 1):
            head, _, rest = frame.partition(b"\n")
            assert head == b"id: %d" % number
            plain.append(rest)
        for said in self.controls:
            event = json.loads(plain[said["event"] - 1].removeprefix(b"data: "))["control"]
            names = ("action", "completion_tokens", "index")
            assert {name: event[name] for name in names} == {name: said[name] for name in names}
        told_of = [chunk["control"] for chunk in chunks_of(log) if "control" in chunk]
        asked_for = [each for each in told_of if each.get("reason") != SHUT_DOWN]
        assert len(asked_for) == len(self.controls), "each is told once"
        readers = [(0, self.first, plain), *((after, each, log) for after, each in self.later)]
        for after, reader, frames in readers:
            if reader.has_hung_up:
                n_read = len(reader.frames)
                assert reader.frames == frames[after : after + n_read]
            else:
                assert reader.rest() == frames[after:]
        self.later.clear()
        is_done = plain[-1] == b"data: [DONE]\n\n"
        assert is_done or self.was_cut, plain[-1]

    def check_restarted(self, before: list[dict[str, Any]], after: list[dict[str, Any]]) -> None:
        """What ended or was paused before is as it was; what ran or waited is paused, and says why.
        Both have what is shown of each choice.
        """
        was_paused = any(each["state"] == "paused" for each in before)
        for was, now in zip(before, after, strict=True):
            if was_paused and not self.was_cut:
                assert now == was
            elif was["state"] == "ended":  # another choice may have run
                assert {**now, "events": was["events"], "reason": was["reason"]} == was
        left = [each for each in after if each["state"] != "ended"]
        if left and not was_paused:
            assert left[0]["state"] == "paused"
            assert {each["reason"] for each in after} == {SHUT_DOWN}


class KeptClient:
    """Of one server, which may be started again."""

    def __init__(
        self, serve: Callable[[], AbstractContextManager[LiveServer]], engine: Engine
    ) -> None:
        """`serve`: starts it; `engine`: one like that it serves."""
        self.engine = engine
        self._serve = serve
        self._running = ExitStack()
        self.server = self._running.enter_context(serve())

    def restart(self) -> None:
        self.close()
        self.server = self._running.enter_context(self._serve())

    def close(self) -> None:
        self._running.close()

    def request(
        self,
        *,
        under: str,
        text: str,
        temperature: float,
        seed: int,
        max_tokens: int,
        ignores_eos: bool,
        n: int,
        told: dict[str, Any],
    ) -> tuple[dict[str, Any], list[Script]]:
        """A body, and the beginning of each of its choices."""
        fields, options = UNDER[under]
        body = {
            "prompt": text, "temperature": temperature, "seed": seed, "max_tokens": max_tokens,
            "ignore_eos": ignores_eos, "n": n, "store": True, "stream": True, **fields, **told,
        }  # fmt: skip
        engine, encode = self.engine, self.engine.tokenizer.encode
        if under == "guidance":
            options = {**options, "negative_ids": encode("otter")}
        stream = StreamOptions(
            max_new_tokens=max_tokens,
            stop_token_ids=engine.eos_token_ids,
            ignore_eos=ignores_eos,
            **options,
        )
        base = replace(engine.default_settings, temperature=temperature)
        seeds = [seed if k == 0 else derived_seed(seed, k) for k in range(n)]
        scripts = [
            Script(encode(text), replace(base, seed=each), stream, has_bans=under == "bans")
            for each in seeds
        ]
        return body, scripts

    def change(self, body: dict[str, Any]) -> Callable[[Stream], None]:
        """What the engine is told to do."""
        changes: dict[str, Callable[[Stream], None]] = {
            "inject": lambda stream: stream.inject(self.text_ids(body["text"])),
            "force": lambda stream: stream.force(body["token_id"]),
            "set": lambda stream: stream.set(replace(stream.settings, **body["settings"])),
            "ban": lambda stream: stream.ban(body.get("token_ids", ()), body.get("strings", ())),
            "extend": lambda stream: stream.extend(body["max_tokens"]),
        }
        return changes[body["action"]]

    def openings(
        self, changes: dict[str, Any], way: str | int | None, n: int
    ) -> Iterator[Callable[[Snapshot], Snapshot]]:
        changes = dict(changes)
        limit = changes.pop("max_tokens", None)

        def opened(place: Snapshot, k: int) -> Snapshot:
            settings_ = replace(place.settings, **changes)
            options = place.options
            if limit is not None:
                options = replace(options, max_new_tokens=limit)
            is_same = way is None and settings_.seed == place.settings.seed
            place = place.changed(
                settings=settings_, options=options, attempt=place.attempt + is_same + k
            )
            if isinstance(way, str):
                return place.injected(self.text_ids(way))
            return place if way is None else place.forced(way)

        for k in range(n):
            yield lambda place, k=k: opened(place, k)  # type: ignore[misc]

    def place_of(self, kept: Kept, index: int, share: int | None) -> int | None:
        """A place that the stream has passed."""
        if share is None or kept.is_deleted:
            return None
        shown = self.shown(kept, index)
        n_passed: int = shown["completion_tokens"]
        if shown["finish"] == "stop_token":
            n_passed -= 1
        return n_passed * share // 10

    def shown(self, kept: Kept, index: int) -> dict[str, Any]:
        answer = self.server.get(f"/v1/streams/{kept.stream_id(index)}")
        assert answer.status == 200, answer.body
        shown: dict[str, Any] = answer.json
        return shown

    def shown_all(self, kept: Kept) -> list[dict[str, Any]]:
        return [self.shown(kept, index) for index in range(len(kept.scripts))]

    def waits(self, kept: Kept, index: int) -> bool:
        """Whether the end of a server has paused it before its first token."""
        shown = self.shown(kept, index)
        return bool(shown["state"] == "paused" and not shown["completion_tokens"])

    def post(self, kept: Kept, index: int, route: str, body: dict[str, Any]) -> Answer:
        return self.server.post(f"/v1/streams/{kept.stream_id(index)}/{route}", body)

    def reader(self, path: str, after: int, *, is_header: bool = False) -> EventReader:
        sock = self.server.connect()
        query = "" if is_header else f"?starting_after={after}"
        header = f"last-event-id: {after}\r\n" if is_header else ""
        sock.sendall(f"GET {path}{query} HTTP/1.1\r\nhost: 127.0.0.1\r\n{header}\r\n".encode())
        reader = EventReader(sock)
        assert reader.response.status == 200
        return reader

    def text_ids(self, text: str) -> list[int]:
        encode = self.engine.tokenizer.encode
        return encode(text, add_special_tokens=False, parse_special=False)


def told_numbers(tokens: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The numbers of tokens as the routes write them."""
    return [tuple(token[name] for name in NUMBERS) for token in tokens]
