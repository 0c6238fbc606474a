"""Templates that would hang the server or fill its memory: each is one error, found by counting
work.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from engine import ChatTemplate, ModelLoadError, TemplateError
from engine.chat.template import budget as template_budget
from engine.chat.template.budget import MAX_BYTES, MAX_STEPS

USER = [{"role": "user", "content": "hi"}]
REPEAT = "{% set ns = namespace(v=START) %}{% for i in range(100) %}BODY{% endfor %}{{ ns.v }}"


def doubled(start: str, step: str) -> str:
    return REPEAT.replace("START", start).replace("BODY", step)


ENDLESS = {
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}"
    "{% endfor %}",
    "loops that find nothing": "{% for a in range(99999) %}{% for b in range(99999) if false %}"
    "{% endfor %}{% endfor %}",
    "a macro that calls itself twice": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}"
    "{% endif %}{% endmacro %}{{ f(60) }}",
    "a call block that calls itself twice": "{% macro f(n) %}{{ caller }}{% if n %}"
    "{% call f(n-1) %}{% endcall %}{% call f(n-1) %}{% endcall %}{% endif %}{% endmacro %}"
    "{% call f(60) %}{% endcall %}",
    "a recursive loop": "{% for x in [0,1] recursive %}{% if loop.depth < 60 %}{{ loop([0,1]) }}"
    "{% endif %}{% endfor %}",
    "a block that writes itself": "{% block a %}{{ self.a() }}{{ self.a() }}{% endblock %}",
    "filters in a loop": "{% for i in range(99999) %}{% set x = range(99999)|map('abs')|list %}"
    "{% endfor %}",
    "tests in a filter": "{{ range(99999)|select('in', range(99999)|list + ['x'])|list }}",
    "membership in a loop": "{% for i in range(99999) %}{{ 'a' in range(99999) }}{% endfor %}",
    "sorting in a loop": "{% set a = 'x' * 8000000 %}{% for i in range(99999) %}"
    "{{ [a + '1', a + '2']|sort|length }}{% endfor %}",
    "comparisons without a loop": "{% set a = range(90000)|list %}{% set b = range(90000)|list %}"
    + "{{ a == b }}" * 2_000,
    "arguments without end": "{% macro f() %}{{ varargs|length }}{% endmacro %}"
    "{% for i in range(99999) %}{{ f(*range(99999)) }}{% endfor %}",
}  # fmt: skip

LARGE = {
    "a string": "{{ 'x' * 10**10 }}",
    "a string, the other way": "{{ 10**10 * 'x' }}",
    "a list": "{{ [0] * 10**9 }}",
    "a list of lists": "{{ [[0] * 99999] * 99999 }}",
    "a number": "{% set a = 9 ** (9 ** 9) %}",
    "a number, squared": doubled("3", "{% set ns.v = ns.v * ns.v %}"),
    "a float": "{{ 1|round(10**9, 'floor') }}",
    "a text, doubled": doubled("'x'", "{% set ns.v = ns.v + ns.v %}"),
    "a text, joined": doubled("'x'", "{% set ns.v = ns.v ~ ns.v %}"),
    "a block, doubled": doubled("'x'", "{% set t %}{{ ns.v }}{{ ns.v }}{% endset %}"
                                "{% set ns.v = t %}"),
    "a list in a list": doubled("[1]", "{% set ns.v = [ns.v, ns.v] %}"),
    "a tuple in a tuple": doubled("[1]", "{% set ns.v = (ns.v, ns.v) %}"),
    "an object in an object": doubled("{}", "{% set ns.v = {'a': ns.v, 'b': ns.v} %}"),
    "a dict in a dict": doubled("{}", "{% set ns.v = dict(a=ns.v, b=ns.v) %}"),
    "views of objects": doubled("{'a': 1}", "{% set ns.v = {1: ns.v.values(), 2: ns.v.items()} %}"),
    "a list of a filter": doubled("[1]", "{% set ns.v = [ns.v, ns.v]|map('list')|list %}"),
    "padding": "{{ 'x'|center(10**10) }}",
    "padding by a method": "{{ 'x'.ljust(10**10) }}",
    "tabs": "{{ ('\t' * 1000).expandtabs(tabsize=10**8) }}",
    "indentation": "{{ ('x\n' * 99999)|indent(width=99999) }}",
    "indentation by a text": "{{ ('x\r' * 99999)|indent('x' * 99999) }}",
    "a separator": "{{ range(99999)|join('x' * 99999) }}",
    "a separator by a method": "{{ ('x' * 99999).join('y' * 99999) }}",
    "a replacement": "{{ ('x' * 99999)|replace('x', 'y' * 99999) }}",
    "a replacement of nothing": "{{ ('x' * 99999).replace('', 'y' * 99999) }}",
    "a format": "{{ '{:>10000000000}'.format(1) }}",
    "a format in a format": "{{ '{:>{w}}'.format(1, w=10**10) }}",
    "a format by name": "{{ '{x:>10000000000}'['format_map']({'x': 1}) }}",
    "a format, repeated": "{{ ('{0}' * 99999).format('x' * 99999) }}",
    "a percent format": "{{ '%10000000000d' % 1 }}",
    "a percent format with a star": "{{ '%*d' % (10**9, 1) }}",
    "a percent format with a precision": "{{ '%.1000000000f' % 1 }}",
    "a percent format with a key": "{{ '%(a(b))99999999s' % {'a(b)': 1} }}",
    "a percent format, repeated": "{{ ('%(a)s' * 99999)|format(a='x' * 99999) }}",
    "a format of markup": "{{ ('{:>10000000000}'|safe).format(1) }}",
    "markup": "{{ ('<'|safe) * 10**10 }}",
    "texts of a filter": "{{ range(99999)|map('string')|map('center', 999999)|list|length }}",
    "a batch": "{{ [1]|batch(10**9, 'x')|list }}",
    "slices": "{{ [1]|slice(10**9)|list }}",
    "slices of a text": "{% set s = 'x' * 8000000 %}{% set ns = namespace(l=[]) %}"
    "{% for i in range(99999) %}{% set ns.l = ns.l + [s[1:]] %}{% endfor %}",
    "parts": "{{ ('ab ' * 5000000).split()|length }}",
    "parts by a filter": "{{ ('-a ' * 5000000)|title|length }}",
    "characters": "{{ ('\u00e9\u20ac' * 4000000)|list|length }}",
    "JSON": "{{ [[[1] * 1000]]|tojson(indent=10**7) }}",
    "deep JSON": "{% set ns = namespace(v=[1] * 99999) %}{% for i in range(400) %}"
    "{% set ns.v = [ns.v] %}{% endfor %}{{ ns.v|tojson(indent=60)|length }}",
    "text of the template": "{% for i in range(99999) %}{% set a %}" + "x" * 200_000
    + "{% endset %}{% endfor %}",
    "text of a macro": "{% macro f() %}" + "x" * 200_000 + "{% endmacro %}"
    "{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = ns.l + [f()] %}"
    "{% endfor %}",
    "bytes": "{{ (1).to_bytes(10**10, 'big') }}",
    "time": "{{ strftime_now('%c' * 999999) }}",
    "cyclers": "{% set ns = namespace(l=[]) %}{% for i in range(99999) %}"
    "{% set ns.l = ns.l + [cycler(*range(99999))] %}{% endfor %}",
}  # fmt: skip


# What filters and methods hold meanwhile, which their results do not show.
HIDDEN = [
    "{% set t = " + text + " %}{% set x = " + expression + " %}"
    for text in ("'a ' * 4000000", "'\u00e9\u20ac-' * 2600000", "'<' * 8000000", "'\n' * 8000000")
    for expression in (
        "t|title", "t|wordcount", "t|escape", "t|indent(1)", "[t]|string", "[t]|sort", "t|list",
        "t|map(attribute='x')|list", "t.split(' ')", "t.splitlines()", "t.title()", "'%s' % [t]",
    )
]  # fmt: skip

CHILD = """
import json, resource, sys
from engine import ChatTemplate, TemplateError
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before, errors = peak(), {}
for source in json.load(sys.stdin):
    try:
        ChatTemplate(source, special_tokens={}, where="test").render([])
    except TemplateError as error:
        errors[source] = str(error)
