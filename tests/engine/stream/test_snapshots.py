"""A stream that is taken up again, in this process or another, is the one that was never left."""

import json
import subprocess
import sys
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import (
    DEFAULT_MODEL,
    AbortFlag,
    ConstraintSpec,
    Engine,
    InvalidInputError,
    Repeat,
    SamplingSettings,
    Snapshot,
    StopWhen,
    Stream,
    StreamOptions,
    StreamResult,
    snapshot_from_bytes,
    snapshot_to_bytes,
)

PROMPT = "Once upon a time, in a little house by the sea, there lived"
N_TOKENS = 24
MAGIC = b"soliton stream 1\n"

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 30}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}
LOADS: dict[str, dict[str, Any]] = {
    "plain": {},
    "ngram": {"speculate": "ngram"},
    "draft": {"speculate": "draft"},
    "8bit cache": {"kv_cache": "8bit"},
    "4bit cache": {"kv_cache": "4bit", "speculate": "draft"},
    "8bit": {"quantize": "8bit", "kv_cache": "8bit", "speculate": "draft"},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 1.0, "top_p": 0.9},
    "penalties": {"repetition_penalty": 1.3, "frequency_penalty": 0.5, "presence_penalty": 0.3},
    "dry": {"dry_multiplier": 2.0, "dry_allowed_length": 1},
    "mirostat": {"mirostat": True, "mirostat_eta": 0.5},
    "xtc": {"xtc_probability": 0.5, "xtc_threshold": 0.05},
    "few": {"temperature": 2.0, "allowed_tokens": (300, 301, 302)},
    "bias": {"logit_bias": {27: 3.0, 5: float("-inf")}, "banned_tokens": (7,)},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "json": {"constraint": ConstraintSpec("json_schema", SCHEMA)},
    "regex": {"constraint": ConstraintSpec("regex", " (a|the) [a-z]{3,9} [a-z ]{5,40}\\.")},
    "gbnf": {"constraint": ConstraintSpec("gbnf", 'root ::= (" " [a-z]+)+ "."')},
    "banned": {"banned_strings": ["the", " was ", "little girl"]},
    "stop": {"stop": ["ed to", "xyz", " and the big"]},
    "both": {"stop": ["they all"], "banned_strings": [" was a", "little"]},
    "healing": {"token_healing": True},
    "guidance": {"cfg_scale": 1.8, "negative_ids": (30, 31, 32, 33)},
    "ignore_eos": {"ignore_eos": True, "min_new_tokens": 20},
    "watched": {"watch": [(27,), (5, 300, 301)], "banned_strings": [" was a", "little"]},
    "unsure": {"stop_when": StopWhen(entropy_gt=5.0)},
    "unlikely": {
        "stop_when": StopWhen(mean_logprob_lt=-1.2, p_eos_gt=0.9),
        "banned_strings": [" named", " was ", "little girl"],
        "min_new_tokens": 8,
    },
    "looping": {"stop_when": StopWhen(repeat=Repeat(3, 2)), "watch": [(27,)], "min_new_tokens": 9},
    "traced": {"return_top_tokens": 5, "return_trace": True, "return_logits": True},
}
# Each setting with the plain model, each option with drafts, and what concerns passes with each
# format.
CASES = [
    *[("plain", name, "traced") for name in SETTINGS],
    *[("draft", "sampled", name) for name in OPTIONS],
    *[(load, "sampled", "both") for load in ("ngram", "8bit cache", "4bit cache", "8bit")],
    *[(load, "few", "looping") for load in ("plain", "ngram")],
    ("8bit", "greedy", "guidance"),
    ("ngram", "mirostat", "json"),
]


@pytest.fixture(scope="module")
def loaded() -> Callable[[str], Engine]:
    return cache(lambda name: Engine.load(DEFAULT_MODEL, device="cpu", **LOADS[name]))


def options_of(engine: Engine, name: str) -> StreamOptions:
    prediction = engine.tokenizer.encode_continuation(" a little girl named Lily. She was")
    return StreamOptions(max_new_tokens=N_TOKENS, prediction=prediction, **OPTIONS[name])


