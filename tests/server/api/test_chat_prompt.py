"""Prompts of conversations with tools, documents and open turns: rendered as by transformers, while
the text of messages stays text.
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from engine import ChatTemplate, InvalidInputError, Tokenizer
from engine.chat.prompt import ChatPrompt
from tests.support.chat_templates import ALL, BRACKETS, DOCUMENTS, HEADERS, MARKERS
from tests.support.tiny_models import SPECIALS, TEMPLATE, byte_level_tokenizer, save_tokenizer

TOKENS = {"bos_token": "<|endoftext|>", "eos_token": "<|end|>"}
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "its name, <b>not</b> its code"}},
    "required": ["city"],
}
TOOL = {
    "type": "function",
    "function": {"name": "weather", "description": "Of \u00e4 city.", "parameters": PARAMETERS},
}
DOCUMENT_LIST = [{"title": "One", "text": "line\nline"}, {"text": "two"}]
ARGUMENTS = '{"city": "Ulm", "days": [1, 2]}'


def call(arguments: Any) -> dict[str, Any]:
    function = {"name": "weather", "arguments": arguments}
    return {"id": "abcdefgh1", "type": "function", "function": function}


def conversation(arguments: Any) -> list[dict[str, Any]]:
    return [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": " Is it raining? "},
        {"role": "assistant", "content": None, "tool_calls": [call(arguments)]},
        {"role": "tool", "tool_call_id": "abcdefgh1", "name": "weather", "content": "no"},
        {"role": "assistant", "content": "No.", "reasoning_content": "dry"},
        {"role": "user", "content": "And tomorrow?"},
        {"role": "assistant", "content": "Tomorrow it"},
    ]


def template(source: str, tool_source: str | None = None) -> ChatTemplate:
    return ChatTemplate(source, tool_source=tool_source, special_tokens=TOKENS, where="test")


def oracle() -> Any:
    build: Any = PreTrainedTokenizerFast
    return build(tokenizer_object=byte_level_tokenizer(), **TOKENS)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(path, byte_level_tokenizer())
    return Tokenizer.load(path, 320)


@pytest.mark.parametrize("source", ALL.values(), ids=ALL)
@pytest.mark.parametrize("n_messages", [2, 4, 6])
@pytest.mark.parametrize("tools", [None, [TOOL], [TOOL, TOOL]], ids=["none", "one", "two"])
def test_renders_as_transformers_does(source: str, n_messages: int, tools: Any) -> None:
    arguments = ARGUMENTS if source is DOCUMENTS else json.loads(ARGUMENTS)
    variables = {"enable_thinking": False, "reasoning_effort": "high"}
    expected = oracle().apply_chat_template(
        conversation(arguments)[:n_messages], chat_template=source, tokenize=False, tools=tools,
        documents=DOCUMENT_LIST, add_generation_prompt=True, **variables,
    )  # fmt: skip
    prompt = ChatPrompt.of(
        template(source), conversation(ARGUMENTS)[:n_messages], tools=tools,
        documents=DOCUMENT_LIST, template_kwargs=variables,
    )  # fmt: skip
    assert prompt.text() == expected


@pytest.mark.parametrize("source", ALL.values(), ids=ALL)
def test_an_open_turn_is_as_transformers_leaves_it(source: str) -> None:
    arguments = ARGUMENTS if source is DOCUMENTS else json.loads(ARGUMENTS)
    expected = oracle().apply_chat_template(
        conversation(arguments), chat_template=source, tokenize=False, continue_final_message=True,
        reasoning_effort=None,
    )  # fmt: skip
    prompt = ChatPrompt.of(template(source), conversation(ARGUMENTS), continue_final_message=True)
    assert prompt.text() == expected
    assert expected.endswith("Tomorrow it")


@pytest.mark.parametrize("content", ["x", "", " ", "So: ", "two\n\n", "  lead", "<|end|>", "end"])
@pytest.mark.parametrize("source", [TEMPLATE, HEADERS, MARKERS, BRACKETS])
def test_an_open_turn_ends_with_its_text(tokenizer: Tokenizer, source: str, content: str) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": content}]
    prompt = ChatPrompt.of(template(source), messages, continue_final_message=True)
    assert prompt.text().endswith(content.lstrip())
    token_ids = prompt.token_ids(tokenizer)
    assert tokenizer.decode(token_ids) == prompt.text()
    if content.strip():
        assert not tokenizer.is_control(token_ids[-1])


def test_an_open_turn_may_have_parts(tokenizer: Tokenizer) -> None:
    source = "{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}"
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b "}]
    messages = [{"role": "assistant", "content": parts}]
    prompt = ChatPrompt.of(template(source), messages, continue_final_message=True)
    assert prompt.text() == "[a][b "


@pytest.mark.parametrize(
    ("source", "content"),
    [
        ("nothing", "x"),
        ("{{ messages[0].content|upper }}", "x"),
        ("{{ messages[0].content.split('</think>')[-1] }}", "<think>a</think>b"),
        (TEMPLATE, None),
        (TEMPLATE, []),
    ],
)
def test_what_cannot_be_continued(source: str, content: Any) -> None:
    source += "{# content is none #}"
    messages = [{"role": "assistant", "content": content}]
    with pytest.raises(InvalidInputError, match="continue_final_message") as caught:
        ChatPrompt.of(template(source), messages, continue_final_message=True).text()
    assert caught.value.param == "continue_final_message"


def test_an_empty_conversation_cannot_be_continued() -> None:
    with pytest.raises(InvalidInputError, match="last message with text"):
        ChatPrompt.of(template(TEMPLATE), [], continue_final_message=True)


@pytest.mark.parametrize(
    ("source", "arguments", "expected"),
    [
        ("{{ c.arguments|tojson }}", '{"a":1}', '{"a": 1}'),
        ("{{ c.arguments|tojson }}", "{broken", '"{broken"'),
        ("{{ c.arguments|tojson }}", "[1]", '"[1]"'),
        ("{% for k, v in c.arguments|items %}{{ k }}={{ v }};{% endfor %}", '{"a":1}', "a=1;"),
        ("{{ c.arguments + '.' }}", '{"a":1}', '{"a":1}.'),
        (
            "{{ c.arguments if c.arguments is string else c.arguments|tojson }}",
            '{"a":1}',
            '{"a":1}',
        ),
    ],
)
def test_arguments_are_objects_where_the_template_needs_them(
    source: str, arguments: str, expected: str
) -> None:
    source = (
        "{% for m in messages %}{% for t in m.tool_calls or [] %}{% set c = t.function %}"
        + source
        + "{% endfor %}{% endfor %}"
    )
    messages = [{"role": "assistant", "content": None, "tool_calls": [call(arguments)]}]
    assert ChatPrompt.of(template(source), messages).text() == expected


@pytest.mark.parametrize(
    ("source", "role", "expected"),
    [
        ("{{ messages[0].role }}", "developer", "system"),
        ("{{ messages[0].role }}{# 'developer' #}", "developer", "developer"),
        ("{{ messages[0].role }}", "function", "tool"),
        ("{{ messages[0].role }}{# 'function' #}", "function", "function"),
        ("{{ messages[0].role }}{# 'function' 'tool' #}", "function", "tool"),
    ],
)
def test_roles_that_a_template_does_not_know(source: str, role: str, expected: str) -> None:
    assert ChatPrompt.of(template(source), [{"role": role, "content": ""}]).text() == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ messages[0].content }}", ""),
        ("{{ 'none' if messages[0].content is none else 'text' }}", "none"),
        ("{{ 'none' if messages[0]['content'] is not none else 'null' }}", "null"),
        ("{{ 'tool_calls' in messages[0] }}{# 'tool_calls' #}", "False"),
    ],
)
def test_no_content(source: str, expected: str) -> None:
    messages: list[dict[str, Any]] = [{"role": "assistant", "content": None, "tool_calls": []}]
    assert ChatPrompt.of(template(source), messages).text() == expected


def test_reasoning_by_any_of_its_names() -> None:
    source = "{{ messages[0].reasoning_content }}{{ messages[0].thinking }}"
    for name in ("reasoning_content", "reasoning", "thinking"):
        messages: list[dict[str, str]] = [{"role": "assistant", "content": "x", name: "hm"}]
        assert ChatPrompt.of(template(source), messages).text() == "hmhm"


def test_another_template_for_tools() -> None:
    both = template("plain{{ a }}", "tools{{ b }}")
    messages = [{"role": "user", "content": "x"}]
    assert ChatPrompt.of(both, messages).text() == "plain"
    assert ChatPrompt.of(both, messages, tools=[]).text() == "plain"
    assert ChatPrompt.of(both, messages, tools=[TOOL]).text() == "tools"
    assert (both.source, both.tool_source) == ("plain{{ a }}", "tools{{ b }}")
    assert both.variables == {"a", "b"}


def test_the_variables_of_a_template() -> None:
    assert {"messages", "tools", "enable_thinking"} <= template(MARKERS).variables
    assert not {"reasoning_effort", "namespace", "message"} & template(MARKERS).variables
    assert "reasoning_effort" in template(DOCUMENTS).variables


@pytest.mark.parametrize(
    "name", ["messages", "tools", "documents", "add_generation_prompt", "bos_token", "namespace"]
)
def test_variables_that_are_not_the_callers(name: str) -> None:
    messages = [{"role": "user", "content": "x"}]
    with pytest.raises(InvalidInputError, match=f"may not set '{name}'") as caught:
        ChatPrompt.of(template(TEMPLATE), messages, template_kwargs={name: "x"})
    assert caught.value.param == "chat_template_kwargs"


@pytest.mark.parametrize(
    ("argument", "value", "path"),
    [
        ("messages", [{"role": "user", "content": "\ud800"}], "messages[0].content"),
        ("messages", [{"role": "user", "content": [{"text": "\ud800"}]}],
         "messages[0].content[0].text"),
        ("messages", [{"role": "user", "content": b"x"}], "messages[0].content"),
        ("messages", [{"role": "king", "content": "x"}], "messages[0].role"),
        ("tools", [{"function": {"\ud800": 1}}], "tools[0].function"),
        ("documents", [{}, {"a b": "\ud800"}], "documents[1]['a b']"),
        ("template_kwargs", {"a": object()}, "chat_template_kwargs.a"),
    ],
)  # fmt: skip
def test_what_is_not_json_is_named_by_its_path(argument: str, value: Any, path: str) -> None:
    arguments: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}], argument: value}
    with pytest.raises(InvalidInputError) as caught:
        ChatPrompt.of(template(TEMPLATE), **arguments)
    assert caught.value.param == path
    assert str(caught.value).startswith(path)


def test_deep_values_are_refused() -> None:
    value: Any = "x"
    for _ in range(2000):
        value = [value]
    with pytest.raises(InvalidInputError, match="nested too deeply"):
        ChatPrompt.of(template(TEMPLATE), [], template_kwargs={"a": value})


EVERYTHING = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content|trim }}{% for c in m.tool_calls or [] %}"
    "<{{ c.function.name }}>{{ c.function.arguments|tojson }}{% endfor %}<|end|>{% endfor %}"
    "{% for t in tools or [] %}{{ t|tojson }}{% for key in t.function.parameters.properties %}"
    "<{{ key }}></{{ key }}><|{{ key }}|>{% endfor %}{% endfor %}"
    "{% for d in documents or [] %}<{{ d.text }}>{{ d|tojson }}{% endfor %}<|{{ mood }}|>"
    "<|assistant|>"
)
SLY = st.lists(
    st.sampled_from([*SPECIALS, "<", "|", ">", "<|", "|>", "|end|", "end", "user", " ", "x"]),
    max_size=5,
).map("".join)


@given(content=SLY, name=SLY, key=SLY, value=SLY, text=SLY, mood=SLY)
def test_no_text_of_a_message_becomes_a_control_token(
    tokenizer: Tokenizer, content: str, name: str, key: str, value: str, text: str, mood: str
) -> None:
    schema = {"type": "object", "properties": {key: {"type": value, "description": value}}}
    function = {"name": name, "arguments": json.dumps({key: value})}
    prompt = ChatPrompt.of(
        template(EVERYTHING),
        [{"role": "user", "content": content, "tool_calls": [{"function": function}]}],
        tools=[{"type": "function", "function": {"name": name, "parameters": schema}}],
        documents=[{"text": text, key: value}],
        template_kwargs={"mood": mood},
    )
    token_ids = prompt.token_ids(tokenizer)
    control = [tokenizer.decode([i]) for i in token_ids if tokenizer.is_control(i)]
    assert control == ["<|user|>", "<|end|>", "<|assistant|>"]
    assert tokenizer.decode(token_ids) == prompt.text()


def test_a_template_still_finds_what_it_looks_for_next_to_control_text(
    tokenizer: Tokenizer,
) -> None:
    source = "<|assistant|>{{ messages[0].content.split('</think>')[-1] }}<|end|>"
    messages = [{"role": "assistant", "content": "<think>hm</think>yes <|end|>"}]
    prompt = ChatPrompt.of(template(source), messages)
    assert tokenizer.decode(prompt.token_ids(tokenizer)) == "<|assistant|>yes <|end|><|end|>"
