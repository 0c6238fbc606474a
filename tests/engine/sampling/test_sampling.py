"""The sampler of a request: what it draws, what it remembers, and that it forgets on rollback."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from engine import InvalidInputError, SamplingSettings
from engine.sampling.logits import Logits
from engine.sampling.random_numbers import XTC, uniform
from engine.sampling.request import SampleResult
from engine.sampling.sampler import Sampler
from engine.sampling.token_masks import SamplerVocabulary
from engine.text.token_ids import set_of_ids
from tests.support.plain_sampler import dried, penalized, plain_stages
from tests.support.sample_requests import some_logits

V = 8
NEWLINE, FULL_STOP, SPECIAL = 5, 6, 7


class Letters:
    """a, b, c, d, e, a newline, a full stop and a special token."""

    def token_bytes(self, token_id: int) -> bytes:
        return b"abcde\n."[token_id : token_id + 1] or b"x"

    def is_special(self, token_id: int) -> bool:
        return token_id == SPECIAL

    def is_control(self, token_id: int) -> bool:
        return self.is_special(token_id)


def sampler(
    settings: SamplingSettings,
    vocab_size: int = V,
    prompt_ids: tuple[int, ...] = (0,),
    n_top: int = 0,
    trace: bool = False,
) -> Sampler:
    return Sampler(
        settings,
        prompt_ids=prompt_ids,
        vocabulary=SamplerVocabulary(Letters(), vocab_size),
        work=np.empty(vocab_size, dtype=np.float32),
        n_top=n_top,
        trace=trace,
    )


def accept_all(one: Sampler, token_ids: list[int]) -> None:
    for token_id in token_ids:
        one.accept(token_id, 0.5)


PROMPT, COMPLETION = (0, 1, 1, 2, 3), [2, 4, 0, 1, 1, 2]
BREAKERS = frozenset({NEWLINE, FULL_STOP, SPECIAL})
PROTECTED = frozenset({NEWLINE, SPECIAL})


def plain_distribution(logits: Logits, settings: SamplingSettings) -> np.ndarray:
    """The documented order after PROMPT and COMPLETION, without any of the engine's arithmetic."""
    context = [*PROMPT, *COMPLETION]
    values = penalized(
        logits.tolist(),
        context,
        n_prompt=len(PROMPT),
        repetition_penalty=settings.repetition_penalty,
        repetition_range=settings.repetition_range,
        repetition_decay=settings.repetition_decay,
        frequency_penalty=settings.frequency_penalty,
        presence_penalty=settings.presence_penalty,
    )
    for token_id, bias in settings.logit_bias.items():
        values[token_id] += bias
    if settings.dry_multiplier:
        values = dried(
            values,
            context,
            dry_multiplier=settings.dry_multiplier,
            dry_base=settings.dry_base,
            dry_allowed_length=settings.dry_allowed_length,
            dry_range=settings.dry_range,
            dry_max_ngram=settings.dry_max_ngram,
            breakers=BREAKERS,
        )
    allowed = range(len(values)) if settings.allowed_tokens is None else settings.allowed_tokens
    for token_id in range(len(values)):
        if token_id not in allowed or token_id in settings.banned_tokens:
            values[token_id] = -math.inf
    # XTC strikes or not: the mixture of both is what is drawn from.
    shares = {0.0: settings.xtc_probability, 1 - 2**-53: 1 - settings.xtc_probability}
    probs = np.zeros(len(values))
    for u_xtc, share in shares.items():
        plain = plain_stages(
            values,
            settings.stages(),
            mu=2 * settings.mirostat_tau,
            u_xtc=u_xtc,
            protected=PROTECTED,
        )
        p = plain.probabilities()
        cumulative = np.cumsum(p) ** math.exp(settings.skew)
        for (token, _), below, above in zip(
            plain.tokens, [0.0, *cumulative], cumulative, strict=False
        ):
            probs[token] += share * (above - below)
    return probs


