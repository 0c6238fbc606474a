"""Records of tokens: every number lands in the field that is named for it."""

import math

from engine.sampling.request import SampleResult, TraceStep
from engine.stream.result import (
    Origin,
    PromptToken,
    TokenRecord,
    TopToken,
    prompt_token,
    token_record,
)

# No two values are equal, so that no two fields can be exchanged.
SAMPLED = SampleResult(
    token_id=3,
    p_raw=0.11,
    p_sampled=0.22,
    logprob_raw=-0.33,
    top_ids=(4, 5),
    top_logprobs_raw=(-0.44, -0.55),
    top_p_sampled=(0.66, 0.77),
    rank=6,
    entropy=0.88,
    margin=0.99,
    kept_mass=0.12,
    trace=(TraceStep("top_k", 7, False),),
)
TOP = (
    TopToken(token_id=4, token_bytes=b"four", logprob=-0.44, p_raw=math.exp(-0.44), p_sampled=0.66),
    TopToken(token_id=5, token_bytes=b"five", logprob=-0.55, p_raw=math.exp(-0.55), p_sampled=0.77),
)


class Words:
    """A vocabulary in which token 3 is special."""

    def token_bytes(self, token_id: int) -> bytes:
        return {4: b"four", 5: b"five"}[token_id]

    def is_special(self, token_id: int) -> bool:
        return token_id == 3

    def is_control(self, token_id: int) -> bool:
        raise AssertionError("a record does not say it")


def test_every_field_of_a_record() -> None:
    assert token_record(SAMPLED, b"shown", (8, 9), Origin("ngram", 10), Words()) == TokenRecord(
        token_id=3,
        token_bytes=b"shown",
        text_start=8,
        text_end=9,
        logprob=-0.33,
        p_raw=0.11,
        p_sampled=0.22,
        top=TOP,
        is_special=True,
        rank=6,
        entropy=0.88,
        margin=0.99,
        kept_mass=0.12,
        origin="ngram",
        proposed=10,
        trace=(TraceStep("top_k", 7, False),),
    )


def test_every_field_of_a_prompts_token() -> None:
    assert prompt_token(SAMPLED, b"data", (8, 9), Words()) == PromptToken(
        token_id=3,
        token_bytes=b"data",
        text_start=8,
        text_end=9,
        logprob=-0.33,
        p_raw=0.11,
        top=TOP,
        is_special=True,
        rank=6,
        entropy=0.88,
        margin=0.99,
    )


def test_without_alternatives_no_bytes_are_looked_up() -> None:
    alone = SAMPLED._replace(token_id=9, top_ids=(), top_logprobs_raw=(), top_p_sampled=())
    record = token_record(alone, b"", (0, 0), Origin("model", None), Words())
    assert (record.top, record.is_special, record.proposed) == ((), False, None)
    assert prompt_token(alone, b"", (0, 0), Words()).top == ()
