"""Device memory by torch's caching allocator: what is kept more and more of, and what is reserved and of no use.

Only the allocator's own numbers are read, after the step; its peak is that since the script's last reset of it, as
resetting it here would change what the script reads.
"""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Location, Severity
from diagd.daemon.detectors.growth import MIB, Growth, growth
from diagd.daemon.detectors.holding import Holder, holder
from diagd.daemon.detectors.memory import Forecast, forecast, newest, size_text
from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Frame

ALLOCATED, RESERVED, ACTIVE = "memory/device_allocated", "memory/device_reserved", "memory/device_active"
LEAST_BYTES = 8 * MIB  # the formula's s*w; torch allocates large tensors in blocks of 2 MiB
LEAST_PART = 0.02  # of what was held
WARM_STEPS = 20
GRAPH_STEPS = 30
KEPT_STEPS = 60
ALONE_STEPS = 100
LONG_STEPS = 300
FLAT = 0.2
GAP_PART = 0.3  # of the device is reserved and not in use
NEARLY_FULL = 0.9  # of the device is reserved
STEADY_SAMPLES = 20  # of half a second: past the first steps, where a retry is the allocator finding its size


def device_findings(state: JobState) -> Iterator[Finding]:
    """Leaks of each rank's device; where there is none, fragmentation."""
    slopes = {rank: found for rank in state.signals.ranks(ALLOCATED) if (found := _growth(state, rank)) is not None}
    for rank in state.signals.ranks(ALLOCATED):
        if state.status(rank).gone:
            continue
        finding = (_leak(state, rank, slopes) if rank in slopes else None) or _fragmented(state, rank)
        if finding is not None:
            yield finding


def _growth(state: JobState, rank: int) -> Growth | None:
    series = state.signals.series(rank, ALLOCATED)
    if series is None:
        return None
    late = series.steps > WARM_STEPS
    found = growth(series.steps[late], series.values[late], LEAST_BYTES)
    return found if found is not None and found.grown >= max(LEAST_BYTES, LEAST_PART * found.before) else None


def _leak(state: JobState, rank: int, slopes: dict[int, Growth]) -> Finding | None:
    found, held = slopes[rank], holder(state, rank)
    why = _why(state, rank, found, held, slopes)
    if not why:
        return None
    total = newest(state, rank, "memory/device_total")
    others = newest(state, rank, "memory/device_others") or 0.0
    ahead = forecast(state, rank, found, total - others - found.now) if total else None  # the reserve is used up first
    return Finding(
        kind="memory.device_leak",
        severity=_severity(ahead),
        ranks=(rank,),
        summary=words.shortened(_summary(rank, found, held, ahead)),
        causes=(_cause(state, rank, found, held, why),),
        names=("allocated", held.path) if held is not None else ("allocated",),
        locations=tuple(Location(rank, frame) for frame in held.places) if held is not None else (),
        step=found.since,
        sure=True,
        goes_on=True,
        key=f"device:{rank}",
    )


def _why(state: JobState, rank: int, found: Growth, held: Holder | None, slopes: dict[int, Growth]) -> str:
    if held is not None and held.graph and found.steps >= GRAPH_STEPS:
        return "graph"
    if held is not None and held.ends:
        return ""
    if held is not None and held.only_grows and found.steps >= KEPT_STEPS:
        return "kept"
    peers = [other for other in state.signals.ranks(ALLOCATED) if other != rank]
    flat = all(other not in slopes or slopes[other].slope < FLAT * found.slope for other in peers)
    if peers and flat and found.steps >= ALONE_STEPS:
        return "alone"
    return "long" if found.steps >= LONG_STEPS else ""


def _severity(ahead: Forecast | None) -> Severity:
    if ahead is not None and ahead.near:
        return Severity.CRITICAL
    return Severity.WARNING if ahead is None or ahead.within_reach else Severity.INFO


def _summary(rank: int, found: Growth, held: Holder | None, ahead: Forecast | None) -> str:
    text = (
        f"rank {rank} keeps {size_text(found.slope)} more of its device's memory at each step since step {found.since}"
    )
    text += f", {size_text(found.grown)} so far"
    if held is not None:
        text += f", in {held.what}" + (", with the autograd graph of each step" if held.graph else "")
    return text + (f"; at this pace it runs out {ahead.text}" if ahead is not None else "")


