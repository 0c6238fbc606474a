"""The process in which a grammar is tried: what it limits, and that its verdict can be trusted."""

import errno
import json
import resource
import subprocess
import sys

import llguidance._lib
import pytest

from engine import AbortFlag, EngineError
from engine.grammar.trial import verdict_on

LIBRARY = str(llguidance._lib.__file__)


def trial(
    lark: str,
    *,
    n_tokens: int = 0,
    special: dict[int, str] | None = None,
    abort: AbortFlag | None = None,
) -> str | None:
    grammar = json.dumps({"grammars": [{"lark_grammar": lark}]})
    verdict = verdict_on(
        grammar, library=LIBRARY, n_tokens=n_tokens, special=special or {}, abort=abort
    )
    return verdict.failure


def tower(n: int) -> str:
    rules = (f"r{i}: r{i + 1} r{i + 1}" for i in range(n))
    return "\n".join(("start: r0", *rules, f'r{n}: "x"'))


def test_a_good_grammar_passes() -> None:
    assert trial('start: "a" | "\u00e9"') is None


def test_the_words_are_the_compilers() -> None:
    assert "unknown name" in (trial("start: b") or "")


def test_special_tokens_have_their_names_and_ids() -> None:
    lark = 'start: <|call|> "a" <[3]>'
    assert "<|call|>" in (trial(lark, n_tokens=9, special={3: "<|end|>"}) or "")
    assert trial(lark, n_tokens=9, special={3: "<|end|>", 8: "<|call|>"}) is None


def test_a_panic_is_a_failure() -> None:
    """The library, about to list the special tokens that there are, does not expect none."""
    assert (trial("start: <|call|>") or "").startswith("panic: ")


def test_the_stack_is_smaller_than_that_of_a_thread_here() -> None:
    """What passes the trial must not overflow the stack later, so the trial must fail first."""
    heights = (100, 200, 400, 800)
    passed = [height for height in heights if trial(tower(height)) is None]
    assert passed
    assert passed[-1] < heights[-1]
    code = """
import sys, threading
from llguidance import LLMatcher, LLTokenizer
def build():
    print(LLMatcher(LLTokenizer("byte"), sys.stdin.read(), log_level=0).is_error())
thread = threading.Thread(target=build)
thread.start()
thread.join()
"""
    double = tower(2 * passed[-1])
    done = subprocess.run(
        [sys.executable, "-c", code], input=double, capture_output=True, check=True, text=True
    )
    assert done.stdout == "False\n"


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.EAGAIN])
def test_no_memory_for_the_process_is_told_as_such(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, "planted")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(MemoryError):
        trial('start: "a"')


def test_a_trial_that_nobody_wants_is_killed() -> None:
    abort = AbortFlag()
    abort.set()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with pytest.raises(EngineError, match="was cancelled"):
        trial(f"start: /{'a?' * 20_000}c/", abort=abort)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime - before.ru_utime < 2.0, "it takes three seconds to its end"


def test_a_verdict_tells_how_much_memory_the_grammar_takes() -> None:
    def n_bytes(regex: str) -> int:
        grammar = json.dumps({"grammars": [{"lark_grammar": f"start: /{regex}/"}]})
        return verdict_on(grammar, library=LIBRARY, n_tokens=0, special={}).n_bytes

    assert 0 <= n_bytes("a") < 2**22
    assert n_bytes("a?" * 5_000) > 2**23


def test_a_large_task_arrives_whole() -> None:
    """More than a pipe holds, so that the child reads while it is written."""
    text = "x" * 200_000
    assert (
        trial(f'start: "{text}"', n_tokens=20_000, special={i: f"<|{i}|>" for i in range(20_000)})
        is None
    )


def test_a_trial_that_cannot_run_is_no_verdict() -> None:
    with pytest.raises(EngineError, match=r"the trial of a grammar failed: .*/nowhere"):
        verdict_on("{}", library="/nowhere", n_tokens=0, special={})
