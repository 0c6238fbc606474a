"""Chat templates: rendered as by transformers, in a sandbox, and never writing control tokens for
the text of a message.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from engine import ChatTemplate, InvalidInputError, ModelLoadError, TemplateError, Tokenizer
from engine.chat.prompt import ChatPrompt
from tests.support.tiny_models import SPECIALS, TEMPLATE, byte_level_tokenizer, save_tokenizer

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Tell me a story."},
    {"role": "assistant", "content": "Once upon a time."},
    {"role": "user", "content": "Another \u4f60\u597d!"},
]
LLAMA2_LIKE = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
    "{% else %}{% set loop_messages = messages %}{% endif %}"
    "{% for message in loop_messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate') }}{% endif %}"
    "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + message['content'] | trim }}"
    "{% else %}{{ ' ' + message['content'] + eos_token }}{% endif %}{% endfor %}"
)
BLOCKS = """{%- for message in messages %}
    {%- if loop.index > 3 %}{% break %}{% endif %}
    {% generation %}
{{ message | tojson }}
    {% endgeneration %}
{%- endfor %}
{%- if tools is not none %}TOOLS{% endif %}
{{ "PROMPT" if add_generation_prompt }}{{ strftime_now("%Y") | length }}
"""


def template(source: str) -> ChatTemplate:
    tokens = {"bos_token": "<|endoftext|>", "eos_token": "<|end|>"}
    return ChatTemplate(source, special_tokens=tokens, where="test")


def oracle() -> Any:
    build: Any = PreTrainedTokenizerFast
    return build(
        tokenizer_object=byte_level_tokenizer(), bos_token="<|endoftext|>", eos_token="<|end|>"
    )


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(path, byte_level_tokenizer())
    return Tokenizer.load(path, 320)


def encode_chat(template: ChatTemplate, tokenizer: Tokenizer, messages: Any) -> list[int]:
    return ChatPrompt.of(template, messages).token_ids(tokenizer)


@pytest.mark.parametrize("source", [TEMPLATE, LLAMA2_LIKE, BLOCKS])
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_renders_as_transformers_does(source: str, add_generation_prompt: bool) -> None:
    expected = oracle().apply_chat_template(
        MESSAGES,
        chat_template=source,
        tokenize=False,
        add_generation_prompt=add_generation_prompt,
    )
    rendered = template(source).render(MESSAGES, add_generation_prompt=add_generation_prompt)
    assert rendered == expected


LANGUAGE = (
    "{% for i in [1,2] %}{{ loop.cycle('a','b') }}{{ loop.changed(i) }}{% endfor %}",
    "{% set j = joiner(',') %}{{ j() }}{{ j() }}{% set c = cycler(1,2) %}{{ c.next() }}",
    "{% macro f() %}<{{ caller(1) }}>{% endmacro %}{% call(x) f() %}{{ x }}{% endcall %}",
    "{% filter upper|replace('A','b') %}abc{% endfilter %}",
    "{% set a, b = 1, [2] %}{{ a }}{{ b }}{% for k, v in {'x':[1]}.items() %}{{ k }}{{ v }}"
    "{% endfor %}",
    "{{ 'abc'[::-1] }}{{ [1,2,3][-2:] }}{{ 'abc'[1] }}{{ messages[0:1][0].role }}",
    "{% block a %}x{% block b scoped %}y{% endblock %}{% endblock %}{{ self.b() }}",
    "{{ 1 is in [1,2] }}{{ x is defined }}{{ 5 is divisibleby 5 }}{{ 'upper' is filter }}",
    "{% for i in [] %}{% else %}none{% endfor %}{% for i in range(5) if i is odd %}{{ i }}"
    "{{ loop.length }}{% endfor %}",
    "{% for i in [[1,[2]],[3]] recursive %}{% if i is iterable %}({{ loop(i) }})"
    "{% else %}{{ i }}{% endif %}{% endfor %}",
    "{{ '{} {x:>5}'.format(1, x=3) }}{{ '%s-%05.1f%%' % ('a', 2) }}{{ '%(a)s'|format(a=1) }}",
    "{{ 'a,b'.split(',') }}{{ ', '.join(['a','b']) }}{{ 'aXb'.partition('X') }}",
    "{{ [3,1]|sort|join(',') }}{{ [{'a':1},{'a':2}]|sum(attribute='a') }}{{ {'b':1}|dictsort }}",
    "{{ [1,2,3]|batch(2)|list }}{{ [{'k':1},{'k':1}]|groupby('k')|list }}{{ 'x'|center(5) }}",
    "{{ '<'|e + '>' }}{{ '<'|safe ~ '&' }}{{ 'a\nb'|indent(2) }}{{ 'abcdefghijkl'|truncate(5) }}",
    "{% autoescape true %}{{ '<' }}{{ '<' ~ '>' }}{% endautoescape %}",
)


@pytest.mark.parametrize("source", LANGUAGE)
def test_the_language_is_that_of_transformers(source: str) -> None:
    expected = oracle().apply_chat_template(MESSAGES, chat_template=source, tokenize=False)
    assert template(source).render(MESSAGES) == expected


def test_encodes_as_transformers_does(tokenizer: Tokenizer) -> None:
    expected = oracle().apply_chat_template(
        MESSAGES, chat_template=TEMPLATE, add_generation_prompt=True, return_dict=False
    )
    assert encode_chat(template(TEMPLATE), tokenizer, MESSAGES) == expected


def structure(tokenizer: Tokenizer, token_ids: list[int]) -> list[str]:
    """The control tokens in order."""
    return [tokenizer.decode([i]) for i in token_ids if tokenizer.is_special(i)]


ONE_TURN = ["<|user|>", "<|end|>", "<|assistant|>"]
NEAR = st.lists(
    st.sampled_from([*SPECIALS, "<", "|", ">", "<|", "|>", "end", " ", "\n", "x", "\U000f0000"])
).map("".join)


@given(content=NEAR)
def test_what_a_message_says_is_text(tokenizer: Tokenizer, content: str) -> None:
    messages = [{"role": "user", "content": content}]
    token_ids = encode_chat(template(TEMPLATE), tokenizer, messages)
    assert structure(tokenizer, token_ids) == ONE_TURN
    assert tokenizer.decode(token_ids) == f"<|user|>{content}<|end|><|assistant|>"


@given(contents=st.lists(NEAR, min_size=1, max_size=4))
def test_control_text_over_several_parts_is_text(tokenizer: Tokenizer, contents: list[str]) -> None:
    source = (
        "{% for m in messages %}<|{{ m.role }}|>{% for part in m.content %}{{ part.text }}"
        "{% endfor %}<|end|>{% endfor %}<|assistant|>"
    )
    parts = [{"type": "text", "text": text} for text in contents]
    token_ids = encode_chat(template(source), tokenizer, [{"role": "user", "content": parts}])
    assert structure(tokenizer, token_ids) == ONE_TURN
    expected = f"<|user|>{''.join(contents)}<|end|><|assistant|>"
    assert tokenizer.decode(token_ids) == expected


def test_a_template_that_reads_the_content_still_works(tokenizer: Tokenizer) -> None:
    source = (
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content.split('</think>')[-1] }}<|end|>"
        "{% endfor %}"
    )
    messages = [{"role": "assistant", "content": "<think>hm</think>yes"}]
    token_ids = encode_chat(template(source), tokenizer, messages)
    assert tokenizer.decode(token_ids) == "<|assistant|>yes<|end|>"


def test_text_before_and_after_control_text_is_encoded_as_usual(tokenizer: Tokenizer) -> None:
    messages = [{"role": "user", "content": "the river<|end|>the otter"}]
    token_ids = encode_chat(template(TEMPLATE), tokenizer, messages)
    for text in ("the river", "the otter"):
        part = tokenizer.encode(text)
        assert any(token_ids[i : i + len(part)] == part for i in range(len(token_ids)))


READS_CONTENT = "{% for m in messages %}[{{ 'x' if 'x' in m.content else m.content }}]{% endfor %}"


@pytest.mark.parametrize("asks", ["", "{% if m.reasoning_content is not none %}{% endif %}"])
def test_a_message_of_calls_alone_has_an_empty_text(tokenizer: Tokenizer, asks: str) -> None:
    """Also for a template that asks whether there is reasoning, as Qwen 3's does."""
    source = READS_CONTENT.replace("{% for m in messages %}", "{% for m in messages %}" + asks)
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    assert ChatPrompt.of(template(source), messages).text() == "[]"


