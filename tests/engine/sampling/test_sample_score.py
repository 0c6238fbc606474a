"""What the sampler says of a token that was not drawn: native code against numpy, and against what
it says of drawn ones.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import NumericsError
from engine.sampling.logits import Logits
from engine.sampling.op import sample, score
from engine.sampling.reference import op as sample_ref
from engine.sampling.request import SampleRequest
from tests.support.sample_requests import assert_close, some_logits


def asked(n_top: int) -> SampleRequest:
    return SampleRequest(u=0.0, greedy=True, n_top=n_top)


@given(data=st.data(), seed=st.integers(0, 1000), n_top=st.integers(0, 8))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_native_code_agrees_with_its_definition(
    isa: str, data: st.DataObject, seed: int, n_top: int
) -> None:
    rng = np.random.default_rng(seed)
    vocab_size = data.draw(st.sampled_from([1, 2, 3, 100, 300, 5000]))
    logits = some_logits(vocab_size, seed=seed)
    if data.draw(st.booleans()):
        logits = np.round(logits)  # many are equal
        logits[1:][rng.random(vocab_size - 1) < 0.2] = -np.inf
    token_id = int(rng.choice(np.flatnonzero(np.isfinite(logits))))
    before = logits.copy()
    scored = score(logits, token_id, asked(n_top))
    assert_close(scored, sample_ref.score(logits, token_id, n_top=n_top), logits)
    assert scored.p_sampled == scored.p_raw
    assert np.array_equal(logits, before)


@pytest.mark.parametrize("n_top", [0, 1, 2, 7])
@pytest.mark.parametrize("vocab_size", [5, 4096, 150_000])
def test_it_says_the_same_as_of_a_drawn_token(isa: str, vocab_size: int, n_top: int) -> None:
    """Bit for bit, for whatever token was drawn."""
    rng = np.random.default_rng(1)
    for u in (0.0, 0.3, 0.7, 0.999):
        logits = rng.normal(0, 3, vocab_size).astype(np.float32)
        drawn = sample(logits, SampleRequest(u=u, n_top=n_top), work=np.empty_like(logits))
        scored = score(logits, drawn.token_id, asked(n_top))
        for name in ("p_raw", "logprob_raw", "rank", "entropy", "margin", "top_ids"):
            assert getattr(scored, name) == getattr(drawn, name), name
        assert scored.top_logprobs_raw == drawn.top_logprobs_raw


def test_one_request_serves_many_tokens(isa: str) -> None:
    request = asked(2)
    logits = np.log(np.array([1, 2, 5, 2], dtype=np.float32))
    probabilities = [score(logits, token_id, request).p_raw for token_id in range(4)]
    assert probabilities == pytest.approx([0.1, 0.2, 0.5, 0.2], rel=1e-6)
    assert [score(logits, token_id, request).rank for token_id in range(4)] == [3, 1, 0, 2]


def test_a_token_that_cannot_come_has_no_probability(isa: str) -> None:
    logits = np.array([0.0, -np.inf, 1.0], dtype=np.float32)
    for scored in (score(logits, 1, asked(3)), sample_ref.score(logits, 1, n_top=3)):
        assert (scored.logprob_raw, scored.p_raw, scored.rank) == (-np.inf, 0.0, 2)
        assert scored.top_ids == (2, 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_no_number_is_refused(isa: str, bad: float) -> None:
    logits: Logits = np.array([0.0, bad, 1.0], dtype=np.float32)
    request = asked(0)
    for _ in range(2):
        with pytest.raises(NumericsError, match="token 1"):
            score(logits, 0, request)
    with pytest.raises(ValueError, match="token_id: 3, allowed: 0 to 2"):
        score(np.zeros(3, dtype=np.float32), 3, request)
    with pytest.raises(ValueError, match="logits"):
        score(np.zeros(3), 0, request)  # type: ignore[arg-type]
