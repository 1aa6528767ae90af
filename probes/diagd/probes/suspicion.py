"""When this rank's memory grows: looks at what the script holds, ever more rarely, and tells what has grown in between.

The look is the training thread's; reading what the script's text does with that container is left to diagd's own.
"""

import json
import time
import weakref
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any

from diagd.probes import heartbeat, holders, sites, uses
from diagd.probes.budget import BUDGET
from diagd.probes.guard import Probe
from diagd.probes.holders import Holder, Key
from diagd.probes.signals import SIGNALS

HOLDER = "memory/holder"
LOADER = "memory/loader"
WARM_STEPS = 5  # lazily allocated state, caches of libraries
APART_STEPS = 10  # two looks
LEAST_BYTES = 16 * 1024 * 1024
LEAST_PART = 1 / 64  # of the process's own size, before it is worth a look
FREED = 0.5  # of what had grown: it was let go of, and what was told no longer holds
RARER = 2.0  # the next look waits for so many times the growth that this one has
EXPLAINS = 0.1  # of the growth, by what its new elements weigh
A_STEP = 0.2  # elements: less often is not what grows with the steps
LINKS_A_STEP = 0.8  # nodes of a graph that goes on from step to step
CHAIN_LOOKS = 2  # a longer graph can be a longer sequence; twice in a row it is not
_MAX_FILE = 300_000
_MAX_FILES = 6
_MAX_TEXT = 1000


class _Guard:
    """Whose failure it is that an errand fails: this probe's, and not that of the thread that runs it."""

    probe: Probe | None = None

    def run(self, function: Callable[..., None], *args: Any) -> None:
        """Run it under the probe's wall, where there is one."""
        if self.probe is None:
            function(*args)
        else:
            self.probe.run(function, *args)


GUARD = _Guard()


class Suspicion:
    """One process's growth, and what was seen of it so far."""

    def __init__(self) -> None:
        self._told = False
        self._begin(0, 0)

    def _begin(self, step: int, resident: int) -> None:
        self._low = self._mark = resident
        self._mark_step = self._since_step = step
        self._needed = 1.0
        self._sizes: dict[Key, int] = {}
        self._chains: dict[str, int] = {}

    def due(self, step: int, resident: int) -> bool:
        """Whether its resident memory after this step asks for a look."""
        if step < WARM_STEPS or self._low == 0:
            self._begin(step, resident)
            return False
        if resident < self._mark - FREED * (self._mark - self._low) or resident < self._low:
            self._begin(step, resident)
            self._withdraw(step)
            return False
        least = max(LEAST_BYTES, LEAST_PART * resident) * self._needed
        return resident - self._mark >= least and step - self._mark_step >= APART_STEPS

    def look(self, frame: FrameType | None, step: int, resident: int, deadline_ns: int) -> None:
        """Look now; from the second time on, tell what has grown."""
        found = holders.look(frame, self._sizes, deadline_ns, _datasets_in_use())
        best = self._best(found, step - self._mark_step, (resident - self._mark) / max(step - self._mark_step, 1))
        if best is not None:
            self._tell(best, _files_of(frame), step)
        self._needed *= RARER if self._sizes else 1.0
        self._sizes = {key: holder.size for key, holder in found.items()}
        self._mark, self._mark_step = resident, step

    def _best(self, found: dict[Key, Holder], steps: int, grown: float) -> dict[str, Any] | None:
        """What explains most of the growth, which is in bytes a step."""
        ranked = []
        for key, holder in found.items():
            more = holder.size - self._sizes.get(key, holder.size)
            if holder.kind == "graph":
                self._chains[holder.path] = self._chains.get(holder.path, 0) + 1 if more >= LINKS_A_STEP * steps else 0
                graph, held = self._chains[holder.path] >= CHAIN_LOOKS, 0.0
            else:
                graph = holder.weight.graph and more >= A_STEP * steps
                often = more >= max(A_STEP * steps, 2)
                held = holder.weight.bytes * more / steps if often else 0.0
                if often and holder.kind == "cache" and not holder.bounded:
                    held = EXPLAINS * grown  # its elements cannot be weighed
            if graph or held >= EXPLAINS * grown:
                ranked.append((graph, held, _as_json(holder, more, steps, held, graph)))
        return max(ranked, key=lambda entry: entry[:2])[2] if ranked else None

    def _tell(self, said: dict[str, Any], files: list[str], step: int) -> None:
        self._told = True
        said["since"] = self._since_step
        heartbeat.ERRANDS.append(lambda: GUARD.run(_tell_holder, said, files, step, self))

    @property
    def tells(self) -> bool:
        """Whether something grows that was told."""
        return self._told

    def _withdraw(self, step: int) -> None:
        if self._told:
            self._told = False
            SIGNALS.fact(HOLDER, "", step)


