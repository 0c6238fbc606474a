"""Settings, random numbers and penalties, against plain definitions."""

import math
from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

from engine import InvalidInputError, SamplingSettings
from engine.sample import Logits
from engine.sampling import Sampler, uniform


def sampler(
    settings: SamplingSettings, vocab_size: int, prompt_ids: tuple[int, ...] = (0,), n_top: int = 0
) -> Sampler:
    work = np.empty(vocab_size, dtype=np.float32)
    return Sampler(settings, prompt_ids=prompt_ids, work=work, n_top=n_top)


def some_logits(n: int, seed: int) -> Logits:
    return np.random.default_rng(seed).standard_normal(n, dtype=np.float32) * np.float32(1.5)


def probabilities(logits: Logits) -> np.ndarray:
    masses = np.exp(logits.astype(np.float64))
    probs: np.ndarray = masses / masses.sum()
    return probs


def test_philox_known_answer() -> None:
    # Random123's kat_vectors: philox4x32-10, counter 0, key 0 begins 6627e8d5 e169c58d.
    assert uniform(0, 0) == ((0x6627E8D5 >> 5) << 26 | 0xE169C58D >> 6) / 2**53


def test_uniform_numbers_are_uniform_and_independent_of_order() -> None:
    numbers = [uniform(seed, position) for seed in range(40) for position in range(100)]
    assert all(0.0 <= number < 1.0 for number in numbers)
    counts = np.histogram(numbers, bins=20, range=(0, 1))[0]
    assert chisquare(counts).pvalue > 1e-3
    assert len(set(numbers)) == len(numbers)
    assert uniform(39, 99) == numbers[-1]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_k", -1),
        ("top_p", 1.01),
        ("top_p", math.nan),
        ("min_p", -1e-9),
        ("repetition_penalty", 0.0),
        ("frequency_penalty", 2.1),
        ("presence_penalty", -2.1),
        ("seed", 2**64),
        ("logit_bias", {1: math.nan}),
        ("logit_bias", {1: math.inf}),
    ],
)
def test_a_setting_out_of_range_names_itself(name: str, value: object) -> None:
    with pytest.raises(InvalidInputError, match=name) as caught:
        SamplingSettings(**{name: value})  # type: ignore[arg-type]
    assert caught.value.param == name


def test_a_biased_token_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="ids 0 to 4") as caught:
        sampler(SamplingSettings(logit_bias={5: 1.0}), 5)
    assert caught.value.param == "logit_bias"


def plain_distribution(
    logits: np.ndarray, settings: SamplingSettings, prompt: list[int], completion: list[int]
) -> np.ndarray:
    """The documented order, written out in float64 with full sorts."""
    adjusted = logits.astype(np.float64)
    for token_id in set(prompt) | set(completion):
        value = adjusted[token_id]
        penalty = settings.repetition_penalty
        adjusted[token_id] = value / penalty if value > 0 else value * penalty
    for token_id, count in Counter(completion).items():
        adjusted[token_id] -= settings.presence_penalty + settings.frequency_penalty * count
    for token_id, bias in settings.logit_bias.items():
        adjusted[token_id] += bias
    scaled = adjusted / settings.temperature
    probs = np.exp(scaled - scaled.max())
    probs /= probs.sum()
    order = np.argsort(-probs, kind="stable")
    kept = np.zeros(len(probs), dtype=bool)
    kept[order[: settings.top_k or len(probs)]] = True
    probs = np.where(kept, probs, 0) / probs[kept].sum()
    before = np.cumsum(probs[order]) - probs[order]
    kept[order[before >= settings.top_p]] = False
    probs = np.where(kept, probs, 0) / probs[kept].sum()
    kept &= probs >= settings.min_p * probs.max()
    sampled: np.ndarray = np.where(kept, probs, 0) / probs[kept].sum()
    return sampled


SETTINGS = [
    SamplingSettings(),
    SamplingSettings(temperature=0.5),
    SamplingSettings(temperature=1.7, top_k=3),
    SamplingSettings(top_p=0.8),
    SamplingSettings(top_k=4, top_p=0.9, min_p=0.2),
    SamplingSettings(min_p=0.3),
    SamplingSettings(repetition_penalty=1.5),
    SamplingSettings(frequency_penalty=0.7, presence_penalty=0.4),
    SamplingSettings(frequency_penalty=-0.5, logit_bias={0: 2.0, 3: -math.inf}),
    SamplingSettings(temperature=0.7, top_p=0.9, repetition_penalty=1.3, presence_penalty=0.2),
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_draws_follow_the_plain_distribution(settings: SamplingSettings) -> None:
    logits = some_logits(6, seed=3)
    prompt, completion = [0, 1, 1], [2, 2, 0]
    expected = plain_distribution(logits, settings, prompt, completion)
    one = sampler(settings, 6, tuple(prompt))
    for token_id in completion:
        one.accept(token_id)
    n_draws = 4000
    counts = np.zeros(6)
    for position in range(n_draws):
        result = one.sample(logits, position)
        counts[result.token_id] += 1
        assert result.p_sampled == pytest.approx(expected[result.token_id], abs=1e-5)
    possible = expected > 0
    assert counts[~possible].sum() == 0
    if possible.sum() > 1:
        assert chisquare(counts[possible], expected[possible] * n_draws).pvalue > 1e-4


def test_raw_probability_is_untouched_by_settings() -> None:
    logits = np.array([2.0, 1.0, 0.0, -1.0], dtype=np.float32)
    raw = probabilities(logits)
    settings = SamplingSettings(temperature=0.3, top_k=2, repetition_penalty=2.0, seed=1)
    result = sampler(settings, 4, (0,), n_top=4).sample(logits, 0)
    assert result.p_raw == pytest.approx(float(raw[result.token_id]), abs=1e-6)
    assert result.top_ids == (0, 1, 2, 3)
    assert np.exp(result.top_logprobs_raw) == pytest.approx(raw, abs=1e-6)
    assert result.top_p_sampled[2:] == (0.0, 0.0), "the sampler removed these"
    assert logits.tolist() == [2.0, 1.0, 0.0, -1.0], "the model's logits stay as they are"


def test_greedy_takes_the_largest_after_bias() -> None:
    logits = np.array([2.0, 1.0, 0.0], dtype=np.float32)
    result = sampler(SamplingSettings(temperature=0.0, logit_bias={2: 5.0}), 3).sample(logits, 0)
    assert (result.token_id, result.p_sampled) == (2, 1.0)
    assert result.p_raw == pytest.approx(probabilities(logits)[2], abs=1e-6)


def test_same_seed_and_position_same_token() -> None:
    logits = some_logits(50, seed=0)
    draws = [
        [sampler(SamplingSettings(seed=seed), 50).sample(logits, p).token_id for p in range(20)]
        for seed in (7, 7, 8)
    ]
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]


def test_a_seed_is_drawn_when_none_is_given() -> None:
    seeds = {sampler(SamplingSettings(), 3).seed for _ in range(5)}
    assert len(seeds) == 5
    assert all(0 <= seed < 2**53 for seed in seeds)