SETTINGS = [
    SamplingSettings(),
    SamplingSettings(temperature=0.5),
    SamplingSettings(temperature=1.7, top_k=3),
    SamplingSettings(top_p=0.8),
    SamplingSettings(top_k=4, top_p=0.9, min_p=0.2),
    SamplingSettings(min_p=0.3),
    SamplingSettings(repetition_penalty=1.5),
    SamplingSettings(repetition_penalty=1.5, repetition_range=2, repetition_decay=3),
    SamplingSettings(frequency_penalty=0.7, presence_penalty=0.4),
    SamplingSettings(frequency_penalty=0.7, presence_penalty=0.4, repetition_range=3),
    SamplingSettings(frequency_penalty=-0.5, logit_bias={0: 2.0, 3: -math.inf}),
    SamplingSettings(temperature=0.7, top_p=0.9, repetition_penalty=1.3, presence_penalty=0.2),
    SamplingSettings(temperature=0.6, temperature_last=True, top_p=0.93),
    SamplingSettings(min_temperature=0.3, max_temperature=2.5, temperature_exponent=0.8, top_k=6),
    SamplingSettings(smoothing_factor=0.3, temperature=1.2),
    SamplingSettings(top_a=0.4),
    SamplingSettings(top_n_sigma=1.1),
    SamplingSettings(tfs=0.77),
    SamplingSettings(typical_p=0.62),
    SamplingSettings(skew=0.6),
    SamplingSettings(skew=-0.8, top_k=5),
    SamplingSettings(mirostat=True, mirostat_tau=1.3),
    SamplingSettings(xtc_probability=0.4, xtc_threshold=0.12),
    SamplingSettings(xtc_probability=1.0, xtc_threshold=0.03, temperature=1.5),
    SamplingSettings(dry_multiplier=0.9, dry_allowed_length=1),
    SamplingSettings(dry_multiplier=0.5, dry_base=2.5, dry_range=9),
    SamplingSettings(allowed_tokens=[0, 2, 5, 7], banned_tokens=[5]),
    SamplingSettings(
        temperature=1.4, top_k=6, min_p=0.04, sampler_order=("min_p", "top_k", "temperature")
    ),
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: non_defaults(s))
def test_draws_follow_the_plain_distribution(settings: SamplingSettings) -> None:
    logits = some_logits(V, seed=3, scale=1.5)
    expected = plain_distribution(logits, settings)
    one = sampler(replace(settings, seed=1), V, PROMPT)
    # Accepted without a probability, tokens leave mirostat's bound where it was.
    for token_id in COMPLETION:
        one.accept(token_id, 0.0)
    n_draws = 2000
    counts = np.zeros(V)
    for position in range(n_draws):
        result = one.sample(logits, position)
        counts[result.token_id] += 1
        if not settings.xtc_probability:
            assert result.p_sampled == pytest.approx(expected[result.token_id], abs=1e-6)
    possible = expected > 0
    assert counts[~possible].sum() == 0
    if possible.sum() > 1:
        assert chisquare(counts[possible], expected[possible] * n_draws).pvalue > 1e-4


def non_defaults(settings: SamplingSettings) -> str:
    default = SamplingSettings()
    names = settings.__dataclass_fields__
    return ",".join(name for name in names if getattr(settings, name) != getattr(default, name))


def test_raw_probability_is_untouched_by_settings() -> None:
    logits = np.array([2.0, 1.0, 0.0, -1.0], dtype=np.float32)
    masses = np.exp(logits.astype(np.float64))
    raw = masses / masses.sum()
    settings = SamplingSettings(temperature=0.3, top_k=2, repetition_penalty=2.0, seed=1)
    result = sampler(settings, 4, (0,), n_top=4).sample(logits, 0)
    assert result.p_raw == pytest.approx(float(raw[result.token_id]), abs=1e-6)
    assert result.top_ids == (0, 1, 2, 3)
    assert np.exp(result.top_logprobs_raw) == pytest.approx(raw, abs=1e-6)
    assert result.top_p_sampled[2:] == (0.0, 0.0), "the sampler removed these"
    assert result.entropy == pytest.approx(-(raw * np.log(raw)).sum())
    assert result.margin == pytest.approx(raw[0] - raw[1])
    assert result.rank == result.token_id
    assert logits.tolist() == [2.0, 1.0, 0.0, -1.0], "the model's logits stay as they are"


def test_greedy_takes_the_largest_after_bias() -> None:
    logits = np.array([2.0, 1.0, 0.0], dtype=np.float32)
    greedy = SamplingSettings(temperature=0.0, logit_bias={2: 5.0}, top_k=2, xtc_probability=1.0)
    result = sampler(greedy, 3).sample(logits, 0)
    assert (result.token_id, result.p_sampled, result.kept_mass, result.rank) == (2, 1.0, 1.0, 2)


def test_same_seed_and_position_same_token() -> None:
    logits = some_logits(50, seed=0)
    draws = [
        [sampler(SamplingSettings(seed=seed), 50).sample(logits, p).token_id for p in range(20)]
        for seed in (7, 7, 8)
    ]
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]