def _as_json(holder: Holder, more: int, steps: int, held: float, graph: bool) -> dict[str, Any]:
    return {
        "path": holder.path, "kind": holder.kind, "size": holder.size, "grew": more, "steps": steps,
        "bytes": round(held), "graph": graph, "device": holder.weight.device, "bounded": holder.bounded,
        "most": holder.most, "function": holder.function, "file": holder.file, "owner": holder.owner,
        "owner_file": holder.owner_file,
    }  # fmt: skip


def _files_of(frame: FrameType | None) -> list[str]:
    found: dict[str, None] = {}
    while frame is not None and len(found) < _MAX_FILES:
        if sites.is_user(frame):
            found[frame.f_code.co_filename] = None
        frame = frame.f_back
    return list(found)


def _tell_holder(said: dict[str, Any], files: list[str], step: int, suspicion: Suspicion) -> None:
    began_ns = time.thread_time_ns()
    names = dict.fromkeys(name for name in (said["owner_file"], said["file"], *files) if name)
    found = uses.uses(
        _texts(list(names)[:_MAX_FILES]), said["path"], "" if said["kind"] == "graph" else said["function"]
    )
    said |= {"verdict": found.verdict, "places": [list(place) for place in found.grows[:2]]}
    BUDGET.spent(time.thread_time_ns() - began_ns)
    if suspicion.tells:
        SIGNALS.fact(HOLDER, _short(said), step)


def _short(said: dict[str, Any]) -> str:
    for dropped in ("", "owner_file", "places", "file"):
        said.pop(dropped, None)
        text = json.dumps(said)
        if len(text.encode()) < _MAX_TEXT:
            return text
    return ""


def _texts(files: list[str]) -> list[tuple[str, str]]:
    found = []
    for name in files:
        try:
            with open(name, "rb") as file:
                data = file.read(_MAX_FILE + 1)
        except OSError:
            continue
        if len(data) <= _MAX_FILE:
            found.append((name, data.decode("utf-8", "replace")))
    return found


_datasets: set[str] = set()  # told
_iterators: deque[Any] = deque(maxlen=4)  # weak references to the newest


def _datasets_in_use() -> dict[str, Any]:
    """The datasets of the loaders that are being iterated: a `for` has no variable for them."""
    found: dict[str, Any] = {}
    for reference in _iterators:
        dataset = getattr(reference(), "_dataset", None)
        if dataset is not None:
            found["dataset"] = dataset
    return found


def note_loader(iterator: Any, loader: Any) -> None:
    """A data loader is about to be iterated."""
    _iterators.append(weakref.ref(iterator))
    dataset = type(getattr(loader, "dataset", None))
    said = {"dataset": dataset.__name__, "length": _length(loader), "workers": getattr(loader, "num_workers", 0)}
    key = json.dumps(said)
    if key not in _datasets and len(_datasets) < 16:
        _datasets.add(key)
        file = holders.file_of(dataset)
        heartbeat.ERRANDS.append(lambda: GUARD.run(_tell_loader, said, file))


def _length(loader: Any) -> int:
    """Batches of an epoch; -1 where only code of the script's could say, which torch's own samplers call anyway."""
    samplers = (getattr(loader, "batch_sampler", None), getattr(loader, "sampler", None))
    if not all(type(sampler).__module__.startswith("torch.utils.data.") for sampler in samplers):
        return -1
    try:
        return len(samplers[0])  # type: ignore[arg-type]
    except (TypeError, NotImplementedError, ValueError):
        return -1


def _tell_loader(said: dict[str, Any], file: str) -> None:
    began_ns = time.thread_time_ns()
    grown = []
    if said["workers"]:
        for name, text in _texts([file]) if file else []:
            grown = [[path, u.verdict, list(u.grows[0])] for path, u in uses.grown_in(name, text, said["dataset"])[:4]]
    BUDGET.spent(time.thread_time_ns() - began_ns)
    SIGNALS.fact(LOADER, _short({**said, "file": file, "grown": grown}))
