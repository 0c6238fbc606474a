"""Philox: known answers, uniformity, and a result that depends only on seed and counter."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from engine import derived_seed
from engine.native import _cpu
from engine.sampling.random_numbers import DRAW, SEED, XTC, random_seed, uniform

LONG, SHORT = st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)


def as_uniform(first: int, second: int) -> float:
    """Two words of 32 bits as a number with 53 bits."""
    return ((first >> 5) << 26 | second >> 6) / 2**53


def test_known_answers() -> None:
    # Random123's kat_vectors, philox 4x32 with 10 rounds.
    assert uniform(0, 0) == as_uniform(0x6627E8D5, 0xE169C58D)
    ones = 0xFFFFFFFF
    last = uniform(2**64 - 1, 2**64 - 1, attempt=ones, purpose=ones)
    assert last == as_uniform(0x408F276D, 0x41C83B0E)
    # The digits of pi: counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0.
    of_pi = uniform(
        0x299F31D0_A4093822, 0x85A308D3_243F6A88, attempt=0x13198A2E, purpose=0x03707344
    )
    assert of_pi == as_uniform(0xD16CFE09, 0x94FDCCEB)


@given(seed=LONG, position=LONG, purpose=SHORT, attempt=SHORT)
def test_native_numbers_are_the_same(seed: int, position: int, purpose: int, attempt: int) -> None:
    native = _cpu.uniform(seed, position, purpose=purpose, attempt=attempt)
    assert native == uniform(seed, position, purpose=purpose, attempt=attempt)
    assert _cpu.uniform(seed, position) == uniform(seed, position)


def test_uniform_numbers_are_uniform_and_independent_of_order() -> None:
    numbers = [uniform(seed, position) for seed in range(40) for position in range(100)]
    assert all(0.0 <= number < 1.0 for number in numbers)
    counts = np.histogram(numbers, bins=20, range=(0, 1))[0]
    assert chisquare(counts).pvalue > 1e-3
    assert len(set(numbers)) == len(numbers)
    assert uniform(39, 99) == numbers[-1]


def test_seed_position_attempt_and_purpose_all_count() -> None:
    cases = list(product((0, 1, 2**63), (0, 1, 2**32), (0, 1, 7), (DRAW, XTC, SEED)))
    numbers = {uniform(s, p, attempt=a, purpose=what) for s, p, a, what in cases}
    assert len(numbers) == len(cases)


def test_numbers_of_two_purposes_are_independent() -> None:
    pairs = np.zeros((4, 4))
    for position in range(4000):
        draw, xtc = uniform(5, position), uniform(5, position, purpose=XTC)
        pairs[int(4 * draw), int(4 * xtc)] += 1
    assert chisquare(pairs.ravel()).pvalue > 1e-3


def test_a_random_seed_fits_every_json_reader() -> None:
    seeds = {random_seed() for _ in range(20)}
    assert len(seeds) == 20
    assert all(0 <= seed < 2**53 for seed in seeds)


def test_derived_seeds_are_independent_and_the_first_is_the_seed_itself() -> None:
    for seed in (0, 7, 2**64 - 1, -5):
        assert derived_seed(seed, 0) == seed
        others = [derived_seed(seed, index) for index in range(1, 200)]
        assert len({seed, *others}) == 200
        assert all(0 <= other < 2**53 for other in others)
        assert derived_seed(seed, 5) == others[4], "nothing but seed and index counts"
    numbers = [derived_seed(seed, 1) / 2**53 for seed in range(2000)]
    assert chisquare(np.histogram(numbers, bins=20, range=(0, 1))[0]).pvalue > 1e-3
    with pytest.raises(ValueError, match="index: -1"):
        derived_seed(1, -1)