print(json.dumps({"before": before, "after": peak(), "errors": errors}))
"""


def refused(source: str, variables: Mapping[str, object] | None = None) -> str:
    template = ChatTemplate(source, special_tokens={}, where="test")
    with pytest.raises(TemplateError) as caught:
        template.render(USER, variables=variables or {})
    return str(caught.value)


@pytest.mark.parametrize("source", ENDLESS.values(), ids=ENDLESS)
def test_no_template_runs_for_long(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting ends it, on a machine of any speed: a tenth of the steps in a tenth of the time."""
    monkeypatch.setattr(template_budget, "MAX_SECONDS", float("inf"))
    monkeypatch.setattr(template_budget, "MAX_STEPS", MAX_STEPS // 10)
    message = refused(source)
    assert any(limit in message for limit in ("steps", "made more", "recursion"))


def test_all_steps_together_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_budget, "MAX_SECONDS", float("inf"))
    assert f"took more than {MAX_STEPS} steps" in refused(ENDLESS["loops that find nothing"])


def test_the_clock_is_the_last_net(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_budget, "MAX_SECONDS", -1.0)
    assert "ran for more than -1 s" in refused(ENDLESS["nested loops"])


@pytest.fixture(scope="module")
def large_run() -> Any:
    """Renders all of them one after another in one process, whose peak is what each may take."""
    child = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=json.dumps([*LARGE.values(), *HIDDEN]),
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    return json.loads(child.stdout)


