"""What a DataLoader's dataset draws of the generators that modules share, while a batch is read from it.

Looked at around the reading of a map-style dataset alone, in the process that reads: what samplers draw is not counted,
nor what an iterable dataset draws, which mostly mixes the order of samples that are its rank's own.

    data/read_numpy         fingerprint of where it stands after a step's batch was read; likewise data/read_random and,
                            of workers (what the rank itself draws randomness.py tells), data/read_torch
    data/read_drawn_numpy   32-bit words drawn for each sample of it (of torch's, at least so many); RESEEDED where the
                            dataset seeds by itself
    data/read_by_numpy      MAIN, WORKERS, or ALIKE: workers that all began with the same numbers
    data/read_samples       samples of that batch
    data/read_seed          of workers: fingerprint of the seed that the loader drew for them
"""

import sys
import threading
from typing import Any

from diagd.probes import cost, fingerprint, host_randomness, inputs, torch_stand, worker_notes
from diagd.probes.box.layout import Live
from diagd.probes.guard import Patches, Probe, wrapper
from diagd.probes.host_randomness import GENERATORS, RESEEDED, Stand
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE
from diagd.probes.worker_notes import Note

ALL = (*GENERATORS, "torch")
MAIN, WORKERS, ALIKE = 0, 1, 2
EVERY = 32  # batches of a worker
_STEP = int(Live.STEP)
_UNUSED = -1

Stands = tuple[Stand | None, ...]  # by ALL


class _Reading:
    """This process's: a forked worker goes on with its parent's memory."""

    def __init__(self) -> None:
        self.step = -1  # of the rank, whose batch was looked at
        self.seed = -1  # of the worker
        self.number = 0  # of its batches
        self.used: set[str] = set()  # generators that were drawn of: only these are told
        self.firsts = (_UNUSED,) * len(ALL)  # where the generators stood before the first


READING = _Reading()
_patches = Patches()


def install(probe: Probe, module: Any) -> None:
    """torch.utils.data._utils.fetch is there."""
    worker_notes.open_()
    _patches.replace(module._MapDatasetFetcher, "fetch", wrapper(probe, _before, _after, _failed))


def remove() -> None:
    """Put torch's own method back."""
    _patches.undo()
    worker_notes.close()


def _before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, Stands] | None:
    info = worker_notes.worker()
    if not (_is_due() if info is None else _is_noted(info)):
        return None
    indices = args[1] if len(args) > 1 else kwargs.get("possibly_batched_index")
    return len(indices) if type(indices) is list else 1, _stands()


def _stands() -> Stands:
    return (*host_randomness.stands(), torch_stand.stand() if worker_notes.worker() is not None else None)


def _is_noted(info: Any) -> bool:
    """In a worker: its first batches, then few. To count what one draws can take a quarter of the drawing itself."""
    if info.seed != READING.seed:
        READING.seed, READING.number, READING.firsts = info.seed, 0, _marks(_stands())
    READING.number += 1
    return READING.number <= worker_notes.NOTES or READING.number % EVERY == 1


def _is_due() -> bool:
    """In the rank itself: whether a step trains on this batch, and is looked at."""
    live = STATE.live
    if live is None or not STATE.is_rank or threading.get_ident() != STATE.trainer or STATE.evaluating:
        return False
    step = max(live[_STEP], 0)
    return step != READING.step and inputs.is_due(step) and bool(sys.modules["torch"].is_grad_enabled())


def _after(token: tuple[int, Stands], _: Any) -> None:
    samples, before = token
    info = worker_notes.worker()
    if info is not None:
        worker_notes.put(info, Note(READING.number, samples, _seen(before)))
        return
    began = cost.begin()
    READING.step = max(STATE.live[_STEP], 0)
    _tell(Note(0, samples, _seen(before)), (MAIN,) * len(ALL), READING.step + 1)
    cost.count(began)


def _failed(*_: Any) -> None:
    """A dataset that raises has read nothing."""


def _marks(stands: Stands) -> tuple[int, ...]:
    return tuple(_UNUSED if stand is None else stand.fingerprint() for stand in stands)


def _seen(before: Stands) -> tuple[int, ...]:
    """For each generator: where it stood at the worker's first batch, where it stands now, and the words drawn."""
    after = _stands()
    drawn = [
        _drawn(name, first, last) if first is not None and last is not None else 0
        for name, first, last in zip(ALL, before, after, strict=True)
    ]
    return tuple(value for one in zip(READING.firsts, _marks(after), drawn, strict=True) for value in one)


def _drawn(name: str, first: Stand, last: Stand) -> int:
    return host_randomness.drawn(name, first, last) if name in GENERATORS else torch_stand.drawn(first, last)


def arrived(iterator: Any, number: int, step: int) -> None:
    """A batch that workers have read, the iterator's `number`th from 1, is the first of that step."""
    count = getattr(iterator, "_num_workers", 0)
    seed = getattr(iterator, "_base_seed", None)
    if not 0 < count <= worker_notes.WORKERS or type(seed) is not int or number < 1:
        return
    turn = (number - 1) // count + 1
    note = worker_notes.get((number - 1) % count, seed + (number - 1) % count, turn)
    if note is None:
        return
    notes = [worker_notes.get(worker, seed + worker, turn) for worker in range(count)]
    _tell(note, tuple(_begun(notes, generator) for generator in range(len(ALL))), step)
    SIGNALS.record("data/read_seed", fingerprint.of_bytes(str(seed).encode()), step)


def _begun(notes: list[Note | None], generator: int) -> int:
    known = [note for note in notes if note is not None]
    begun = {note.values[3 * generator] for note in known}
    return ALIKE if 1 < len(known) == len(notes) and len(begun) == 1 else WORKERS


def _tell(note: Note, by: tuple[int, ...], step: int) -> None:
    SIGNALS.record("data/read_samples", note.samples, step)
    for number, name in enumerate(ALL):
        _, after, drawn = note.values[3 * number : 3 * number + 3]
        if after != _UNUSED and (drawn or name in READING.used):
            READING.used.add(name)
            SIGNALS.record(f"data/read_{name}", after, step)
            each = drawn if drawn == RESEEDED else drawn / max(note.samples, 1)
            SIGNALS.record(f"data/read_drawn_{name}", each, step)
            SIGNALS.record(f"data/read_by_{name}", by[number], step)