def test_a_negative_seed_is_a_seed() -> None:
    assert sampler(SamplingSettings(seed=-1)).seed == 2**64 - 1


def test_a_seed_is_drawn_when_none_is_given() -> None:
    seeds = {sampler(SamplingSettings()).seed for _ in range(5)}
    assert len(seeds) == 5
    assert all(0 <= seed < 2**53 for seed in seeds)


def test_another_attempt_draws_anew() -> None:
    logits = np.zeros(V, dtype=np.float32)
    one = sampler(SamplingSettings(seed=3))
    drawn = [one.sample(logits, 17, attempt=attempt).token_id for attempt in range(40)]
    assert drawn == [int(V * uniform(3, 17, attempt=attempt)) for attempt in range(40)]
    assert len(set(drawn)) > 3


def test_xtc_strikes_by_its_own_random_number() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.2])).astype(np.float32)
    settings = SamplingSettings(xtc_probability=0.5, xtc_threshold=0.25, seed=9)
    one = sampler(settings, 3, n_top=3)
    for position in range(50):
        struck = one.sample(logits, position).top_p_sampled[0] == 0.0
        assert struck == (uniform(9, position, purpose=XTC) < 0.5)


def test_what_is_banned_at_a_step_is_allowed_at_the_next() -> None:
    logits = some_logits(V, seed=3)
    best, second, third, *_, worst = np.argsort(-logits).tolist()
    one = sampler(SamplingSettings(temperature=0.0, banned_tokens=(worst,)))
    banned = [best]
    assert one.sample(logits, 0, banned=banned).token_id == second
    assert banned == [best], "the caller's list is the caller's"
    assert one.sample(logits, 0).token_id == best
    mask = set_of_ids([third, worst], V)
    assert one.sample(logits, 0, mask=mask).token_id == third
    assert one.sample(logits, 0).token_id == best


def test_the_allowed_tokens_and_a_mask_both_hold() -> None:
    logits = np.zeros(V, dtype=np.float32)
    one = sampler(SamplingSettings(allowed_tokens=(1, 2, 3)))
    drawn = {one.sample(logits, p, mask=set_of_ids([2, 3, 4], V)).token_id for p in range(60)}
    assert drawn == {2, 3}
    with pytest.raises(InvalidInputError, match="allowed and banned tokens removed all 8"):
        one.sample(logits, 0, mask=set_of_ids([0, 7], V))
    with pytest.raises(InvalidInputError, match="allowed and banned tokens"):
        one.sample(logits, 0, banned=(1, 2, 3))
    assert one.sample(logits, 0).token_id in {1, 2, 3}, "an error changes nothing"


def test_the_trace_comes_when_wanted() -> None:
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1])).astype(np.float32)
    settings = SamplingSettings(top_k=3, min_p=0.6, xtc_probability=1.0, xtc_threshold=0.2)
    assert sampler(settings, 4).sample(logits, 0).trace == ()
    assert sampler(settings, 4, trace=True).sample(logits, 0).trace == (
        ("top_k", 1, False),
        ("min_p", 1, False),
        ("xtc", 1, True),
    )


@pytest.mark.parametrize("name", ["logit_bias", "allowed_tokens", "banned_tokens"])
@pytest.mark.parametrize("token_id", [-1, V])
def test_a_token_outside_the_vocabulary_is_refused(name: str, token_id: int) -> None:
    values: Any = {token_id: 1.0} if name == "logit_bias" else [0, token_id]
    with pytest.raises(InvalidInputError, match=f"{name} holds token {token_id}.*0 to 7") as caught:
        sampler(SamplingSettings(**{name: values}))
    assert caught.value.param == name


# Everything that depends on the tokens so far.
STATEFUL = SamplingSettings(
    temperature=1.1,
    repetition_penalty=1.4,
    repetition_range=6,
    repetition_decay=4,
    frequency_penalty=0.3,
    presence_penalty=0.2,
    dry_multiplier=0.7,
    dry_allowed_length=1,
    mirostat=True,
    mirostat_tau=1.2,
    mirostat_eta=0.4,
    xtc_probability=0.3,
    seed=5,
)


def step(one: Sampler, position: int) -> SampleResult:
    """Sample and accept, from logits that depend on the position alone."""
    result = one.sample(some_logits(V, seed=position, scale=1.5), position)
    one.accept(result.token_id, result.p_sampled)
    return result


