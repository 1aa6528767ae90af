"""Series of numbers as pictures within the page: where each line, tick and mark lies."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

WIDTH, HEIGHT = 480, 170
LEFT, RIGHT, TOP, BOTTOM = 62, 10, 10, 26  # what the axes' words need
FOOT = HEIGHT - BOTTOM
LOGARITHMIC = 100.0  # positive values that span more are drawn by their logarithm
LEAST_SPAN = 0.1  # of the values' size, that the height of a picture stands for
COLOURS = ("#2f7dd1", "#d9772b", "#3a9d5d", "#9a5fc7", "#c2507c", "#7a7f87")
_TICKS = 4

Point = tuple[float, float | None]


class Scale(NamedTuple):
    """From values to places, along one axis."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """Where the value lies."""
        low, high, value = (math.log10(v) if self.logarithmic else v for v in (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values within."""
        if self.logarithmic:
            return _decades(self.low, self.high)
        rough = (self.high - self.low) / _TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(n * power for n in (1, 2, 2.5, 5, 10) if n * power >= rough)
        first = math.ceil(self.low / step)
        return [n * step for n in range(first, math.floor(self.high / step) + 1)]


def _decades(low: float, high: float) -> list[float]:
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    every = max((last - first) // _TICKS, 1)
    return [10.0**n for n in range(first, last + 1, every)]


def figure(plot: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the page's template draws of one plot, in the units of its picture; None where no value is finite.

    Args:
        plot: `title`; `series`, each with a `label`, `steps` and `values` (null: not a finite number); `marks`, each
            with a `step` and a `label`; `limit`, a value that is drawn as a line, or null; `forecasts`, as the series:
            where those of the same label will be.
    """
    lines = _lines(plot["series"])
    colours = dict(zip(dict.fromkeys(label for label, _ in lines), itertools.cycle(COLOURS), strict=False))
    ahead = _lines(plot.get("forecasts") or [])
    finite = [(x, y) for _, points in (*lines, *ahead) for x, y in points if y is not None]
    if not finite:
        return None
    limit = plot.get("limit")
    across = _across([x for x, _ in finite], [mark["step"] for mark in plot["marks"]])
    up = _up([y for _, y in finite] + ([float(limit)] if limit is not None else []))
    return {
        "title": plot["title"],
        "box": {"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": WIDTH - RIGHT, "top": TOP, "foot": FOOT},
        "rows": [{"at": up.place(value), "text": _short(value)} for value in up.ticks()],
        "columns": [{"at": across.place(v), "text": str(int(v))} for v in across.ticks() if v == int(v)],
        "marks": [{"at": across.place(mark["step"]), **mark} for mark in plot["marks"]],
        "limit": up.place(float(limit)) if limit is not None else None,
        "lines": [
            {"label": label, "colour": colours[label], "pieces": list(_pieces(across, up, points))}
            for label, points in lines
        ],
        "forecasts": [
            {"label": label, "colour": colours.get(label, COLOURS[-1]), "pieces": list(_pieces(across, up, points))}
            for label, points in ahead
        ],
        "bad": sorted({across.place(x) for _, points in lines for x, y in points if y is None}),
    }


def _lines(series: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Point]]]:
    return [(str(one["label"]), list(zip(one["steps"], one["values"], strict=True))) for one in series]


def _across(steps: Sequence[float], marks: Sequence[float]) -> Scale:
    low, high = min(*steps, *marks, steps[0]), max(*steps, *marks, steps[0])
    return Scale(low, high if high > low else low + 1, LEFT, WIDTH - RIGHT)


def _up(values: Sequence[float]) -> Scale:
    low, high = min(values), max(values)
    if low > 0 and high / low > LOGARITHMIC:
        return Scale(low, high, FOOT, TOP, logarithmic=True)
    flat = LEAST_SPAN * max(abs(low), abs(high))  # what changes less is as good as constant, and looks so
    room = max(0.05 * (high - low), (flat - (high - low)) / 2) or 1.0
    return Scale(low - room, high + room, FOOT, TOP)


def _pieces(across: Scale, up: Scale, points: Sequence[Point]) -> Iterator[str]:
    """The stretches of finite values, each as an svg polyline's points."""
    for is_finite, stretch in itertools.groupby(points, key=lambda point: point[1] is not None):
        if is_finite:
            places = [f"{across.place(x):.1f},{up.place(y):.1f}" for x, y in stretch if y is not None]
            yield " ".join(places * 2 if len(places) == 1 else places)  # a lone point is a dot


def _short(value: float) -> str:
    """At most some eight characters."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
