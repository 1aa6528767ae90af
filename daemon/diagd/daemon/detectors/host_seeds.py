"""Replicas that draw the same numbers from numpy.random or Python's random, or from torch's generator in data workers.

What a dataset draws while samples are read is augmentation, noise or a choice for that sample: it has no reason to be
the same on all ranks, which read other samples. What the script draws beside that can be an order that all ranks take
alike, to use a part of it each: only as many numbers as the model's input has elements are noise for it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.replicas import Replicas, alike, equal, side_by_side, streak
from diagd.daemon.state.job import JobState

GENERATORS = {"numpy": "numpy.random", "random": "Python's random", "torch": "torch's generator"}
LOOKS = 4  # in a row at which the generators must stand alike
NEWEST = 8  # looks that tell what is drawn
NEARLY = 0.75  # of them
EACH = 1.0  # words for a sample: less is no number for each of them
BATCH = 8  # words for a batch: fewer can be a decision for all of it, as on a size or a mixing weight
LARGE = 128  # words in a step: fewer can be a decision that all ranks take alike
ELEMENTS = 64  # of an input: to as few another count can come near by chance
# Words an element: a uniform number takes 2, a normal one 4/pi * 2 = 2.55 on average; some more for choices beside it.
UNIFORM = (2.0, 2.15)
NORMAL = (2.45, 2.68)
WORKERS, ALIKE = 1, 2  # data/read_by: workers, and workers that all began with the same numbers


class _Drawn(NamedTuple):
    """What was seen of one generator."""

    generator: str
    ranks: tuple[int, ...]
    where: str
    severity: Severity
    times: int  # looks in a row at which it stood alike
    since: int
    amount: str


def same_host_numbers(state: JobState, replicas: Replicas) -> Iterator[Finding]:
    """One finding for each generator that stands alike on all these ranks while numbers are drawn of it."""
    for generator in GENERATORS:
        drawn = _read(state, replicas.ranks, generator) or _in_steps(state, replicas.ranks, generator)
        if drawn is not None:
            yield _finding(drawn)


def _read(state: JobState, ranks: tuple[int, ...], generator: str) -> _Drawn | None:
    """While samples are read from the dataset."""
    stands = alike(state, ranks, f"data/read_{generator}", LOOKS)
    drawn = _newest(state, ranks, f"data/read_drawn_{generator}") if stands is not None else None
    samples = _newest(state, ranks, "data/read_samples")
    by = _newest(state, ranks, f"data/read_by_{generator}")
    if stands is None or drawn is None or samples is None or by is None:
        return None
    times = streak(equal(stands))
    each = drawn[:, -times:]
    enough = (each >= EACH) & (each * np.median(samples) >= BATCH)
    if times < LOOKS or (each < 0).any() or enough.mean() < NEARLY:
        return None
    workers = by[:, -1].max() >= WORKERS
    # Workers are seeded by torch, with a number that the loader draws: alike on all ranks that were seeded alike, as
    # many are. That says less than a seed that the script has given its workers itself.
    given = not workers or (by == ALIKE).any() or not _same_seed(state, ranks)
    return _Drawn(
        generator, ranks, "in data workers" if workers else "while samples are read",
        Severity.WARNING if given else Severity.INFO, times, int(stands.steps[-times]),
        f"about {float(np.median(each)):.3g} words of 32 bits for each sample",
    )  # fmt: skip


def _same_seed(state: JobState, ranks: tuple[int, ...]) -> bool:
    seeds = side_by_side(state, ranks, "data/read_seed")
    return seeds is not None and len(seeds.steps) > 0 and bool(equal(seeds)[-1])


def _in_steps(state: JobState, ranks: tuple[int, ...], generator: str) -> _Drawn | None:
    """In the steps themselves."""
    stands = alike(state, ranks, f"data/rng_{generator}", LOOKS)
    if stands is None:
        return None
    times = streak(equal(stands))
    parts = [_newest(state, ranks, f"data/{name}_{generator}") for name in ("drawn", "drawn_inside")]
    if times < LOOKS or any(part is None or (part[:, -times:] < 0).any() for part in parts):
        return None  # the script seeds at each step, and so knows what it does
    for part in parts:
        newest = part[:, -times:] if part is not None else np.zeros((1, 1))
        if (newest >= LARGE).mean() >= NEARLY:
            noise = _is_noise(state, ranks, newest)
            return _Drawn(
                generator, ranks, "in each step", Severity.WARNING if noise else Severity.INFO, times,
                int(stands.steps[-times]),
                f"about {float(np.median(newest)):.4g} words of 32 bits a step"
                + (": as many numbers as the model's input has elements" if noise else ""),
            )  # fmt: skip
    return None


def _is_noise(state: JobState, ranks: tuple[int, ...], drawn: NDArray[np.float64]) -> bool:
    """Whether so many were drawn as noise for each element of the input takes."""
    elements = side_by_side(state, ranks, "data/elements")
    if elements is None or not len(elements.steps) or elements.values[:, -1].min() < ELEMENTS:
        return False
    each = float(np.median(drawn)) / float(np.median(elements.values[:, -NEWEST:]))
    return any(least <= each <= most for least, most in (UNIFORM, NORMAL))


def _newest(state: JobState, ranks: tuple[int, ...], name: str) -> NDArray[np.float64] | None:
    seen = side_by_side(state, ranks, name)
    return seen.values[:, -NEWEST:] if seen is not None and len(seen.steps) else None


def _finding(drawn: _Drawn) -> Finding:
    name = GENERATORS[drawn.generator]
    text = (
        f"{words.ranks_text(drawn.ranks)} draw the same random numbers from {name} {drawn.where}, since step"
        f" {drawn.since} ({drawn.amount}): it stands alike on all of them, so what is random (augmentation, noise)"
        " averages over fewer samples than there are ranks"
    )
    seen = f"the state of {name} is equal on all of them after each of {drawn.times} looks; {drawn.amount}"
    cause = Cause(
        "host_rng", "all ranks were seeded alike, and not apart again", 0.7, Basis.INFERENCE,
        (Evidence(seen, "probe", step=drawn.since),),
    )  # fmt: skip
    module = name if drawn.generator == "numpy" else drawn.generator
    names = ("rng", "seed", module, *(("worker",) if "workers" in drawn.where else ()))
    return Finding(
        "divergence.data", drawn.severity, drawn.ranks, words.shortened(text), (cause,), names=names,
        step=drawn.since, sure=True, goes_on=True, key=f"rng:{drawn.generator}:{drawn.ranks[0]}",
    )  # fmt: skip
