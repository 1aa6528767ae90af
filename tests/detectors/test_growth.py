"""Growth of what is held after each step: found where it is, in time and at its true pace, and not where it is not."""

from collections.abc import Callable

import numpy as np
import pytest
from tests.detectors.memories import BASE, MIB, flat, leak, noise

from diagd.daemon.detectors.growth import Floats, growth
from diagd.daemon.detectors.memory import worth

RUNS = 100
Make = Callable[[np.random.Generator, int], Floats]


def lengths_vary(rng: np.random.Generator, steps: int) -> Floats:
    """Batches of other lengths leave other amounts in the allocator."""
    return BASE + rng.gamma(2.0, 20.0, steps) * MIB


def cache_filled(rng: np.random.Generator, steps: int) -> Floats:
    """It fills in the first part of the run, and stops."""
    full = steps * rng.uniform(0.1, 0.75)
    return BASE + np.minimum(np.arange(steps), full) * rng.uniform(0.5, 5.0) * MIB + noise(rng, steps)


def cache_saturates(rng: np.random.Generator, steps: int) -> Floats:
    """Ever fewer of the keys are new."""
    filled: Floats = 400 * MIB * (1 - np.exp(-np.arange(steps) / (steps * rng.uniform(0.05, 0.2))))
    return BASE + filled + noise(rng, steps)


def in_large_pieces(rng: np.random.Generator, steps: int) -> Floats:
    """An allocator takes memory in arenas of 64 MiB, a few times in a run."""
    return BASE + np.cumsum(rng.random(steps) < 3 / steps) * 64 * MIB + noise(rng, steps)


def emptied_each_epoch(rng: np.random.Generator, steps: int) -> Floats:
    """Outputs are collected and let go of; the run ends with an epoch."""
    epoch = steps // int(rng.integers(3, 9))
    filled = (np.arange(steps) % epoch).astype(np.float64) * 3 * MIB
    return BASE + filled + noise(rng, steps)


def peaks(rng: np.random.Generator, steps: int) -> Floats:
    """Evaluation and checkpoints take much, now and then, and more each time."""
    made = BASE + noise(rng, steps)
    made[:: int(rng.integers(15, 40))] += 400 * MIB * rng.random()
    return made


def optimizer_state_late(rng: np.random.Generator, steps: int) -> Floats:
    """State is allocated when the optimizer first needs it; another one steps for the first time later."""
    made = BASE + noise(rng, steps)
    made[2:] += 200 * MIB
    made[int(steps * rng.uniform(0.2, 0.8)) :] += 100 * MIB
    return made


def wanders(rng: np.random.Generator, steps: int) -> Floats:
    """Up and down by chance."""
    return BASE + np.cumsum(rng.normal(0.0, 0.2, steps)) * MIB


@pytest.mark.parametrize(
    "make",
    [lengths_vary, cache_filled, cache_saturates, in_large_pieces, peaks, optimizer_state_late, wanders],
    ids=lambda make: make.__name__,
)
def test_in_a_hundred_runs_without_a_leak_none_is_found(make: Make) -> None:
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        steps = int(rng.integers(100, 1500))
        assert worth(growth(np.arange(1, steps + 1), make(rng, steps))) is None, f"seed {seed}"


def test_what_is_emptied_each_epoch_has_not_grown_when_it_is_empty() -> None:
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        made = emptied_each_epoch(rng, int(rng.integers(100, 1500)))
        made[-1] = made[0]
        found = growth(np.arange(1, len(made) + 1), made)
        assert found is None, f"seed {seed}"


@pytest.mark.parametrize("a_step", [0.5, 2.0, 20.0])
def test_a_leak_is_found_in_a_hundred_runs_of_a_hundred_at_its_true_pace(a_step: float) -> None:
    for seed in range(RUNS):
        found = growth(np.arange(1, 121), leak(120, a_step, seed=seed))
        assert found is not None, f"seed {seed}"
        assert found.slope == pytest.approx(a_step * MIB, rel=0.15)
        assert found.since <= 30


@pytest.mark.parametrize("jitter", [0.0, 0.3])
def test_half_way_the_forecast_is_right_to_fifteen_percent(jitter: float) -> None:
    """The way from the leak's begin to the limit; the leak may be larger in some steps than in others."""
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        a_step, room = rng.uniform(0.5, 20.0), 4096.0
        whole = int(room / a_step)
        rises = np.cumsum(rng.normal(a_step, jitter * a_step, whole)) * MIB
        half = BASE + rises[: whole // 2] + noise(rng, whole // 2)
        found = growth(np.arange(1, len(half) + 1), half)
        assert found is not None, f"seed {seed}"
        likely, first, last = found.steps_until(BASE + room * MIB - half[-1])
        assert len(half) + likely == pytest.approx(whole, rel=0.15), f"seed {seed}"
        assert first <= likely <= last


def test_a_leak_that_begins_late_is_dated() -> None:
    found = growth(np.arange(1, 401), leak(400, 3.0, since=200))
    assert found is not None
    assert 190 <= found.since <= 260
    assert found.before < BASE + 200 * MIB


def test_growth_that_has_ended_is_none_any_more() -> None:
    steps = np.arange(1, 401)
    values = BASE + np.minimum(steps, 320) * 3 * MIB  # four fifths of the way
    assert growth(steps, values) is None
    assert growth(steps[:320], values[:320]) is not None


def test_a_few_samples_prove_nothing() -> None:
    assert growth(np.arange(11, 18), leak(7)) is None
    assert growth(np.array([11, 12, 13, 14, 15, 16, 17, 18]), leak(8)) is None


def test_what_is_not_finite_is_left_out() -> None:
    values = leak(120)
    values[::7] = np.nan
    assert growth(np.arange(1, 121), values) is not None
    assert growth(np.arange(1, 121), flat(120)) is None


def saturating(steps: int, seed: int) -> Floats:
    """A cache that is filled by chance, and is about two thirds full."""
    rng = np.random.default_rng(seed)
    filled: Floats = 1000 * MIB * (1 - np.exp(-np.arange(steps) / (steps * rng.uniform(0.6, 0.9))))
    return BASE + filled + noise(rng, steps)


def test_a_cache_that_fills_grows_ever_more_slowly_and_a_leak_does_not() -> None:
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        steps = int(rng.integers(100, 1000))
        found = growth(np.arange(1, steps + 1), saturating(steps, seed))
        assert found is not None, f"seed {seed}"
        assert found.slowing, f"seed {seed}"
        uneven = BASE + np.cumsum(rng.normal(2.0, 0.6, steps)) * MIB + noise(rng, steps)
        found = growth(np.arange(1, steps + 1), uneven)
        assert found is not None, f"seed {seed}"
        assert not found.slowing, f"seed {seed}"
