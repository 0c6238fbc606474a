"""How a model writes is found in its template and its tokens."""

import pytest

from engine import ChatTemplate, Engine, ReplyFormat, Tool, describe_tools
from tests.support.family_templates import DEEPSEEK_V31
from tests.support.replies import FIRST_TAG, TEMPLATES, TagTokenizer

STYLES = {
    "{{ messages }}": ("hermes", False),
    "{% for tool in tools %}{{ tool }}{% endfor %}": ("hermes", False),
    "<tool_call>{{ call }}</tool_call>": ("hermes", True),
    "<tool_call>{{ name }}<arg_key>": ("hermes", False),
    "<tool_call><function={{ name }}>": ("tagged", True),
    "<|python_tag|>{{ call }}": ("llama3", True),
    '{"name": function name, "parameters": dictionary}': ("llama3", True),
    "[AVAILABLE_TOOLS] [TOOL_CALLS]": ("mistral", True),
}


@pytest.mark.parametrize("source", STYLES)
def test_the_style_of_calls(source: str) -> None:
    form = ReplyFormat.of(source, TagTokenizer())
    assert (form.tools.style, form.tools.in_template) == STYLES[source]
    assert form.reasoning is None
    assert not form.needs_reader(reads_tools=False)
    assert form.needs_reader(reads_tools=True)


def test_no_template() -> None:
    form = ReplyFormat.of(None, TagTokenizer())
    assert form.tools.style == "hermes"
    assert not form.tools.in_template


def test_the_bundled_model_knows_neither(bundled_engine: Engine) -> None:
    form = bundled_engine.reply_format
    assert form.reasoning is None
    assert (form.tools.style, form.tools.in_template) == ("hermes", False)
    assert not form.opens_in_reasoning(bundled_engine.tokenizer.encode("<think>"))


def test_tags_of_reasoning_are_those_of_the_template_or_tokens() -> None:
    thinking = ("<think>", "</think>")
    found = ReplyFormat.of("... </think> ...", TagTokenizer()).reasoning
    assert found is not None
    assert (found.open.text, found.close.text) == thinking
    assert found.open.token_id is None
    found = ReplyFormat.of("", TagTokenizer(plain=thinking)).reasoning
    assert found is not None
    assert (found.open.token_id, found.open.is_special) == (FIRST_TAG, False)
    found = ReplyFormat.of(
        "[THINK][/THINK]", TagTokenizer(["[THINK]", "[/THINK]", *thinking])
    ).reasoning
    assert found is not None
    assert (found.open.text, found.open.is_special, found.open.is_control) == (
        "[THINK]",
        True,
        True,
    )
    assert ReplyFormat.of("<think>", TagTokenizer(["<think>"])).reasoning is None


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(
    ("prompt", "opened"),
    [
        ("|user\nhi|assistant\n", False),
        ("|user\nhi|assistant\n<think>", True),
        ("|user\nhi|assistant\n<think>\n", True),
        ("|user\nhi|assistant\n<think>\n\n</think>\n\n", False),
        ("|user\nhi|assistant\n<think>\nSo far", True),
        ("|user\nhi|assistant\n<think>\nSo</think>Yes", False),
        ("|user\nwhat is <think>|assistant\n", False),
        ("|user\nwhat is <think>?|assistant\n<think>a</think> <think>", True),
        ("what is <think> for?\nanswer: ", False),
        ("what is <think> for?\n<think>\n", True),
        ("", False),
    ],
)
def test_whether_a_prompt_opens_the_reasoning(
    prompt: str, opened: bool, special: bool, plain: bool
) -> None:
    tags = ("<think>", "</think>")
    tokenizer = TagTokenizer(tags if special else (), plain=tags if plain else ())
    form = ReplyFormat.of(TEMPLATES["hermes"], tokenizer)
    assert form.opens_in_reasoning(tokenizer.encode(prompt)) == opened


def test_tools_are_described() -> None:
    text = describe_tools([Tool("f", {"type": "object"}, "Does \u00e9."), Tool("g")])
    assert (
        '{"name": "f", "description": "Does \u00e9.", "parameters": {"type": "object"}}\n' in text
    )
    assert '{"name": "g", "parameters": {"type": "object", "properties": {}' in text
    assert "<tool_call>" in text


def test_a_template_that_writes_calls_and_tells_of_no_tools_keeps_its_own_form() -> None:
    """DeepSeek V3.1: the description of tools shows a call as the template writes it."""
    template = ChatTemplate(DEEPSEEK_V31, special_tokens={}, where="template")
    form = ReplyFormat.of_template(template, TagTokenizer()).tools
    assert (form.style, form.in_template, form.writes_calls) == ("named", False, True)
    begin, separator, end = (
        f"<\uff5ctool\u2581{name}\uff5c>" for name in ("call\u2581begin", "sep", "call\u2581end")
    )
    text = describe_tools([Tool("f")], form.example)
    assert f'{begin}the name{separator}{{"an argument": "its value"}}{end}' in text
    assert "<tool_call>" not in text
