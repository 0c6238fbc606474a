"""A pause as bytes, exact to the last bit, and back.

Owns their form: JSON in zlib, events in rows with the kind first. Places are not in it: they are
stored with the streams that they are of.
"""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from engine import DraftCount, Prefill, PromptToken, Reuse, Snapshot, TopToken

from ..stream.inherited import first_steps
from ..stream.jobs import Begun, Clocks, Controlled, Event, JobEnd, Progress, Step, TokenCounts
from ..stream.pause import Past, Pause, Run
from .steps import N_PARTS, steps_from_json, steps_to_json
from .unpacking import unpacked

_LEVEL = 6


def pause_to_bytes(pause: Pause) -> bytes:
    counts, clocks, ends = pause.past
    whole = {
        "counts": asdict(counts),
        "clocks": asdict(clocks),
        "ends": [[each.eos_reason, each.reuse, each.drafts] for each in ends],
        "run": pause.run[1:],
    }
    packer = zlib.compressobj(_LEVEL)
    steps = [event for event in pause.events if isinstance(event, Step)]
    # Line by line: the interpreter's lock is not held for long, and the engine goes on.
    values = (whole, *steps_to_json(steps), *map(_row, pause.events))
    lines = (_json(value) + b"\n" for value in values)
    return b"".join([*map(packer.compress, lines), packer.flush()])


def pause_from_bytes(data: bytes, places: Mapping[int, Snapshot], place: Snapshot | None) -> Pause:
    """`places`: where the jobs before ended; `place`: where the running one is. Raises ValueError,
    TypeError, KeyError, LookupError or zlib.error for other bytes.
    """
    head, *values = map(json.loads, unpacked(data).splitlines())
    steps, rows = steps_from_json(values[:N_PARTS]), values[N_PARTS:]
    ends = tuple(
        JobEnd(reason, _reuse(reuse), {name: DraftCount(*count) for name, count in drafts.items()})
        for reason, reuse, drafts in head["ends"]
    )
    past = Past(TokenCounts(**head["counts"]), Clocks(**head["clocks"]), ends)
    return Pause(past, Run(place, *head["run"]), places, list(_events(rows, iter(steps))))


def _row(event: Event) -> list[Any]:
    match event:
        case Step():
            return ["step"]  # the next one of all
        case Begun():
            return ["begun", event.choice, _prefill_row(event.prefill), event.clock]
        case Controlled():
            # What is left is cut from the steps before it, in the same way as it was.
            left = event.pieces
            cut = None if left is None else [_n_tokens(left), sum(map(_n_characters, left))]
            return ["controlled", *event[:5], cut]
        case Progress():
            return ["progress", *event]
    raise TypeError(f"{type(event).__name__} is no event of a completion")


def _events(rows: Sequence[list[Any]], all_steps: Iterator[Step]) -> Iterator[Event]:
    steps: dict[int, list[Step]] = {}  # of each choice, as they are after each row
    for kind, *values in rows:
        if kind == "step":
            step = next(all_steps, None)
            if step is None:
                raise ValueError("more steps in order than there are")
            steps.setdefault(step.choice, []).append(step)
            yield step
        elif kind == "begun":
            yield Begun(values[0], _prefill(values[1]), values[2])
        elif kind == "controlled":
            *fields, cut = values
            event = Controlled(*fields)
            if cut is not None:
                left = steps[event.choice] = first_steps(steps.get(event.choice, ()), *cut)
                event = event._replace(pieces=tuple(left))
            yield event
        elif kind == "progress":
            yield Progress(*values)
        else:
            raise ValueError(f"an event of the kind {kind!r}")


def _prefill_row(prefill: Prefill) -> list[Any]:
    tokens = [
        [*each._replace(token_bytes=_text(each.token_bytes), top=_top_rows(each.top))]  # type: ignore[arg-type]
        for each in prefill.prompt_tokens
    ]
    return [
        prefill.n_prompt, prefill.n_cached, prefill.aborted, prefill.seed, prefill.reuse, tokens,
    ]  # fmt: skip


def _prefill(row: Sequence[Any]) -> Prefill:
    n_prompt, n_cached, aborted, seed, reuse, tokens = row
    prompt_tokens = tuple(map(_prompt_token, tokens))
    return Prefill(n_prompt, n_cached, aborted, seed, _reuse(reuse), prompt_tokens)


def _prompt_token(row: Sequence[Any]) -> PromptToken:
    token = PromptToken(*row)
    top: Sequence[Sequence[Any]] = token.top
    return token._replace(
        token_bytes=row[1].encode("latin-1"),
        top=tuple(TopToken(each[0], each[1].encode("latin-1"), *each[2:]) for each in top),
    )


def _reuse(row: Sequence[Any]) -> Reuse:
    n_reused, n_wanted, source, mismatch_at, reason, other_ids = row
    return Reuse(n_reused, n_wanted, source, mismatch_at, reason, tuple(other_ids))


def _top_rows(top: Sequence[TopToken]) -> list[list[Any]]:
    return [[each[0], _text(each[1]), *each[2:]] for each in top]


def _n_tokens(steps: Sequence[Step]) -> int:
    return sum(len(step.result.tokens) for step in steps)


def _n_characters(step: Step) -> int:
    return len(step.result.chunk)


def _text(data: bytes) -> str:
    return data.decode("latin-1")


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
