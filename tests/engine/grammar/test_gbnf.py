"""GBNF: each feature of the language, and that its Lark form accepts exactly the same texts."""

import itertools
import string

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import InvalidInputError, is_gbnf
from engine.grammar.compiler import ConstraintCompiler
from engine.grammar.constraint import Constraint
from engine.grammar.gbnf.syntax import Choice, Class, Node, Reference, Repeat, Sequence, Text, parse
from engine.grammar.spec import MAX_GBNF_BYTES, ConstraintSpec
from engine.grammar.trial import Verdict
from tests.support.vocabularies import vocabulary

JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::=
  "[" ws (       # its values
    value ("," ws value)*
  )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9]{1,15})? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"""
# The blanks behind a term may take the line break, which the rule wants behind them.
SUMS = """root ::= (expr "=" ws term "\\n")+
expr ::= term ([-+*/] ws term)*
term ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num ::= [0-9]+ ws
ws ::= [ \\t\\n]*
"""
CODE = """root ::= statement+
statement ::= name " = " value ";\\n" | "if (" value ") {\\n" statement* "}\\n" | note
note ::= "//" [^\\n]* "\\n" | "/*" ([^*] | ("*" [^/]))* "*/"
value ::= name | [0-9]+ | "(" value ")" | value-list
value-list ::= "[" (value ("," " "? value)*)? "]"
name ::= [a-zA-Z_] [a-zA-Z_0-9]*
"""
CASES: dict[str, tuple[str, list[str], list[str]]] = {
    "text": ('root ::= "ab" "c"', ["abc"], ["", "ab", "abcd"]),
    "choice": ('root ::= "a" | "b" |\n "c"', ["a", "b", "c"], ["", "ab"]),
    "empty alternative": ('root ::= "a" | ', ["", "a"], ["aa"]),
    "empty": ('root ::= ""', [""], ["a"]),
    "class": ("root ::= [a-cx]", list("abcx"), ["d", "-", "ab", ""]),
    "class with signs": ("root ::= [-a^]+ [a-]", ["-a", "^-"], ["-b", "a"]),
    "class of brackets": (r'root ::= [\]\[/&"]+', ['[]/&"', "&&"], ["\\"]),
    "no set operations": ("root ::= [a-z&&b]+ [~~-]", ["&a~", "z-"], ["a", "ab&"]),
    "negation": ("root ::= [^a-y\\n]+", ["zZ\u00e9 0"], ["a", "z\n", ""]),
    "any": ('root ::= . "!"', ["\n!", "\u00e9!", "\U0001f9c0!"], ["!", "ab!"]),
    "star": ('root ::= "ab"*', ["", "ab", "abab"], ["a", "aba", "abb"]),
    "plus and mark": ('root ::= "a"+ "b"?', ["a", "aab"], ["", "b", "abb"]),
    "times": ('root ::= "a"{2} [b]{ 1 , 2 } "c"{1,} "d"{0,2}', ["aabc", "aabbccdd"], ["aac"]),
    "most": ('root ::= "a"{0,2} "b"{0}', ["", "aa"], ["aaa", "b"]),
    "repeated twice": ('root ::= "a"?* "b"', ["b", "aaab"], ["a"]),
    "group": ('root ::= ("a" (\n"b" | "c")+\n){2}', ["abac", "abcab"], ["ab", "a"]),
    "escapes": (
        r'root ::= "\t\r\n\\\"\x41\u00e9\U0001F9C0"',
        ['\t\r\n\\"A\u00e9\U0001f9c0'],
        ["x"],
    ),
    "escapes in classes": (r"root ::= [\x41-\x43\u0430-\u044f\n]+", ["AC\u0436\n"], ["D", "n"]),
    "comments": ('# a ::= b\nroot ::= # x\n "a#" # y\n# z\n', ["a#"], ["a"]),
    "names": ('root ::= a-B a-b 3\na-B ::= "x"\na-b ::= "y"\n3 ::= "z"', ["xyz"], ["xxz"]),
    "a rule called start": ('start ::= "a" start | "b"\nroot ::= start', ["aab"], ["a"]),
    "the last of two": ('root ::= "a"\nroot ::= "b"', ["b"], ["a"]),
    "windows lines": ('root ::= a |\r\n "b"\r\n\r\na ::= "c"\r\n', ["b", "c"], ["a"]),
    "a rule that is not used": ('root ::= "a"\nb ::= b "c"', ["a"], ["c"]),
    "what follows may continue": ('root ::= [a-z]* "ab"', ["ab", "cab", "abab"], ["a", "abc"]),
    "left recursion": ('root ::= root "a" | "b"', ["b", "baa"], ["a", "ab"]),
    "middle": ('root ::= "a" root "a" | "b"?', ["", "aa", "aabaa"], ["a", "aba a"]),
    "palindrome": ('root ::= [ab]? | "a" root "a" | "b" root "b"', ["", "abba", "babab"], ["ab"]),
    "json": (
        JSON,
        ["{}", '{"a": [1, -2.5e3, {"b":null}]}', '{"\\u00e9\\"":\n  true}', '{"a":[]}\n'],
        ["[1]", '{"a":}', '{"a" 1}', '{"a":01 2}', '{"a\n":1}', '{"a": tru}', "{} x"],
    ),
    "sums": (
        SUMS,
        ["a=1\n", "(a + b)* 3 = c\n\n", "a=1\nb_2/2=0\n", "a=1\n\n \n"],
        ["a=1", "a=\n", "1=(2\n", "a=1\n b=2 "],
    ),
    "code": (
        CODE,
        ["x = 1;\n", "if (x) {\ny = (z);\n}\n// if (\n", "/* a*b */", "x = [1,[2, y]];\n"],
        ["x = ;\n", "/* a", "if (x) {\n", "1 = x;\n", "x = [1,];\n"],
    ),
}


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> ConstraintCompiler:
    path = tmp_path_factory.mktemp("tokenizer")
    return ConstraintCompiler(vocabulary("byte-level", path).tokenizer, 320, (4,))


def compiled(compiler: ConstraintCompiler, grammar: str) -> Constraint:
    return compiler.compile(ConstraintSpec("gbnf", grammar), param="grammar")


def accepts(constraint: Constraint, text: str) -> bool:
    """The constraint stays at its beginning."""
    try:
        constraint.accept_bytes(text.encode())
    except InvalidInputError:
        return False
    accepted = constraint.is_complete
    constraint.rollback(0)
    return accepted


@pytest.mark.parametrize("name", CASES)
def test_each_feature_accepts_its_texts_and_no_others(
    name: str, compiler: ConstraintCompiler
) -> None:
    grammar, right, wrong = CASES[name]
    rules = parse(grammar, param=None)
    assert is_gbnf(grammar)
    for text in (*right, *wrong):
        assert matches(rules, text) == (text in right), f"the test's own reading of {text!r}"
        assert accepts(compiled(compiler, grammar), text) == (text in right), text


def matches(rules: dict[str, Node], text: str) -> bool:
    """By trying everything: where each rule may end from each place, until nothing is new."""
    known: dict[tuple[str, int], set[int]] = {}

    def ends(node: Node, at: int) -> set[int]:
        if isinstance(node, Text):
            return {at + len(node.value)} if text.startswith(node.value, at) else set()
        if isinstance(node, Class):
            is_in = at < len(text) and any(a <= ord(text[at]) <= b for a, b in node.ranges)
            return {at + 1} if is_in else set()
        if isinstance(node, Reference):
            return known.get((node.name, at), set())
        if isinstance(node, Choice):
            return set().union(*(ends(part, at) for part in node.parts))
        found = {at}
        if isinstance(node, Sequence):
            for part in node.parts:
                found = {end for start in found for end in ends(part, start)}
            return found
        assert isinstance(node, Repeat)
        all_found = {at} if not node.least else set()
        for i in range(1, (node.most or node.least + len(text) + 1) + 1):
            found = {end for start in found for end in ends(node.part, start)}
            if i >= node.least:
                all_found |= found
        return all_found

    before = -1
    while (size := sum(map(len, known.values()))) > before:
        before = size
        for name, node in rules.items():
            for at in range(len(text) + 1):
                known[name, at] = ends(node, at)
    return len(text) in known["root", 0]


LEAVES = st.sampled_from(
    ['"a"', '"b"', '"ab"', '"ba"', '"aab"', "[ab]", "[^b]", "root", "r", "s", '""']
)
PARTS = st.recursive(
    LEAVES,
    lambda inner: (
        st.tuples(inner, inner).map(lambda two: f"{two[0]} {two[1]}")
        | st.tuples(inner, inner).map(lambda two: f"({two[0]} | {two[1]})")
        | st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}"])).map(
            lambda two: f"({two[0]}){two[1]}"
        )
    ),
    max_leaves=6,
)
ALL_TEXTS = ["".join(text) for n in range(6) for text in itertools.product("ab", repeat=n)]


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(root=PARTS, r=PARTS, s=PARTS)
def test_the_texts_of_any_grammar_are_the_same(
    compiler: ConstraintCompiler, monkeypatch: pytest.MonkeyPatch, root: str, r: str, s: str
) -> None:
    # A grammar of this size needs no guard by the trial.
    passed = Verdict(None, lasting=True, n_bytes=0)
    monkeypatch.setattr("engine.grammar.compiler.verdict_on", lambda *_, **__: passed)
    grammar = f'root ::= {root} | "a" r "b" | s "a"\nr ::= {r} | "b"\ns ::= {s} | "ab"'
    rules = parse(grammar, param=None)
    constraint = compiled(compiler, grammar)
    wrong = [text for text in ALL_TEXTS if accepts(constraint, text) != matches(rules, text)]
    assert not wrong, grammar


WRONG: list[tuple[str, str]] = [
    ('root ::= "a', 'line 1, column 10: the closing " is missing'),
    ("root ::= [a", "column 10: the closing ] is missing"),
    ('x ::= "a"', "there is no rule 'root'"),
    ('root ::= "a"\n  x ::= yes | no', "line 2, column 9: there is no rule 'yes'"),
    ('root ::= ("a"', "column 14: expected [)]"),
    ('root ::= "a" )', "unexpected '[)]'"),
    ("root ::= *", "has nothing before it"),
    (r'root ::= "\q"', r"column 11: unknown escape \\q"),
    (r'root ::= "\ud800"', "is not a valid character"),
    (r"root ::= [\U00110000]", "is not a valid character"),
    ("root ::= [b-a]", "the range ends before it begins"),
    ("root ::= []", "matches nothing"),
    ('root ::= "a"{3,2}', "the largest count is below the smallest"),
    ('root ::= "a"{3000}', "at most 2000"),
    ('root ::= "a"{x}', "expected a number"),
    ("root ::= <think>", "tokens by name"),
    ('root ::= "a"\nb "c"', "line 2, column 3: expected ::="),
    ("root ::= " + "(" * 200, "more than 100 parentheses"),
    ("root ::= root", "the GBNF grammar does not compile: no text satisfies it"),
    ('root ::= "' + "a" * MAX_GBNF_BYTES + '"', "the GBNF grammar .* at most 65536"),
]


@pytest.mark.parametrize(("grammar", "message"), WRONG)
def test_what_is_wrong_is_said_in_words_of_gbnf(
    compiler: ConstraintCompiler, grammar: str, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message) as error:
        compiler.compile(ConstraintSpec("gbnf", grammar), param="grammar")
    assert error.value.param == "grammar"
    assert "GBNF" in str(error.value)
    assert "\n" not in str(error.value)


def doubling(leaf: str, n: int) -> str:
    rules = (f"r{i} ::= r{i + 1} r{i + 1}" for i in range(n))
    return "\n".join(("root ::= r0 root | r0", *rules, f"r{n} ::= {leaf}"))


HOSTILE = {
    "doubling": doubling("[a-z]+", 40),
    "chain": "root ::= r0 root | r0\n"
    + "\n".join(f"r{i} ::= r{i + 1}" for i in range(2000))
    + '\nr2000 ::= "a"',
    "optional": "root ::= " + '"a"? ' * 10_000 + "root?",
    "loops": "root ::= (" + "([a-z]+)* " * 2_000 + "root)?",
    "rules": "root ::= r0 root?\n"
    + "\n".join(f"r{i} ::= [a-z]? r{i + 1} root?" for i in range(1000))
    + '\nr1000 ::= "b"',
    "choices": "root ::= (" + " | ".join(f'"{a}{b}{c}"' for a, b, c in itertools.islice(
        itertools.product(string.ascii_lowercase, repeat=3), 5_000)) + ") root?",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_the_work_on_a_grammar_is_bounded(name: str, compiler: ConstraintCompiler) -> None:
    """It is converted or refused; either way the budget says when it ends, not the clock."""
    with pytest.raises(InvalidInputError, match=r"GBNF grammar is too (large|deep)"):
        compiler.compile(ConstraintSpec("gbnf", HOSTILE[name]), param="grammar")


LARK = [
    'start: "a ::= b"',
    "// root ::= x\nstart: /a/",
    "# root ::= x\nstart: /a/",
    "start: /root ::= x/",
    'start: "x"\n  | "y ::= z"',
    'start: %json {"const": "a ::= b"}',
    "",
]


@pytest.mark.parametrize("text", LARK)
def test_lark_is_not_taken_for_gbnf(text: str) -> None:
    assert not is_gbnf(text)


@pytest.mark.parametrize("text", ["root::=x", "# x: y\n  a-b ::= c", "\r\nroot ::=\n  x: y"])
def test_gbnf_is_known_by_the_start_of_its_rules(text: str) -> None:
    assert is_gbnf(text)
