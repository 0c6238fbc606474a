"""What a rendering costs is a count: the same on every machine, and far from the limits for real
prompts.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from engine import ChatTemplate
from engine.chat.template import template as template_module
from engine.chat.template.budget import MAX_BYTES, MAX_STEPS, Budget
from tests.support.chat_templates import ALL

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
CONTEXT = 131_072
"""Tokens of the longest context of a served family. No word of the texts here is longer than a
token.
"""
TEXT = "some words of a text, "


def spent(
    source: str,
    messages: Sequence[dict[str, Any]] = (),
    tools: Sequence[dict[str, Any]] = (),
    **variables: Any,
) -> Budget:
    """What one rendering used."""
    budgets: list[Budget] = []

    class Kept(Budget):
        def __init__(self) -> None:
            super().__init__()
            budgets.append(self)

    template = ChatTemplate(source, special_tokens=SPECIAL, where="test")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(template_module, "Budget", Kept)
        template.render(messages, tools=tools, variables=variables)
    (budget,) = budgets
    return budget


def turns(n: int, text: str) -> list[dict[str, Any]]:
    roles = [{"role": role, "content": text} for role in ("user", "assistant")]
    return [*roles * n, {"role": "user", "content": "hi"}]


def tool(i: int) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": "what it is"} for key in "abcdef"}
    schema = {"type": "object", "properties": properties}
    function = {"name": f"get_{i}", "description": "Gets it", "parameters": schema}
    return {"type": "function", "function": function}


LONGEST: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "short turns": (turns(CONTEXT // 10, "hi"), []),
    "one text": ([*turns(0, ""), {"role": "assistant", "content": TEXT * (CONTEXT // 5)}], []),
    "long turns": (turns(16, TEXT * (CONTEXT // 160)), [tool(i) for i in range(20)]),
    "many tools": (turns(2, "hi"), [tool(i) for i in range(CONTEXT // 150)]),
    "thoughts": (turns(300, "<think>" + TEXT * 40 + "</think>\n\nyes"), []),
}


@pytest.mark.parametrize("case", LONGEST)
@pytest.mark.parametrize("name", ALL)
def test_the_longest_conversations_use_a_quarter_at_most(name: str, case: str) -> None:
    budget = spent(ALL[name], *LONGEST[case])
    assert budget.n_steps < MAX_STEPS / 4
    assert budget.n_bytes < MAX_BYTES / 4


def test_a_rendering_costs_the_same_each_time() -> None:
    messages = turns(20, TEXT)
    first, second = (spent(ALL["markers"], messages, [tool(1)]) for _ in range(2))
    assert (first.n_steps, first.n_bytes) == (second.n_steps, second.n_bytes)


LARGE = "x" * 4_000_000


@pytest.mark.parametrize(
    "expression",
    [
        "'y' in a", "a == b", "a < b", "a is eq(b)", "a is lower", "a|upper", "a|replace('y', '')",
        "a.find('y')", "a.count('y')", "a.strip()", "a.title()", "a[1:]", "a ~ ''", "a + ''",
        "[a]|sort", "[a, b]|unique|list", "[a] == [b]", "a in [b]", "[a].index(a)", "[a]|string",
        "a|tojson", "'%s' % a", "'{}'.format(a)", "a|length ~ a", "(a,) in [(b,)]",
    ],
)  # fmt: skip
def test_what_is_touched_is_counted(expression: str) -> None:
    """Half the length is about half the steps, and many more than for a short text."""
    source = "{% set x = " + expression + " %}"
    other = "z" + LARGE[1:]
    n_whole = spent(source, a=LARGE, b=other).n_steps
    n_half = spent(source, a=LARGE[: len(LARGE) // 2], b=other[: len(LARGE) // 2]).n_steps
    assert n_whole > 1_000
    assert 0.4 < n_half / n_whole < 0.6


@pytest.mark.parametrize(
    "expression",
    [
        "a|sort", "a|unique|list", "a|map('string')|list", "a|map(attribute='x')|list", "a|sum",
        "a|select('odd')|list", "a|join(',')", "a == a[:]", "'x' in a", "a|batch(9)|list", "a|max",
        "a + a", "a|tojson", "a|string", "a|reject('in', [1])|list",
    ],
)  # fmt: skip
def test_what_is_walked_is_counted(expression: str) -> None:
    source = "{% set x = " + expression + " %}"
    n_whole, n_half = (spent(source, a=list(range(n))).n_steps for n in (40_000, 20_000))
    assert n_whole > 4_000
    assert 0.4 < n_half / n_whole < 0.6