_WHY = {
    "graph": "tensors that still have their graph are kept from step to step, and with each that step's activations",
    "kept": "a container is added to at each step, and nothing in the script takes anything out of it",
    "alone": "this rank keeps something on its device at each step that the others do not",
    "long": "what is allocated after each step has grown steadily for hundreds of steps",
}


def _snapshots(state: JobState, rank: int) -> list[Evidence]:
    """What the two snapshots of the device say, where the rank has taken them."""
    said = []
    site, file = state.signals.fact(rank, "memory/device_site"), state.signals.fact(rank, "memory/snapshot")
    if site is not None and site[1].count("\t") == 4:
        function, name, line, size, steps = site[1].split("\t")
        place = words.place_text(Frame(function, name, int(line)))
        text = f"allocated in {place} and not freed within {steps} steps: {size_text(float(size))}"
        said.append(Evidence(text, "memory snapshot", rank, site[0]))
    if file is not None:
        said.append(Evidence(f"a memory snapshot is in {file[1]}, for pytorch.org/memory_viz", "memory snapshot", rank))
    return said


def _cause(state: JobState, rank: int, found: Growth, held: Holder | None, why: str) -> Cause:
    said = [
        Evidence(
            f"allocated after the step: {size_text(found.before)} at step {found.since}, {size_text(found.now)} at step"
            f" {found.until} ({size_text(found.slow)} to {size_text(found.fast)} a step)",
            "allocator", rank, found.until,
        )
    ]  # fmt: skip
    if held is not None:
        said.append(Evidence(f"{held.what}: {held.grew} more in {held.steps} steps", "probe", rank))
    said += _snapshots(state, rank)
    seen = why in ("graph", "kept")
    basis = Basis.OBSERVATION if seen else Basis.INFERENCE
    return Cause(why, _WHY[why], 0.9 if seen else 0.7, basis, tuple(said))


def _fragmented(state: JobState, rank: int) -> Finding | None:
    """Retries in the steady state: the allocator had to give its cache back, the last that happens before an OOM.

    Or most of the device is reserved, a good part of that is not in use, and that part grows.
    """
    retries = state.signals.series(rank, "memory/device_retries")
    reserved, active = state.signals.series(rank, RESERVED), state.signals.series(rank, ACTIVE)
    total = newest(state, rank, "memory/device_total") or 0.0
    if reserved is None or active is None or len(reserved) < STEADY_SAMPLES or len(active) != len(reserved):
        return None
    again = 0.0 if retries is None else float(retries.values[-1] - retries.values[len(retries) // 2])
    gap = float(reserved.values[-1]) - float(np.max(active.values[-STEADY_SAMPLES:]))
    grows = growth(reserved.steps, reserved.values - active.values, LEAST_BYTES)
    full = total > 0 and reserved.values[-1] >= NEARLY_FULL * total and gap >= GAP_PART * total
    if not (again > 0 or (full and grows is not None)):
        return None
    step = int(reserved.steps[len(reserved) // 2]) if again > 0 else grows.since if grows is not None else None
    seen = f"{size_text(float(reserved.values[-1]))} are reserved and {size_text(float(active.values[-1]))} in use"
    told = (
        f"the allocator has had to give its cache back {int(again)} times"
        if again > 0
        else "the gap between them grows"
    )
    largest = newest(state, rank, "memory/device_largest_free")
    if largest is not None:
        seen += f"; the largest free block has {size_text(largest)}"
    summary = f"rank {rank}'s device memory is in pieces: {seen}, and {told} since step {step}"
    cause = Cause(
        "retries" if again > 0 else "gap", "free memory lies in pieces that no request fits into", 0.7, Basis.INFERENCE,
        (Evidence(seen, "allocator", rank), Evidence(f"{int(again)} retries in the later half", "allocator", rank)),
    )  # fmt: skip
    return Finding(
        kind="memory.fragmentation",
        severity=Severity.WARNING,
        ranks=(rank,),
        summary=words.shortened(summary),
        causes=(cause,),
        names=("reserved",),
        step=step,
        sure=True,
        goes_on=True,
        key=f"device:{rank}",
    )
