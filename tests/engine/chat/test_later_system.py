"""System messages in the middle of a conversation, for templates that know only the first one."""

from typing import Any

import pytest

from engine import ChatTemplate, TemplateError
from engine.chat.prompt import ChatPrompt
from tests.support.tiny_models import TEMPLATE

EACH = "{% for message in messages %}[{{ message.role }}:{{ message.content }}]{% endfor %}"
REFUSES = (
    "{% for message in messages %}{% if message.role == 'system' and not loop.first %}"
    "{{ raise_exception('a system message comes first') }}{% endif %}"
    "[{{ message.role }}:{{ message.content }}]{% endfor %}"
)
FORGETS = (
    "{% for message in messages %}{% if message.role != 'system' or loop.first %}"
    "[{{ message.role }}:{{ message.content }}]{% endif %}{% endfor %}"
)
TAKES_THE_LAST = (
    "{% for m in messages if m.role == 'system' %}{% if loop.last %}[system:{{ m.content }}]"
    "{% endif %}{% endfor %}"
    "{% for m in messages if m.role != 'system' %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
)
FIRST_ONLY = {"refuses": REFUSES, "forgets": FORGETS, "takes the last": TAKES_THE_LAST}


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, special_tokens={}, where="test")


def said(*turns: str) -> list[dict[str, Any]]:
    return [dict(zip(("role", "content"), turn.split(":"), strict=True)) for turn in turns]


@pytest.mark.parametrize("source", FIRST_ONLY.values(), ids=FIRST_ONLY)
@pytest.mark.parametrize(
    ("turns", "shown"),
    [
        (["system:a", "user:b", "system:c"], "[system:a][user:b\n\nc]"),
        (["user:b", "system:c", "user:d"], "[user:b\n\nc\n\nd]"),
        (["system:a", "developer:b", "user:c"], "[system:a\n\nb][user:c]"),
        (["user:a", "assistant:b", "system:c"], "[user:a][assistant:b][user:c]"),
        (["user:a", "tool:b", "system:c", "system:d"], "[user:a][tool:b][user:c\n\nd]"),
        (["user:a", "user:b", "assistant:c"], "[user:a][user:b][assistant:c]"),
    ],
)
def test_the_user_tells_a_later_one(source: str, turns: list[str], shown: str) -> None:
    assert ChatPrompt.of(template(source), said(*turns)).text() == shown


def test_a_template_with_a_place_for_it_gets_it_unchanged() -> None:
    turns = said("system:a", "user:b", "system:c", "assistant:d")
    assert ChatPrompt.of(template(EACH), turns).text() == (
        "[system:a][user:b][system:c][assistant:d]"
    )
    assert template(TEMPLATE).takes_later_system


def test_parts_are_joined_as_parts() -> None:
    part = {"type": "text", "text": "c"}
    turns = [*said("user:b"), {"role": "system", "content": [part]}]
    both = [{"type": "text", "text": "b"}, part]
    assert ChatPrompt.of(template(REFUSES), turns).said.messages == [
        {"role": "user", "content": both}
    ]


def test_other_refusals_stay() -> None:
    alone = template("{{ raise_exception('only users') if messages[0].role != 'user' }}")
    with pytest.raises(TemplateError, match="only users"):
        ChatPrompt.of(alone, said("system:a", "user:b")).text()
