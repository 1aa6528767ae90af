"""What is said of host memory that grows."""

from collections.abc import Iterator

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence
from diagd.daemon.detectors.grows import CHILD_RSS, RSS, WORKER_RSS, Grows
from diagd.daemon.detectors.holding import CACHE, EMPTIED, KEPT, LIMITED, TAKEN, Allocated
from diagd.daemon.detectors.memory import Forecast, size_text
from diagd.daemon.state.model import Frame


def names(one: Grows) -> tuple[str, ...]:
    """What grows, and the script's own names for it."""
    if one.what == WORKER_RSS:
        data = (one.loader.dataset, *(path for path, _, _ in one.filled)) if one.loader else ()
        return (WORKER_RSS, "DataLoader worker", *data)[:20]
    if one.what == CHILD_RSS:
        return (CHILD_RSS, "child process")
    return (RSS, one.holder.path) if one.holder is not None else (RSS,)


def summary(ranks: tuple[int, ...], one: Grows, ahead: Forecast | None) -> str:
    """Who grows, by how much, in what, and when that fills the memory."""
    found = one.growth
    what = f"{words.ranks_text(ranks)} {words.verb(ranks, 'grows', 'grow')}"
    if one.what == WORKER_RSS:
        what = f"the data workers of {words.ranks_text(ranks)} grow"
    if one.what == CHILD_RSS:
        what = f"the child processes of {words.ranks_text(ranks)} grow"
    text = f"{what} by {size_text(found.slope)} a step since step {found.since}, {size_text(found.grown)} so far"
    text += _in_what(one)
    if not one.why:
        is_cache = one.holder is not None and one.holder.verdict == CACHE
        text += ": a cache without a bound, or one that is still being filled" if is_cache else _LEAK_OR_CACHE
        text += ", ever more slowly" if one.growth.slowing else ""
    if ahead is not None and (one.why or ahead.near) and not one.growth.slowing:
        text += f"; at this pace memory runs out {ahead.text}"
    return text


def _in_what(one: Grows) -> str:
    if one.what == WORKER_RSS:
        kept = [path for path, verdict, _ in one.filled if verdict == KEPT]
        data = f", dataset {one.loader.dataset}" if one.loader else ""
        return data + (f", whose {', '.join(kept[:2])} is only ever added to" if kept else "")
    if one.holder is None:
        kept_at = words.place_text(one.places[0]) if one.places else ""
        return f", allocated at {kept_at}" if kept_at else ""
    graph = ", and with it the autograd graph of each step" if one.holder.graph else ""
    return f", in {one.holder.what}{graph}"


_LEAK_OR_CACHE = ": a leak, or a cache that is still being filled"
_WHOSE = {WORKER_RSS: "its data workers together", CHILD_RSS: "its other child processes together"}
_WHY = {
    "graph": "tensors that still have their graph are kept from step to step, and with each of them all activations"
    " that its backward pass would need",
    "both": "what is put into a container at each step stays there and is most of what grows; some of it has its graph"
    " still, which keeps activations as well",
    "kept": "a container is added to at each step, and nothing in the script takes anything out of it",
    "left": "entries are put into a container at each step, and not all of them are taken out again",
    "alone": "this rank keeps something at each step that the others, which make the same steps, do not",
    "epoch": "it has grown for longer than once through the data, so it is no cache of them",
    "long": "it has grown steadily for hundreds of steps, longer than caches take to fill",
    "": "something is kept at each step; whether it will be let go of is not known yet",
}


def cause(one: Grows, ahead: Forecast | None) -> Cause:
    """Why it is a leak, as far as that is known; `key` is a fix's."""
    seen = one.why in ("graph", "both", "kept", "left") and one.what == RSS
    confidence, basis = (0.9, Basis.OBSERVATION) if seen else (0.7 if one.why else 0.4, Basis.INFERENCE)
    key = f"worker_{one.why}" if one.what == WORKER_RSS and one.why == "kept" else one.why or "unknown"
    return Cause(key, _WHY[one.why], confidence, basis, tuple(_evidence(one, ahead)))


def _evidence(one: Grows, ahead: Forecast | None) -> Iterator[Evidence]:
    found, whose = one.growth, _WHOSE.get(one.what, "it")
    yield Evidence(
        f"{whose} held {size_text(found.before)} at step {found.since} and {size_text(found.now)} at step {found.until}"
        f" (anonymous memory{'' if one.what in _WHOSE else ' after the step'}; {size_text(found.slow)} to"
        f" {size_text(found.fast)} a step)",
        "kernel", one.rank, found.until,
    )  # fmt: skip
    if one.holder is not None and one.what == RSS:
        held = one.holder
        more = "nodes" if held.kind == "graph" else "elements"
        weight = f" of {size_text(held.bytes * held.steps)} together" if held.bytes > 100_000 else ""
        yield Evidence(f"{held.what}: {held.grew} {more} more{weight} in {held.steps} steps", "probe", one.rank)
        yield from _by_text(held.path, held.verdict, held.places, one.rank)
    if one.allocated is not None:
        yield Evidence(_traced(one.allocated), "probe", one.rank, one.allocated.step)
    for path, verdict, place in one.filled if one.what == WORKER_RSS else ():
        yield from _by_text(path, verdict, (place,), one.rank)
    if ahead is not None and not found.slowing:
        yield Evidence(f"at this pace memory runs out {ahead.text}", "kernel", one.rank)


def _traced(seen: Allocated) -> str:
    said = [f"{size_text(one.bytes)} in {one.blocks} blocks at {words.place_text(one.place)}" for one in seen.kept]
    if not said:
        return f"Python itself kept nothing that it allocated in {seen.steps} steps: it is tensors', or a library's"
    return f"Python allocated and kept in {seen.steps} steps: {', '.join(said)}"


def _by_text(path: str, verdict: str, places: tuple[Frame, ...], rank: int) -> Iterator[Evidence]:
    said = {
        KEPT: "; nothing in the script's text takes anything out of it",
        TAKEN: "; single entries are taken out elsewhere in the script's text",
        EMPTIED: "; it is emptied elsewhere in the script's text",
        LIMITED: "; it is filled only while it holds fewer than so many",
        CACHE: "; it is looked up before it is filled, as a cache is",
    }
    where = " and ".join(words.place_text(place) for place in places) or "a place that was not found"
    if places or verdict in said:
        yield Evidence(f"{path} is filled in {where}{said.get(verdict, '')}", "script", rank)