def to_the_end(stream: Stream) -> tuple[list[StreamResult], list[Snapshot]]:
    """Its results, and a snapshot before each and after the last."""
    results: list[StreamResult] = []
    snapshots = [stream.snapshot()]
    while not results or not results[-1].eos:
        results.append(stream.step())
        snapshots.append(stream.snapshot())
    return results, snapshots


def told(results: list[StreamResult]) -> tuple[Any, ...]:
    """All that a stream says, but where the drafts of its tokens came from."""
    records = [token for result in results for token in (*result.tokens, *result.dropped)]
    rows = [result.logits for result in results if result.logits is not None]
    return (
        [record._replace(origin="", proposed=None) for record in records],
        "".join(result.chunk for result in results),
        np.concatenate(rows).tolist() if rows else None,
        (results[-1].eos_reason, results[-1].stop_string, results[-1].dropped_text),
        results[-1].stop_condition,
    )


def rest(whole: tuple[Any, ...], stream: Stream) -> tuple[Any, ...]:
    """What is left of it for a stream that inherits its beginning."""
    records, text, rows, *end = whole
    n = stream.n_inherited_tokens
    left = rows[n:] if rows is not None else None
    return records[n:], text[stream.n_inherited_characters :], left or None, *end


@pytest.mark.parametrize(("load", "settings", "options"), CASES)
def test_restored_is_uninterrupted(
    loaded: Callable[[str], Engine], load: str, settings: str, options: str
) -> None:
    engine = loaded(load)
    generator = engine.generator
    ids = engine.tokenizer.encode(PROMPT)
    chosen = SamplingSettings(seed=11, **SETTINGS[settings])
    results, snapshots = to_the_end(generator.begin(ids, chosen, options_of(engine, options)))
    whole = told(results)
    assert len(whole[0]) > 5

    for i in range(0, len(results), 4):
        generator.begin([1, 2, 3])  # the keys and values of the stream are gone
        stream = generator.restore(snapshot_from_bytes(snapshot_to_bytes(snapshots[i])))
        assert told(to_the_end(stream)[0]) == rest(whole, stream)
    # A stream that ended because of its text goes on after that when it is restored.
    n_most = snapshots[-1].n_tokens - (whole[3][0] in ("stop_string", "constraint"))
    for n in range(0, n_most + 1, 5):
        stream = generator.restore(snapshots[-1].at(n))
        assert told(to_the_end(stream)[0]) == rest(whole, stream)


def test_a_hold_in_the_middle_is_held_again(bundled_engine: Engine) -> None:
    generator = bundled_engine.generator
    ids = bundled_engine.tokenizer.encode("Once upon a time")
    greedy = SamplingSettings(temperature=0.0)
    text = told(to_the_end(generator.begin(ids, greedy, StreamOptions(max_new_tokens=16)))[0])[1]
    options = StreamOptions(max_new_tokens=16, stop=[text[4:30] + "#"], return_logits=True)
    results, snapshots = to_the_end(generator.begin(ids, greedy, options))
    held = [i for i, result in enumerate(results) if not result.tokens]
    assert len(held) > 2, "the stop string keeps tokens back for several steps"
    for i in held:
        stream = generator.restore(snapshots[i])
        assert stream.n_inherited_characters == len("".join(r.chunk for r in results[:i]))
        assert told(to_the_end(stream)[0]) == rest(told(results), stream)


def test_nothing_of_the_prompt_is_computed_for_a_branch() -> None:
    engine = Engine.load(DEFAULT_MODEL, device="cpu", prefix_bytes=2**26)
    generator = engine.generator
    ids = engine.tokenizer.encode(PROMPT * 4)
    parent = generator.begin(ids, SamplingSettings(seed=1), StreamOptions(max_new_tokens=30))
    _, snapshots = to_the_end(parent)
    n_most = snapshots[-1].n_tokens
    generator.begin([9] * 100)
    for n in (n_most, 12, 0, n_most - 1):
        stream = generator.restore(snapshots[-1].at(n))
        reuse = stream.prefill.reuse
        assert reuse.n_reused == reuse.n_wanted == len(ids) + stream.n_inherited_tokens - 1, reuse
        assert stream.n_inherited_tokens == n


