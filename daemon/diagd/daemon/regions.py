"""Parts of tensors in words; how they are written says probes/diagd/probes/box/sums.py."""

from collections.abc import Iterator, Sequence

WHOLE = ""


def in_words(region: str, shape: Sequence[int]) -> str:
    """A part of a tensor of this shape: "rows 0 to 3", or "elements 120 to 339" of the flat one."""
    return " of ".join(reversed(list(_words(region, shape)))) or "all of it"


def in_order(region: str) -> list[int]:
    """A key by which parts are sorted as they lie in the tensor."""
    numbers = region.strip("@").replace("+", ",").replace(":", ",").split(",")
    return [int(number) for number in numbers if number]


def _words(region: str, shape: Sequence[int]) -> Iterator[str]:
    if region.startswith("@"):
        first, stop = region[1:].split(":")
        yield _span("elements", first, stop)
        return
    for dim, (runs, extent) in enumerate(zip(region.split(",") if region else (), shape, strict=False)):
        if runs != f"0:{extent}":
            what = "rows" if dim == 0 else "columns" if len(shape) == 2 else f"indices of dimension {dim}"
            spans = [_span(what, *run.split(":")) for run in runs.split("+")]
            yield ", ".join([spans[0], *(span.removeprefix(what).strip() for span in spans[1:])])


def _span(what: str, first: str, stop: str) -> str:
    return f"{what} {first} to {int(stop) - 1}" if int(stop) - 1 > int(first) else f"{what} {first}"
