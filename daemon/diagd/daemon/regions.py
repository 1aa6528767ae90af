"""Parts of tensors in words; how they are written says probes/diagd/probes/box/sums.py."""

from collections.abc import Iterator, Sequence

WHOLE = ""


def in_words(region: str, shape: Sequence[int]) -> str:
    """A part of a tensor of this shape: "rows 0 to 3", or "elements 120 to 339" of the flat one."""
    if region.startswith("@"):
        return _spans("element", region[1:])
    return " of ".join(reversed(list(_dims(region, shape)))) or "all of it"


def in_order(region: str) -> list[int]:
    """A key by which parts are sorted as they lie in the tensor."""
    numbers = region.strip("@").replace("+", ",").replace(":", ",").split(",")
    return [int(number) for number in numbers if number]


def _dims(region: str, shape: Sequence[int]) -> Iterator[str]:
    """Of each dimension of which not all is meant."""
    for dim, (runs, extent) in enumerate(zip(region.split(",") if region else (), shape, strict=False)):
        if runs != f"0:{extent}":
            yield _spans("row" if dim == 0 else "column" if len(shape) == 2 else f"index {dim} =", runs)


def _spans(what: str, runs: str) -> str:
    spans = [(int(first), int(stop) - 1) for first, stop in (run.split(":") for run in runs.split("+"))]
    told = ", ".join(f"{first} to {last}" if last > first else str(first) for first, last in spans)
    plural = "s" * (what.isalpha() and (len(spans) > 1 or spans[0][1] > spans[0][0]))
    return f"{what}{plural} {told}"