def test_a_branch_leaves_its_parent_alone(bundled_engine: Engine) -> None:
    generator = bundled_engine.generator
    ids = bundled_engine.tokenizer.encode(PROMPT)
    results, snapshots = to_the_end(
        generator.begin(ids, SamplingSettings(seed=1), StreamOptions(max_new_tokens=20))
    )
    whole, parent = told(results), snapshots[-1]
    other = parent.token_ids[7] + 1
    branch = generator.restore(parent.at(7).forced(other))
    found = to_the_end(branch)
    assert found[1][-1].token_ids[:8] == (*parent.token_ids[:7], other)
    first = found[0][0].tokens[0]
    assert (first.token_id, first.origin, first.p_sampled) == (other, "forced", 1.0)
    # With the parent's own token it is the parent, but for the token's origin.
    own = generator.restore(parent.at(7).forced(parent.token_ids[7]))
    assert told(to_the_end(own)[0]) == rest(whole, own)
    again = generator.restore(parent.at(0))
    assert told(to_the_end(again)[0]) == whole


def test_another_attempt_goes_another_way(bundled_engine: Engine) -> None:
    generator = bundled_engine.generator
    ids = bundled_engine.tokenizer.encode(PROMPT)
    settings = SamplingSettings(temperature=1.2, seed=1)
    _, snapshots = to_the_end(generator.begin(ids, settings, StreamOptions(max_new_tokens=20)))
    parent = snapshots[-1]
    texts = set()
    for attempt in range(4):
        changed = parent.at(5).changed(attempt=attempt)
        first = to_the_end(generator.restore(changed))[1][-1].token_ids
        assert first == to_the_end(generator.restore(changed))[1][-1].token_ids
        assert first[:5] == parent.token_ids[:5]
        texts.add(first)
    assert len(texts) == 4
    assert parent.token_ids in texts


def test_another_seed_and_a_longer_limit(bundled_engine: Engine) -> None:
    generator = bundled_engine.generator
    ids = bundled_engine.tokenizer.encode(PROMPT)
    _, snapshots = to_the_end(
        generator.begin(ids, SamplingSettings(seed=1), StreamOptions(max_new_tokens=8))
    )
    ended = snapshots[-1]
    longer = ended.changed(options=StreamOptions(max_new_tokens=12))
    assert to_the_end(generator.restore(longer))[1][-1].n_tokens == 12
    other = longer.changed(settings=SamplingSettings(seed=2))
    assert to_the_end(generator.restore(other))[1][-1].settings.seed == 2
    whole = to_the_end(
        generator.begin(ids, SamplingSettings(seed=1), StreamOptions(max_new_tokens=12))
    )
    assert to_the_end(generator.restore(longer))[1][-1].token_ids == whole[1][-1].token_ids


def test_a_new_constraint_holds_for_the_text_from_there_on(bundled_engine: Engine) -> None:
    generator = bundled_engine.generator
    ids = bundled_engine.tokenizer.encode(PROMPT)
    stream = generator.begin(ids, SamplingSettings(seed=1), StreamOptions(max_new_tokens=40))
    for _ in range(6):
        stream.step()
    choices = (" in a red boat.", " in a big tree.")
    spec = ConstraintSpec("choices", choices)
    branch = generator.restore(
        stream.snapshot().changed(options=StreamOptions(max_new_tokens=40, constraint=spec))
    )
    results, snapshots = to_the_end(branch)
    assert told(results)[1] in choices
    assert results[-1].eos_reason in ("constraint", "stop_token")
    middle = generator.restore(snapshots[2])
    assert told(to_the_end(middle)[0]) == rest_of(results, branch, middle)


def rest_of(results: list[StreamResult], first: Stream, second: Stream) -> tuple[Any, ...]:
    """`rest`, where the first stream inherits a beginning itself."""
    records, text, rows, *end = told(results)
    n = second.n_inherited_tokens - first.n_inherited_tokens
    start = second.n_inherited_characters - first.n_inherited_characters
    return records[n:], text[start:], rows, *end


