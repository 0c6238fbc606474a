"""What the bundled model writes under a JSON schema at temperature 1 fits the schema, whatever the
seed, or was cut off by the length.
"""

import json
from collections import Counter
from typing import Any

import pytest

from engine import DEFAULT_MODEL, Engine, SamplingSettings
from engine.grammar.spec import ConstraintSpec
from tests.support.event_stream import parse_event_stream
from tests.support.live_server import live_server
from tests.support.schema_checker import fits, read_json
from tests.support.scripted_model import run, text_of

N_RUNS = 1000
MAX_TOKENS = 48
WORD: dict[str, Any] = {"type": "string", "maxLength": 12}
SCHEMAS: dict[str, dict[str, Any]] = {
    "person": {
        "type": "object",
        "properties": {"name": WORD, "age": {"type": "integer", "minimum": 0, "maximum": 120}},
        "required": ["name", "age"],
        "additionalProperties": False,
    },
    "list": {"type": "array", "items": WORD, "minItems": 1, "maxItems": 3},
    "choice": {"enum": ["frog", "cat", 7, None, ["a", {"b": 1.5}]]},
    "number": {"type": "number", "minimum": -1.5, "maximum": 1000},
    "either": {
        "anyOf": [
            {
                "type": "object",
                "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}},
                "required": ["kind", "lives"],
                "additionalProperties": False,
            },
            {"type": "array", "items": {"type": "boolean"}, "maxItems": 4},
        ]
    },
    "pattern": {"type": "string", "pattern": "^[a-z]{2,8}( [a-z]{2,8}){0,2}$"},
    "date": {
        "type": "object",
        "properties": {"on": {"type": "string", "format": "date"}, "sunny": {"type": "boolean"}},
        "required": ["on"],
        "additionalProperties": False,
    },
    "tree": {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "is": WORD,
                    "of": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2},
                },
                "required": ["is"],
                "additionalProperties": False,
            }
        },
    },
    "any object": {"type": "object", "maxProperties": 2, "additionalProperties": WORD},
    "escapes": {"type": "string", "minLength": 3, "maxLength": 16},
}


def test_what_is_written_fits_its_schema_in_a_thousand_runs() -> None:
    engine = Engine.load(DEFAULT_MODEL, device="cpu", quantize="8bit")  # faster to decode
    prompt = engine.tokenizer.encode("A story as JSON, about a frog: ")
    ends: Counter[str] = Counter()
    for seed in range(N_RUNS):
        name = list(SCHEMAS)[seed % len(SCHEMAS)]
        engine.generator.begin_stream_ex(
            prompt,
            SamplingSettings(temperature=1.0, seed=seed),
            max_new_tokens=MAX_TOKENS,
            constraint=ConstraintSpec("json_schema", SCHEMAS[name]),
        )
        results = run(engine.generator)
        ends[results[-1].eos_reason or ""] += 1
        if results[-1].eos_reason != "length":
            text = text_of(results)
            assert fits(read_json(text), SCHEMAS[name]), f"{name}, seed {seed}: {text}"
    assert ends["length"] <= N_RUNS / 4, "too few ended by themselves"


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_answered_fits_its_schema(bundled_engine: Engine, stream: bool) -> None:
    ends: Counter[str] = Counter()
    with live_server(bundled_engine) as server:
        for seed, (name, schema) in enumerate(SCHEMAS.items()):
            form = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}
            ask = {
                "model": bundled_engine.model_id,
                "messages": [{"role": "user", "content": "A story as JSON, about a frog."}],
                "temperature": 1,
                "seed": seed,
                "max_tokens": MAX_TOKENS,
                "response_format": form,
                "stream": stream,
            }
            body = server.post("/v1/chat/completions", ask).body
            chunks = parse_event_stream(body).chunks if stream else [json.loads(body)]
            choices = [choice for chunk in chunks for choice in chunk["choices"]]
            parts = [choice["delta" if stream else "message"] for choice in choices]
            ends[choices[-1]["finish_reason"]] += 1
            if choices[-1]["finish_reason"] == "stop":
                text = "".join(part.get("content") or "" for part in parts)
                assert fits(read_json(text), schema), f"{name}: {text}"
    assert ends.keys() <= {"stop", "length"}
    assert ends["stop"] > len(SCHEMAS) / 2