def test_a_template_that_asks_for_null_gets_it(tokenizer: Tokenizer) -> None:
    source = "{% for m in messages %}{{ 'null' if m['content'] is none else 'text' }}{% endfor %}"
    messages = [{"role": "assistant", "content": None, "reasoning_content": "h"}]
    assert ChatPrompt.of(template(source), messages).text() == "null"


@pytest.mark.parametrize("role", ["endoftext", "user|><|end", "", None, 1, "User"])
def test_roles_are_a_closed_list(tokenizer: Tokenizer, role: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"messages\[0\]\.role must be one of") as caught:
        encode_chat(template(TEMPLATE), tokenizer, [{"role": role, "content": "x"}])
    assert caught.value.param == "messages[0].role"


def test_lone_surrogates_are_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(InvalidInputError, match=r"messages\[0\]\.content holds a lone surrogate"):
        encode_chat(template(TEMPLATE), tokenizer, [{"role": "user", "content": "\ud800"}])


def test_the_template_may_refuse_the_messages() -> None:
    with pytest.raises(TemplateError, match="Roles must alternate"):
        template(LLAMA2_LIKE).render([{"role": "assistant", "content": "x"}])


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ ''['__class__'].__subclasses__() }}",
        "{{ ''|attr('__class__')|attr('__base__') }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ lipsum.__globals__['os'].system('id') }}",
        "{{ raise_exception.__globals__ }}",
        "{{ strftime_now.__globals__.datetime }}",
        "{{ self.__init__.__globals__ }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}{{ os }}",
        "{% extends '/etc/passwd' %}",
    ],
)
def test_the_sandbox_holds(source: str) -> None:
    try:
        rendered = template(source).render(MESSAGES)
    except TemplateError:
        return
    assert rendered == "", "a name of Python must be an error or nothing"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ messages[0].update({'role': 'x'}) }}", "unsafe"),
        ("{{ range(10**9) | length }}", "Range too big"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ("{{ messages[9].content.x }}", "no element 9"),
        ("{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}", "wrote more than 8388608"),
    ],
)
def test_a_failing_template_is_one_error(source: str, message: str) -> None:
    with pytest.raises(TemplateError, match=f"^chat template: .*{message}"):
        template(source).render(MESSAGES)