def test_another_process_goes_on(tmp_path: Path, bundled_engine: Engine) -> None:
    ids = bundled_engine.tokenizer.encode(PROMPT)
    stream = bundled_engine.generator.begin(
        ids, SamplingSettings(seed=4), StreamOptions(max_new_tokens=20, stop=["zebra"])
    )
    for _ in range(8):
        stream.step()
    path = tmp_path / "stream"
    path.write_bytes(snapshot_to_bytes(stream.snapshot()))
    program = (
        "import sys, pathlib\n"
        "from engine import DEFAULT_MODEL, Engine, snapshot_from_bytes\n"
        "snapshot = snapshot_from_bytes(pathlib.Path(sys.argv[1]).read_bytes())\n"
        "stream = Engine.load(DEFAULT_MODEL, device='cpu').generator.restore(snapshot)\n"
        "results = [stream.step()]\n"
        "while not results[-1].eos: results.append(stream.step())\n"
        "print(repr([token for result in results for token in result.tokens]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    results, _ = to_the_end(stream)
    assert done.stdout.strip() == repr([token for result in results for token in result.tokens])


def test_a_kept_stream_is_small(bundled_engine: Engine) -> None:
    rng = np.random.default_rng(1)
    ids = tuple(rng.integers(0, 4096, 500).tolist())
    new = Snapshot.new(ids[:100], SamplingSettings(seed=1), StreamOptions(), "0123456789abcdef")
    assert len(snapshot_to_bytes(replace_ids(new, ids))) < 2000


def replace_ids(snapshot: Snapshot, token_ids: tuple[int, ...]) -> Snapshot:
    return Snapshot(
        snapshot.prompt_ids, token_ids, snapshot.segments, fingerprint=snapshot.fingerprint
    )


def test_an_aborted_restore_keeps_its_place(bundled_engine: Engine) -> None:
    generator = bundled_engine.generator
    stream = generator.begin(
        bundled_engine.tokenizer.encode(PROMPT),
        SamplingSettings(seed=4, mirostat=True),
        StreamOptions(max_new_tokens=20, banned_strings=["a very long string that never comes"]),
    )
    for _ in range(8):
        stream.step()
    snapshot = stream.snapshot()
    abort = AbortFlag()
    abort.set()
    aborted = generator.restore(snapshot, abort=abort)
    assert aborted.prefill.aborted
    assert aborted.snapshot() == snapshot
    assert aborted.step().eos_reason == "aborted"
    assert aborted.snapshot() == snapshot


def edited(edit: Callable[[dict[str, Any]], Any], data: bytes) -> bytes:
    members = json.loads(zlib.decompress(data[len(MAGIC) :]))
    edit(members)
    return MAGIC + zlib.compress(json.dumps(members).encode())


EDITS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "it has no prompt_ids": lambda m: m.pop("prompt_ids"),
    "it has an unknown member 'more'": lambda m: m.update(more=1),
    "token_ids[1] must be int, not 'a'": lambda m: m.update(token_ids=[1, "a"]),
    "token_ids[0] must be int, not True": lambda m: m.update(token_ids=[True]),
    "segments must start at 0": lambda m: m["segments"][0].update(start=1),
    "segments[0].settings has no seed": lambda m: m["segments"][0]["settings"].pop("seed"),
    "segments[0].settings.temperature must be float": lambda m: m["segments"][0]["settings"].update(
        temperature="1"
    ),
    "temperature must be between": lambda m: m["segments"][0]["settings"].update(temperature=-1),
    "segments[0].options.stop must be a list of str": lambda m: m["segments"][0]["options"].update(
        stop="s"
    ),
    "segments[0].options has an unknown member 'abort'": lambda m: m["segments"][0][
        "options"
    ].update(abort=None),
    "given[0].origin must be one of forced": lambda m: m.update(given=[[0, 1, "nobody"]]),
    "given must hold runs in order": lambda m: m.update(given=[[0, 99, "forced"]]),
    "rewinds and call_bans must lie": lambda m: m.update(rewinds=[[99, 1]]),
    "mus must hold 4 numbers": lambda m: m.update(mus=[1.0]),
    "logprob_sums must hold 4 numbers at most": lambda m: m.update(logprob_sums=[0.0] * 5),
    "stop_when.entropy_gt must be between": lambda m: m["segments"][0]["options"].update(
        stop_when={"entropy_gt": -1}
    ),
    "stop_when.repeat must be a list of window, times": lambda m: m["segments"][0][
        "options"
    ].update(stop_when={"repeat": [1]}),
    "options.watch[0] must be a list of int": lambda m: m["segments"][0]["options"].update(
        watch=[1]
    ),
}