@given(
    moves=st.lists(st.one_of(st.integers(1, 12).map(lambda n: ("go", n)), st.just(("back", 0)))),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_after_a_rollback_all_is_as_if_never_gone(
    moves: list[tuple[str, int]], data: st.DataObject
) -> None:
    one = sampler(STATEFUL, prompt_ids=PROMPT, n_top=V)
    results: list[SampleResult] = []
    for kind, n in moves:
        if kind == "go":
            # Far beyond the end of what fresh would see: other tokens than the ones drawn.
            mark = one.mark()
            for _ in range(n):
                one.accept(data.draw(st.integers(0, V - 1)), 0.01)
            one.rollback(mark)
            for _ in range(n):
                results.append(step(one, len(results)))
        else:
            mark = data.draw(st.integers(0, one.mark()))
            one.rollback(mark)
            del results[mark:]
        assert one.mark() == len(results)
    fresh = sampler(STATEFUL, prompt_ids=PROMPT, n_top=V)
    assert [step(fresh, position) for position in range(len(results))] == results
    assert step(one, len(results)) == step(fresh, len(results))


def test_a_mark_stays_usable() -> None:
    one = sampler(STATEFUL, prompt_ids=PROMPT, n_top=V)
    first = step(one, 0)
    mark = one.mark()
    again = []
    for _ in range(3):
        again.append([step(one, position) for position in range(1, 6)])
        one.rollback(mark)
    assert again[0] == again[1] == again[2]
    one.rollback(0)
    assert step(one, 0) == first


@pytest.mark.parametrize("mark", [-1, 4])
def test_a_mark_that_was_never_reached_is_refused(mark: int) -> None:
    one = sampler(STATEFUL)
    accept_all(one, [1, 2, 3])
    with pytest.raises(ValueError, match=f"mark: {mark}, allowed: 0 to 3"):
        one.rollback(mark)


def test_two_requests_share_nothing() -> None:
    alone = sampler(STATEFUL, prompt_ids=PROMPT, n_top=V)
    expected = [step(alone, position) for position in range(30)]
    vocabulary = SamplerVocabulary(Letters(), V)
    work = np.empty(V, dtype=np.float32)
    both = [
        Sampler(STATEFUL, prompt_ids=prompt, vocabulary=vocabulary, work=work, n_top=V)
        for prompt in (PROMPT, (3, 3, 3))
    ]
    interleaved = []
    for position in range(30):
        interleaved.append(step(both[0], position))
        step(both[1], position)
        with pytest.raises(InvalidInputError):
            both[1].sample(some_logits(V), position, banned=tuple(range(V)))
    assert interleaved == expected


def test_mirostat_steers_the_surprise() -> None:
    """Its average approaches tau bits, where top-k alone is far from it."""
    for tau in (1.0, 2.5):
        settings = SamplingSettings(mirostat=True, mirostat_tau=tau, mirostat_eta=0.1, seed=1)
        one = sampler(settings, 200)
        bits = []
        for position in range(1500):
            result = one.sample(some_logits(200, seed=position % 50, scale=2.0), position)
            one.accept(result.token_id, result.p_sampled)
            bits.append(-math.log2(result.p_sampled))
        assert np.mean(bits[300:]) == pytest.approx(tau, abs=0.15)


def test_a_long_completion_outgrows_the_first_room() -> None:
    one = sampler(SamplingSettings(frequency_penalty=0.001), n_top=V)
    logits = np.zeros(V, dtype=np.float32)
    accept_all(one, [3] * 5000)
    result = one.sample(logits, 0)
    expected = math.exp(-5.0) / (V - 1 + math.exp(-5.0))
    assert result.top_p_sampled[3] == pytest.approx(expected, rel=1e-4)
    one.rollback(0)
    assert one.sample(logits, 0).top_p_sampled[3] == pytest.approx(1 / V)


def test_the_prompt_is_copied() -> None:
    prompt = [3, 3]
    settings = SamplingSettings(temperature=0.0, repetition_penalty=2.0)
    one = Sampler(
        settings,
        prompt_ids=prompt,
        vocabulary=SamplerVocabulary(Letters(), V),
        work=np.empty(V, dtype=np.float32),
        n_top=0,
    )
    prompt[:] = [4, 4]
    logits = np.array([0, 0, 0, 2.0, 1.5, 0, 0, 0], dtype=np.float32)
    assert one.sample(logits, 0).token_id == 4