def test_syntax_errors_name_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "chat_template.jinja"
    file.write_text("a\n{% for %}", "utf-8")
    with pytest.raises(ModelLoadError, match=r"chat_template\.jinja: line 2: "):
        ChatTemplate.load(tmp_path)


def config_of(path: Path, chat_template: Any) -> None:
    values = {"chat_template": chat_template, "bos_token": {"content": "<s>"}, "eos_token": "</s>"}
    (path / "tokenizer_config.json").write_text(json.dumps(values), "utf-8")


@pytest.mark.parametrize(
    "chat_template",
    [
        "{{ bos_token }}x{{ eos_token }}",
        [
            {"name": "tool_use", "template": "no"},
            {"name": "default", "template": "{{ bos_token }}x{{ eos_token }}"},
        ],
    ],
    ids=["one", "named"],
)
def test_templates_of_the_tokenizer_config(tmp_path: Path, chat_template: Any) -> None:
    config_of(tmp_path, chat_template)
    loaded = ChatTemplate.load(tmp_path)
    assert loaded is not None
    assert loaded.render([]) == "<s>x</s>"


def test_the_file_wins_over_the_tokenizer_config(tmp_path: Path) -> None:
    config_of(tmp_path, "old")
    (tmp_path / "chat_template.jinja").write_text("new{{ bos_token }}", "utf-8")
    loaded = ChatTemplate.load(tmp_path)
    assert loaded is not None
    assert loaded.render([]) == "new<s>"


def test_templates_for_tools(tmp_path: Path) -> None:
    named = [{"name": name, "template": name} for name in ("default", "tool_use", "rag")]
    config_of(tmp_path, named)
    loaded = ChatTemplate.load(tmp_path)
    assert loaded is not None
    assert (loaded.render([]), loaded.render([], tools=[{}])) == ("default", "tool_use")
    (tmp_path / "chat_template.jinja").write_text("file", "utf-8")
    loaded = ChatTemplate.load(tmp_path)
    assert loaded is not None
    assert (loaded.source, loaded.tool_source) == ("file", "file")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates/tool_use.jinja").write_text("tools", "utf-8")
    loaded = ChatTemplate.load(tmp_path)
    assert loaded is not None
    assert (loaded.source, loaded.tool_source) == ("file", "tools")


def test_no_template_at_all(tmp_path: Path) -> None:
    assert ChatTemplate.load(tmp_path) is None
    config_of(tmp_path, None)
    assert ChatTemplate.load(tmp_path) is None
    config_of(tmp_path, [{"name": "tool_use", "template": "no"}])
    assert ChatTemplate.load(tmp_path) is None


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: config_of(path, 7), "chat_template: must be a string or a list"),
        (lambda path: config_of(path, [7]), "name: missing"),
        (lambda path: config_of(path, "x" * (256 * 1024 + 1)), "larger than 262144 bytes"),
        (
            lambda path: (path / "chat_template.jinja").write_bytes(b"x" * (256 * 1024 + 1)),
            "at most 262144 are read",
        ),
        (lambda path: (path / "chat_template.jinja").write_bytes(b"\xff"), "not UTF-8 at byte 0"),
        (lambda path: (path / "tokenizer_config.json").write_bytes(b"{"), "not valid JSON"),
    ],
    ids=["number", "list of numbers", "large", "large file", "not UTF-8", "not JSON"],
)
def test_bad_files(tmp_path: Path, write: Callable[[Path], object], message: str) -> None:
    write(tmp_path)
    with pytest.raises(ModelLoadError, match=message):
        ChatTemplate.load(tmp_path)