@pytest.mark.parametrize("reason", list(EDITS))
def test_what_was_tampered_with_is_refused(reason: str) -> None:
    segments = Snapshot.new([1, 2], SamplingSettings(seed=1), StreamOptions(stop=["x"])).segments
    data = snapshot_to_bytes(Snapshot((1, 2), (3, 4, 5), segments, fingerprint="f"))
    with pytest.raises(InvalidInputError) as raised:
        snapshot_from_bytes(edited(EDITS[reason], data))
    assert raised.value.param == "snapshot"
    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_was_damaged_is_refused() -> None:
    segments = Snapshot.new([1, 2], SamplingSettings(seed=1), StreamOptions()).segments
    data = snapshot_to_bytes(Snapshot((1, 2), (3, 4, 5), segments))
    assert snapshot_from_bytes(data).token_ids == (3, 4, 5)
    flipped = [bytes([*data[:i], data[i] ^ 4, *data[i + 1 :]]) for i in range(len(data))]
    bomb = MAGIC + zlib.compress(b" " * (65 << 20))
    for broken in (b"", data[:-1], data + b"1", bomb, *flipped):
        with pytest.raises(InvalidInputError, match="not a snapshot"):
            snapshot_from_bytes(broken)


def test_a_snapshot_that_does_not_fit_is_refused(
    bundled_engine: Engine, tiny_engine: Engine
) -> None:
    generator = bundled_engine.generator
    snapshot = generator.begin([1, 2, 3], None, StreamOptions(max_new_tokens=3)).snapshot()
    with pytest.raises(InvalidInputError, match="other logits"):
        tiny_engine.generator.restore(snapshot)
    outside = replace_ids(snapshot, (5, 10**6))
    with pytest.raises(InvalidInputError, match="snapshot holds token 1000000"):
        generator.restore(outside)
    with pytest.raises(InvalidInputError, match="maximum context length"):
        generator.restore(replace_ids(snapshot, (5,) * 10**5))
    with pytest.raises(InvalidInputError, match="at must be between 0 and 0"):
        snapshot.at(1)
    with pytest.raises(InvalidInputError, match="cannot change"):
        snapshot.changed(options=StreamOptions(token_healing=True))
    with pytest.raises(InvalidInputError, match="attempt must be between"):
        snapshot.changed(attempt=-1)
    spec = ConstraintSpec("regex", "[a-z]+")
    constrained = generator.begin([1, 2, 3], None, StreamOptions(constraint=spec)).snapshot()
    digits = tuple(bundled_engine.tokenizer.encode_continuation("123"))
    with pytest.raises(InvalidInputError, match="not allowed by the constraint"):
        generator.restore(replace_ids(constrained, digits))
    with pytest.raises(InvalidInputError, match="not allowed by the constraint"):
        generator.restore(constrained.injected(digits))
    with pytest.raises(InvalidInputError, match="waiting holds token 5000"):
        generator.restore(snapshot.forced(5000))


@pytest.mark.parametrize(("banned", "spec"), [([10**6], None), ([], ConstraintSpec("regex", "("))])
def test_what_is_wrong_is_refused_before_any_work(
    bundled_engine: Engine, banned: list[int], spec: ConstraintSpec | None
) -> None:
    seen: list[int] = []
    options = StreamOptions(constraint=spec, on_progress=lambda done, total: seen.append(done))
    with pytest.raises(InvalidInputError):
        bundled_engine.generator.begin(
            range(10, 900), SamplingSettings(banned_tokens=banned), options
        )
    assert not seen
