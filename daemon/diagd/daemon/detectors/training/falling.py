"""Whether a noisy loss falls: by the error of the line through all of it, far below the noise of one sample."""

from typing import NamedTuple

import numpy as np

from diagd.daemon.detectors.training.curves import Floats, spread

FIRST = 10  # one part in so many, from the beginning, is left out: biases are learned there
CLEAR = 2.5  # standard errors of a fall that is one
WITHIN = 1.4  # and so many more than is seen there may be: what is told early is only worth knowing
SMALL = 0.01  # of the level: a fall over the whole of a run that is none worth the name
MOST = 0.1  # of the level: a fall that large is one, whatever the noise that hides it
FAR = 4.0  # deviations: values are cut there, so that a few do not make the line
NEWEST = 10, 50  # samples, at least and at most, that show a fall which has only begun
BEGUN = 4.0  # their standard errors
MOST_ALIKE = 0.95  # correlation of neighbours


class Fall(NamedTuple):
    """How far a loss falls over all of its samples."""

    fall: float
    error: float  # standard
    noise: float  # standard deviation of a sample around the line
    stretch: float  # errors of a mean are so many times those of independent samples


def may_fall(values: Floats, *, patient: bool) -> bool:
    """Whether the loss falls, or may: what is not known yet is shown by more samples.

    Args:
        values: The loss, oldest first, some dozens at least.
        patient: A fall as large as its noise must be ruled out; else it is enough that none is seen.
    """
    found, level = fall_of(values[len(values) // FIRST :]), abs(float(np.median(values)))
    if found.fall > max(CLEAR * found.error, SMALL * level) or _has_begun(values, found, level):
        return True
    hidden = min(max(found.noise, SMALL * level), MOST * level)
    return patient and found.fall + WITHIN * found.error > hidden


def fall_of(values: Floats) -> Fall:
    """By least squares; neighbours that resemble each other, as where a logger averages, count as fewer."""
    middle, far = float(np.median(values)), FAR * spread(values)
    cut = np.clip(values, middle - far, middle + far)
    at = np.arange(len(cut)) - (len(cut) - 1) / 2
    slope = float(at @ cut / (at @ at))
    rest = cut - cut.mean() - slope * at
    noise = float(np.sqrt(rest @ rest / max(len(cut) - 2, 1)))
    power = float(rest @ rest)
    alike = min(max(float(rest[1:] @ rest[:-1]) / power, 0.0), MOST_ALIKE) if power > 0 else 0.0
    stretch = float(np.sqrt((1 + alike) / (1 - alike)))
    return Fall(-slope * len(cut), stretch * noise * len(cut) / float(np.sqrt(at @ at)), noise, stretch)


def _has_begun(values: Floats, found: Fall, level: float) -> bool:
    """Whether the newest samples lie below all before: a long run's line does not show it yet."""
    count = min(max(len(values) // FIRST, NEWEST[0]), NEWEST[1])
    below = float(np.median(values[:-count]) - values[-count:].mean())
    return below > max(BEGUN * found.stretch * found.noise / float(np.sqrt(count)), SMALL * level)
