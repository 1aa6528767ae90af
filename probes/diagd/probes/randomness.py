"""Whether random numbers are drawn inside the steps, and whether the generators stand alike on all ranks.

Every few steps torch's generators are looked at after the batch was fetched, at the model's forward and after the
optimizer's step. Equal states mean equal numbers to come. What is drawn while data are fetched is left out: a loader
draws its order and its workers' seeds alike on all ranks, and has to.

    data/rng          fingerprint (52 bits) of the CPU generator's state after the step
    data/drawn        numbers drawn of it in the step before the forward pass; BLOCK stands for that many or more
    data/drawn_inside the same from the forward pass on
    data/rng_cuda, data/drawn_cuda   of the current device's generator, where CUDA is in use: seed and offset

A generator that was seeded anew within the step shows RESEEDED: the script sees to its seeds itself.
"""

import struct
import sys
from typing import Any

from diagd.probes import fingerprint, host_randomness, turns
from diagd.probes.budget import BUDGET
from diagd.probes.guard import Probe
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

EVERY = 4  # steps
BLOCK = 624  # numbers that the Mersenne twister makes at once
RESEEDED = -1
# torch's own layout of its CPU generator's state: seed, left, seeded, next, then the block as 64-bit words.
_HEAD = struct.Struct("<QiiQ")
_SIZE = 5056
_CUDA = struct.Struct("<Qq")  # seed, offset

_joined: list[Probe] = []


class _Watch:
    """The step that is being looked at."""

    def __init__(self) -> None:
        self.step = -1  # completed before it; -1 none
        self.begun: bytes | None = None  # the CPU generator's state
        self.forward: bytes | None = None
        self.cuda: bytes | None = None


WATCH = _Watch()


def install(probe: Probe, module: Any) -> None:
    """torch.optim.optimizer is there."""
    STATE.listeners.append(_at_switch)
    _joined.append(probe)
    turns.join(probe, _following, after=_stepped)


def remove() -> None:
    """Take the hook away."""
    while _joined:
        turns.leave(_joined.pop())


def _following(step: int) -> int:
    return step + 1 if WATCH.begun is not None else turns.sampled(step, EVERY)


def _at_switch(recording: bool) -> None:
    if STATE.box is None:
        WATCH.__init__()  # type: ignore[misc]  # a forked child is another rank, or none
        host_randomness.forget()


def at_fetch() -> None:
    """A batch has arrived: what was drawn for it is not the step's."""
    if WATCH.begun is not None and WATCH.forward is None:
        WATCH.begun, WATCH.cuda = _cpu_state(), _cuda_state()
        host_randomness.begin()


def at_forward() -> None:
    """The model's forward pass begins."""
    if WATCH.begun is not None and WATCH.forward is None:
        WATCH.forward = _cpu_state()
        host_randomness.at_forward()


def _stepped(_: Any) -> None:
    live = STATE.live
    if live is None or turns.counted() == WATCH.step or not STATE.recording:
        return
    step = turns.counted()
    watch = step % (EVERY * BUDGET.stride) == 0
    if WATCH.begun is None and not watch:
        return
    if WATCH.begun is not None:
        _tell(step)
        host_randomness.tell(step)
    WATCH.step, WATCH.forward = step, None
    WATCH.begun, WATCH.cuda = (_cpu_state(), _cuda_state()) if watch else (None, None)
    if watch:
        host_randomness.begin()


def _tell(step: int) -> None:
    """At the end of a step that was looked at."""
    now, begun = _cpu_state(), WATCH.begun
    if now is None or begun is None:
        return
    SIGNALS.record("data/rng", fingerprint.of_bytes(now), step)
    forward = WATCH.forward or begun  # not seen: all may have been drawn inside it
    SIGNALS.record("data/drawn", drawn(begun, forward), step)
    SIGNALS.record("data/drawn_inside", drawn(forward, now), step)
    cuda = _cuda_state()
    if cuda is not None and WATCH.cuda is not None:
        (seed, offset), (seed_before, before) = _CUDA.unpack(cuda), _CUDA.unpack(WATCH.cuda)
        SIGNALS.record("data/rng_cuda", fingerprint.of_bytes(cuda), step)
        SIGNALS.record("data/drawn_cuda", offset - before if seed == seed_before else RESEEDED, step)


def drawn(before: bytes, after: bytes) -> int:
    """How many numbers lie between two states of a CPU generator, at most BLOCK; RESEEDED where that says nothing."""
    seed_before, _, _, next_before = _HEAD.unpack_from(before)
    seed, _, _, next_after = _HEAD.unpack_from(after)
    if seed != seed_before:
        return RESEEDED
    end = _HEAD.size + 8 * BLOCK
    if before[_HEAD.size : end] != after[_HEAD.size : end]:
        return BLOCK
    return int(next_after - next_before) if next_after >= next_before else RESEEDED


def _cpu_state() -> bytes | None:
    state = sys.modules["torch"].default_generator.get_state()
    return state.numpy().tobytes() if state.numel() == _SIZE else None


def _cuda_state() -> bytes | None:
    """The current device's; asks the host alone."""
    cuda = sys.modules["torch"].cuda
    if not cuda.is_initialized() or cuda.is_current_stream_capturing():
        return None
    state = cuda.default_generators[cuda.current_device()].get_state()
    return state.numpy().tobytes() if state.numel() == _CUDA.size else None