@pytest.mark.parametrize("source", LARGE.values(), ids=LARGE)
def test_no_template_makes_large_values(large_run: Any, source: str) -> None:
    message = large_run["errors"][source]
    assert any(
        limit in message
        for limit in ("more than", "not a format field", "numbers only", "not call")
    )
    assert len(message) < 600


def test_memory_stays_bounded(large_run: Any) -> None:
    assert large_run["after"] - large_run["before"] < 2.5 * MAX_BYTES


def test_the_messages_cannot_bring_the_bomb_either() -> None:
    """A harmless template with hostile arguments."""
    source = "{{ 'x' * width }}{{ messages|tojson(indent=width) }}"
    assert "more than" in refused(source, {"width": 10**9})
    template = ChatTemplate("{{ messages[0].content }}", special_tokens={}, where="test")
    with pytest.raises(TemplateError, match="more than"):
        template.render([{"role": "user", "content": "x" * 17_000_000}])


def test_compiling_computes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Constants are not folded: what is too large is an error of the request, not of the load."""
    source = "{% if false %}{{ 'x'|center(10**10) ~ 'x' * 10**10 }}{{ 9**9**9 }}{% endif %}ok"
    assert ChatTemplate(source, special_tokens={}, where="test").render(USER) == "ok"


def test_a_deep_template_is_refused_when_it_is_loaded() -> None:
    with pytest.raises(ModelLoadError):
        ChatTemplate("{{ " + "(" * 50_000 + ")" * 50_000 + " }}", special_tokens={}, where="x")


def test_deep_values_are_an_error() -> None:
    source = "{% set ns = namespace(v=[1]) %}{% for i in range(1500) %}{% set ns.v = [ns.v] %}" \
        "{% endfor %}{{ ns.v }}"  # fmt: skip
    assert "recursion" in refused(source)


def test_a_namespace_shows_nothing_and_hides_nothing() -> None:
    template = ChatTemplate("{{ namespace(a=1) }}", special_tokens={}, where="test")
    assert template.render(USER) == "<Namespace>"
    assert "attribute '__self__'" in refused("{{ namespace(__self__='x') }}")
    assert "attribute '_a'" in refused("{% set ns = namespace() %}{% set ns._a = 1 %}")


@pytest.mark.parametrize(
    "call",
    [
        "'x'.encode('idna')",
        "'x'.translate({120: 'y'})",
        "'x'.maketrans('a', 'b')",
        "(1).to_bytes(2)",
    ],
)
def test_methods_that_no_template_needs_cannot_be_called(call: str) -> None:
    assert "may not call" in refused("{{ " + call + " }}")


def test_a_budget_is_of_one_rendering() -> None:
    source = "{% for i in range(90000) %}{% set a = 'xxxxxxxxxx' * 100 %}{% endfor %}ok"
    template = ChatTemplate(source, special_tokens={}, where="test")
    assert [template.render(USER) for _ in range(4)] == ["ok"] * 4
