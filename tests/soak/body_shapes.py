"""Some sixty bodies near the size limit, each of a different shape: what a client can send to keep
a server busy with one request.

Owns only the shapes: a route and the bytes of a body, made on demand. Some are valid and answered,
most are refused; what matters is what happens to others meanwhile.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

N_SHAPES = 64
LIMIT = 8 * 1024 * 1024
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
_ROOM = 4096  # for the rest of the body around the large part
_USER = {"role": "user", "content": "x"}
_TEXT = "The quick brown fox, so they say, jumps over the lazy dog.\n"


class Shape(NamedTuple):
    """One body. Says nothing about how it is answered."""

    name: str
    path: str
    make: Callable[[str], bytes]
    """Makes the bytes, given the name of the model."""


def shapes() -> Iterator[Shape]:
    """All of them, the worst ones first."""
    yield from _prompts()
    yield from _messages()
    yield from _lists()
    yield from _objects()
    yield from _numbers_and_texts()
    yield from _token_routes()


def filled(item: str, *, size: int = LIMIT - _ROOM) -> str:
    """`item`, item, … in this many bytes."""
    return ",".join([item] * max(1, size // (len(item) + 1)))


def _with(path: str, field: str, value: str, **others: Any) -> Callable[[str], bytes]:
    """A body whose `field` is this JSON text."""

    def make(model: str) -> bytes:
        fields: dict[str, Any] = {"model": model, "max_tokens": 1, **others}
        if field not in ("prompt", "messages"):
            fields.update({"messages": [_USER]} if path == CHAT else {"prompt": "x"})
        return f'{json.dumps(fields)[:-1]},"{field}":{value}}}'.encode()

    return make


def _shape(name: str, path: str, field: str, value: str, **others: Any) -> Shape:
    return Shape(name, path, _with(path, field, value, **others))


def _text(piece: str, *, size: int = LIMIT - _ROOM) -> str:
    """A JSON string of many such pieces, which are already JSON."""
    return f'"{piece * (size // len(piece.encode()))}"'


def _nested(depth: int, opening: str = "[", closing: str = "]", core: str = "1") -> str:
    return opening * depth + core + closing * depth


def _names(n: int, value: str = "0") -> str:
    return "{" + ",".join(f'"k{i}":{value}' for i in range(n)) + "}"


def _prompts() -> Iterator[Shape]:
    def prompt(name: str, value: str, **others: Any) -> Shape:
        return _shape(f"prompt: {name}", COMPLETIONS, "prompt", value, **others)

    yield prompt("floats", f"[{filled('0.5')}]")
    yield prompt("lists of one id", f"[{filled('[1]', size=5_000_000)}]")
    yield prompt("ids", f"[{filled('1')}]")
    yield prompt("131,072 ids", f"[{','.join(['5'] * 131_072)}]")
    yield prompt("299,000 ids and a text", f'[{",".join(["5"] * 299_000)},"x"]')
    yield prompt("290,000 floats", f"[{','.join(['0.5'] * 290_000)}]")
    yield prompt("65,000 lists", f"[{','.join(['[1]'] * 65_000)}]")
    yield prompt("empty strings", f"[{filled(json.dumps(''))}]")
    yield prompt("128 texts and 3,500 biases", f"[{filled(json.dumps('x'), size=512)}]",
                 logit_bias={str(i): 0.5 for i in range(3500)})  # fmt: skip
    yield prompt("null", f"[{filled('null')}]")
    yield prompt("empty lists", f"[{filled('[]')}]")
    yield prompt("deep lists", _nested(900))
    yield prompt("many deep lists", f"[{filled(_nested(60))}]")
    yield prompt("too deep", _nested(100_000))
    yield prompt("brackets without an end", "[" * (LIMIT - _ROOM))
    yield prompt("a text", _text(_TEXT[:-1]))
    yield prompt("a text, its end used", _text(_TEXT[:-1]), truncate_prompt_tokens=64)


def _messages() -> Iterator[Shape]:
    def messages(name: str, item: str, n: int | None = None, **others: Any) -> Shape:
        items = filled(item) if n is None else ",".join([item] * n)
        return _shape(f"messages: {name}", CHAT, "messages", f"[{items}]", **others)

    empty = '{"role":"user","content":""}'
    part = '{"type":"text","text":"x"}'
    call = '{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}'
    yield messages("200,000 wrong ones", '{"role":1}', 200_000)
    yield messages("250,000 empty ones", empty, 250_000)
    yield messages("objects without fields", "{}")
    yield messages("numbers", "1")
    yield messages("16,000 empty ones", empty, 16_000)
    yield messages("16,000 wrong ones", '{"role":1}', 16_000)
    yield messages("4,000 of 2 kB", json.dumps({**_USER, "content": _TEXT * 32}), 4000)
    yield messages("8,000 with a name", '{"role":"user","content":"x","name":"a"}', 8000)
    yield messages("parts without an end", f'{{"role":"user","content":[{filled(part)}]}}', 1)
    yield messages("4,096 parts", f'{{"role":"user","content":[{",".join([part] * 4096)}]}}', 1)
    yield messages("parts that are numbers", f'{{"role":"user","content":[{filled("1")}]}}', 1)
    yield messages("calls", f'{{"role":"assistant","tool_calls":[{filled(call)}]}}', 1)
    yield messages("12,000 calls", f'{{"role":"assistant","tool_calls":[{call}]}}', 12_000)
    yield messages("a text", f'{{"role":"user","content":{_text(_TEXT[:-1])}}}', 1)
    yield messages("unknown fields", _names(30_000)[:-1] + ',"role":"user"}', 1)


def _lists() -> Iterator[Shape]:
    def both(field: str, name: str, value: str, path: str = COMPLETIONS) -> Shape:
        return _shape(f"{field}: {name}", path, field, value)

    tool = '{"type":"function","function":{"name":"f"}}'
    yield both("stop", "strings", f"[{filled(json.dumps('x'))}]")
    yield both("stop_token_ids", "floats", f"[{filled('0.5')}]")
    yield both("banned_strings", "numbers", f"[{filled('5')}]")
    yield both("dry_sequence_breakers", "strings", f"[{filled(json.dumps('x'))}]")
    yield both("guided_choice", "strings", f"[{filled(json.dumps('x'))}]")
    yield both("logit_bias", "pairs", f"[{filled('[1,1]')}]")
    yield both("tools", "the same one", f"[{filled(tool)}]", CHAT)
    yield both("documents", "objects", f"[{filled('{}')}]", CHAT)
    yield both("an_unknown_field", "lists", f"[{filled('[]')}]")


def _objects() -> Iterator[Shape]:
    schema = f'{{"type":"object","properties":{_names(30_000, "{}")}}}'
    parameters = f'[{{"type":"function","function":{{"name":"f","parameters":{schema}}}}}]'
    yield _shape("logit_bias: 500,000 names", COMPLETIONS, "logit_bias", _names(500_000))
    yield _shape("logit_bias: 30,000 names", COMPLETIONS, "logit_bias", _names(30_000, '"x"'))
    yield _shape("template variables: 200,000", CHAT, "chat_template_kwargs", _names(200_000))
    yield _shape("template variables: 30,000", CHAT, "chat_template_kwargs", _names(30_000))
    yield _shape("json_schema: 30,000 properties", COMPLETIONS, "json_schema", schema)
    yield _shape("tools: 30,000 parameters", CHAT, "tools", parameters, tool_choice="required")
    yield _shape("an enum of numbers", COMPLETIONS, "json_schema", f'{{"enum":[{filled("7")}]}}')
    text = json.dumps(f'{{"enum":[{filled("[]", size=1_000_000)}]}}')
    yield _shape("a schema as text", COMPLETIONS, "json_schema", text)
    yield Shape("unknown fields: 30,000", COMPLETIONS, lambda _: _names(30_000).encode())
    yield Shape("a name twice, a million times", COMPLETIONS, lambda _: _same_names().encode())


def _same_names() -> str:
    return "{" + filled('"a":0') + "}"


def _numbers_and_texts() -> Iterator[Shape]:
    digits = "9" * 4300
    yield _shape("numbers of 4,300 digits", COMPLETIONS, "x", f"[{filled(digits)}]")
    yield _shape("numbers of 128 digits", COMPLETIONS, "x", f"[{filled(digits[:128])}]")
    yield _shape("a number of 8 MB", COMPLETIONS, "temperature", "9" * (LIMIT - _ROOM))
    yield _shape("escapes", COMPLETIONS, "prompt", _text(r"\n"))
    yield _shape("surrogates", COMPLETIONS, "prompt", _text(r"\ud83d\ude00"))
    yield _shape("halves of surrogates", COMPLETIONS, "prompt", _text(r"\ud83d"))
    yield _shape("commas in a text", COMPLETIONS, "prompt", _text(","))
    yield _shape("a user of 8 MB", COMPLETIONS, "user", _text("x"))


def _token_routes() -> Iterator[Shape]:
    def tokens(path: str, **fields: str) -> Shape:
        inside = ",".join(f'"{name}":{value}' for name, value in fields.items())
        name = f"{path}: {', '.join(fields)}"
        return Shape(name, path, lambda _: f"{{{inside}}}".encode())

    yield tokens("/tokenize", prompt=_text(_TEXT[:-1], size=1_000_000))
    # A longer answer would hold up the harness, which reads it.
    yield tokens("/tokenize", prompt=_text(_TEXT[:-1], size=100_000), with_pieces="true")
    yield tokens("/detokenize", tokens=f"[{','.join(['5'] * 262_144)}]")
    yield tokens("/apply-template", messages=f"[{filled(json.dumps(_USER))}]")
    yield tokens("/v1/token/encode", text=f"[{','.join([json.dumps(_USER)] * 16_000)}]")


def body_of(shape: Shape, model: str) -> bytes:
    """Its bytes, within the limit."""
    body = shape.make(model)
    return body if len(body) <= LIMIT else body[:LIMIT]
