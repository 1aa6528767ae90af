"""The agent's eyes on one run directory: cheap looks at all ranks, deep ones at those that are asked for."""

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from diagd.daemon.agent import boxes, recorder, stacks
from diagd.daemon.agent.cgroup import Cgroups
from diagd.daemon.agent.crowding import Crowding
from diagd.daemon.agent.devices import Devices
from diagd.daemon.agent.discovery import Box, BoxFolder
from diagd.daemon.agent.exits import ExitWatch, LauncherWitness
from diagd.daemon.agent.ledgers import LedgerShelf
from diagd.daemon.agent.metric_files import MetricFiles, Writer
from diagd.daemon.agent.procfs import Procfs
from diagd.daemon.agent.signal_mix import SignalMix
from diagd.daemon.agent.signals import SignalShelf
from diagd.daemon.agent.snapshot import LAST_OPERATIONS, UNREAD_WHILE_STOPPED, RankWatch
from diagd.daemon.agent.usage import GONE
from diagd.daemon.state.model import Detail, Facts, Stack
from diagd.daemon.state.scalars import SignalNews
from diagd.daemon.state.tensors import LedgerNews
from diagd.probes.box.layout import Live
from diagd.probes.box.requests import Request

DEEP_LIMIT_S = 3.0
_CHILDREN_EVERY_S = 5.0
_CHILDREN_OF_WAITING_S = 2.0
_MAX_CHILD_STACKS = 16
_CHILD_STACKS_S = 1.5  # children that are not reached by then are left for the next look
_CHILD_WAIT_S = 0.2
_RUNS_S = 1.0  # it changed its phase so lately: it runs, and one look says little of where
_PAUSES = ("checkpoint", "eval")  # what it reads and writes then is no part of a step
_ROUTINE_HISTORY = 64  # of a job that runs: enough to compare the ranks


class Observer:
    """Watches the ranks of one run directory; not for use from several threads at once."""

    def __init__(
        self, run_dir: Path, node: str = "", *, proc: Procfs | None = None, cgroup_root: Path = Path("/sys/fs/cgroup"),
        workers: int = 8,
    ) -> None:  # fmt: skip
        self.run_dir = run_dir
        self.node = node
        self._proc = proc or Procfs()
        self._cgroups = Cgroups(self._proc, cgroup_root)
        self._folder = BoxFolder(run_dir, self._proc)
        self._exits = ExitWatch(self._proc, self._cgroups)
        self._launcher = LauncherWitness(run_dir)
        self._devices = Devices()
        self._crowding = Crowding(self._proc)
        self._watches: dict[int, RankWatch] = {}  # by rank
        self._shelf = LedgerShelf()
        self._scalars = SignalShelf()
        self._files = MetricFiles(self._proc.root)
        self._mix = SignalMix()
        self._watched: set[tuple[int, int]] = set()  # (pid, start): all with a box, and data workers
        self._children_at_s = -1e9
        self._pool = ThreadPoolExecutor(workers, "diagd-look")
        self._busy: set[int] = set()  # ranks whose last deep look has not ended yet

    @property
    def notes(self) -> tuple[str, ...]:
        """What in the run directory is not watched, and why."""
        return tuple(self._folder.notes.values())

    def look(self, now_s: float | None = None) -> list[Facts]:
        """The numbers of every rank, ordered by rank; candidates too (`detail.is_rank` tells)."""
        now_s = time.time() if now_s is None else now_s
        found = self._folder.by_rank()
        self._follow(found)
        for pid, status, at_s in self._launcher.news(self._folder.exit_files):
            self._exits.heard(pid, status, at_s)
        self._refresh_children(now_s)
        facts = [watch.look(now_s, self._exits.exit_of(watch.pid)) for _, watch in sorted(self._watches.items())]
        self._tell_crowding(facts, now_s)
        return facts

    def gets_on(self) -> bool:
        """Whether each rank has made a step or entered an operation since the last look or glance."""
        seen = [watch.gets_on() for watch in self._watches.values()]  # of all, as each remembers what it saw
        return all(seen)

    def details(self, ranks: Iterable[int] | None = None) -> list[Detail]:
        """What the boxes and earlier deep looks say of these ranks (default: of all)."""
        return [self._with_node(watch.detail()) for watch in self._chosen(ranks)]

    def deep(
        self, ranks: Iterable[int] | None = None, stacks: bool = True, recorder: bool = True, history: bool = True,
        limit_s: float = DEEP_LIMIT_S,
    ) -> list[Detail]:  # fmt: skip
        """Look closely at these ranks, all at once; one that does not answer in time holds up no other."""
        chosen = self._chosen(ranks)
        self._read_children(chosen)
        jobs: dict[Future[None], RankWatch] = {}
        for watch in chosen:
            if watch.box.rank not in self._busy:
                self._busy.add(watch.box.rank)
                jobs[self._pool.submit(self._look_closely, watch, stacks, recorder, history)] = watch
        _, late = wait(jobs, timeout=limit_s)
        for job in late:
            job.cancel()
            jobs[job].notes["deep"] = f"did not answer within {limit_s:g} s"
        for job in jobs.keys() - late:
            job.result()
        return [self._with_node(watch.detail()) for watch in chosen]

    def ledgers(self, anew: bool = False) -> list[LedgerNews]:
        """What is new in the ranks' ledgers of tensors; `anew`: describe all again to someone new."""
        return self._shelf.news(self._boxes(), anew)

    def ask(self, rank: int, pid: int, request: Request) -> None:
        """Have a rank digest tensors out of turn; it is not waited for.

        Raises:
            ValueError: This process has no ledger here.
            OSError: Its ledger cannot be written.
        """
        self._shelf.ask(rank, pid, request)

    def signals(self, anew: bool = False) -> list[SignalNews]:
        """Likewise of their scalars."""
        found = self._scalars.news(self._boxes(), anew)
        writers = [Writer(w.box.rank, w.pid, w.box.reader.live(Live.STEP)) for w in self._watches.values()]
        pids = {writer.rank: writer.pid for writer in writers}
        return self._mix.join(pids, found, self._files.news(writers), anew)

    def _boxes(self) -> list[tuple[int, int, Path]]:
        return [(watch.box.rank, watch.pid, watch.box.path) for watch in self._watches.values()]

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """While it lasts, what someone else of ours makes the ranks do (a dump) does not count as theirs."""
        before = [(watch, stat) for watch in self._chosen(None) if (stat := watch.stat()) is not None]
        for watch, stat in before:
            watch.meter.pause(stat, time.time())
        try:
            yield
        finally:
            for watch, _ in before:
                watch.meter.go_on(watch.stat(), time.time())

    def stuck_hint(self, now_s: float) -> list[int]:
        """Ranks that have waited long enough to be worth a closer look."""
        return [rank for rank, watch in sorted(self._watches.items()) if watch.waits_s(now_s) > _CHILDREN_OF_WAITING_S]

    def remove_dead(self, ranks: Iterable[int]) -> None:
        """Delete the boxes of ended ranks, once they were reported."""
        for rank in ranks:
            watch = self._watches.get(rank)
            if watch is not None and watch.stat() is None:
                self._folder.remove(watch.box)
                del self._watches[rank]

    def close(self) -> None:
        """Let go of all threads, maps and descriptors."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._files.close()
        self._exits.close()
        self._devices.close()
        self._folder.close()

    def _chosen(self, ranks: Iterable[int] | None) -> list[RankWatch]:
        wanted = sorted(self._watches) if ranks is None else ranks
        return [self._watches[rank] for rank in wanted if rank in self._watches]

    def _with_node(self, detail: Detail) -> Detail:
        return detail.with_(node=self.node) if self.node else detail

    def _follow(self, found: dict[int, Box]) -> None:
        """Bring the watches in line with the boxes that are there now."""
        for box in self._folder.boxes():
            self._watch_exit(box.pid, box.reader.header.start_ticks)
        for rank, box in found.items():
            watch = self._watches.get(rank)
            if watch is None or watch.box is not box:
                if watch is not None and watch.stat() is None:  # restarted: the old process was reported long since
                    self._folder.remove(watch.box)
                limit, cpu = self._cgroups.memory_limit_bytes(box.pid), self._cgroups.cpu_stat(box.pid)
                folders = self._cgroups.memory_folders(box.pid)
                self._watches[rank] = RankWatch(box, self._proc, limit, cpu, folders, self._devices)
        for rank in self._watches.keys() - found.keys():
            del self._watches[rank]

    def _refresh_children(self, now_s: float) -> None:
        waiting = [w for w in self._watches.values() if w.waits_s(now_s) > _CHILDREN_OF_WAITING_S]
        if now_s - self._children_at_s < (_CHILDREN_OF_WAITING_S if waiting else _CHILDREN_EVERY_S):
            return
        self._children_at_s = now_s
        self._read_children(list(self._watches.values()))

    def _tell_crowding(self, facts: Sequence[Facts], now_s: float) -> None:
        """Add who uses their CPUs to the numbers of ranks of which it is told how long they wait for one."""
        told = [fact for fact in facts if "run_delay_s" in fact.extra]
        if told:
            living = [fact for fact in facts if not fact.status.gone]
            children = {fact.rank: self._watches[fact.rank].meter.living_children() for fact in living}
            self._crowding.note(living, children, now_s)
        for fact in told:
            fact.extra.update(self._crowding.told(fact.rank))

    def _read_children(self, watches: Sequence[RankWatch]) -> None:
        below = self._proc.descendants([watch.pid for watch in watches])
        for watch in watches:
            watch.meter.refresh_children(below[watch.pid])
            self._note_ends_of_workers(watch)

    def _note_ends_of_workers(self, watch: RankWatch) -> None:
        """How data workers end is worth knowing: a killed one is why a rank waits for data."""
        for pid, child in list(watch.meter.children.items()):
            if child.exit == GONE and (seen := self._exits.exit_of(pid)) is not None:
                child.exit = str(seen)
            elif not child.exit and child.is_data_worker:
                self._watch_exit(pid, child.stat.start_ticks)

    def _watch_exit(self, pid: int, start_ticks: int) -> None:
        if (pid, start_ticks) not in self._watched:
            self._watched.add((pid, start_ticks))
            self._exits.watch(pid)

    def _look_closely(self, watch: RankWatch, with_stacks: bool, with_recorder: bool, with_history: bool) -> None:
        now_s, before = time.time(), watch.stat()
        raw = watch.meter.raw(before, now_s) if before else None
        try:
            if with_history:
                routine = not (with_stacks or with_recorder) and before is not None and before.state not in "ZX"
                records = watch.box.reader.history(_ROUTINE_HISTORY if routine else LAST_OPERATIONS)
                watch.history = boxes.operations(watch.box.reader, records)
            if before is not None and before.state not in "ZX":
                if with_recorder:
                    self._fetch_recorder(watch, before.state)
                if with_stacks:
                    watch.note_stacks(self._stacks(watch, now_s, time.monotonic() + _CHILD_STACKS_S), now_s)
            watch.notes.pop("deep", None)
        finally:
            if before and raw and (after := watch.stat()) is not None:
                watch.meter.refresh_children([])  # their stacks were written too
                watch.meter.leave_out(after, raw, now_s)
            self._busy.discard(watch.box.rank)

    def _stacks(self, watch: RankWatch, now_s: float, deadline_s: float) -> list[Stack]:
        box = watch.box
        path = Path(str(box.identity.get("stacks_file") or box.path.with_name(f"{box.pid}.stacks")))
        number = box.reader.live(Live.STACK_SIGNAL)
        target = stacks.Target(watch.pid, "rank", number, path, box.reader.live(Live.OWN_THREAD))
        site = boxes.site(box.reader.string(box.reader.live(Live.BACKWARD_SITE)))
        found = [stacks.asking(stacks.take(target, self._proc), site, self._proc)]
        children = watch.meter.living_children() if _may_wait_for_children(found[0]) else []
        for pid in children[:_MAX_CHILD_STACKS]:
            if time.monotonic() < deadline_s:
                found.append(stacks.take(stacks.Target(pid, "child", number, path), self._proc, wait_s=_CHILD_WAIT_S))
        runs = now_s - max(watch.facts.phase_s, watch.facts.step_s) < _RUNS_S
        if runs and found[0].threads and time.monotonic() < deadline_s:
            found += stacks.samples(watch.pid, self._proc, lambda: boxes.phase(box.reader) in _PAUSES, site)
        note = found[0].note
        watch.notes.pop("stack", None)
        after = watch.stat()
        if not found[0].threads and note and after is not None and after.state not in "ZX":
            watch.notes["stack"] = f"no stack: {note.partition('; in ')[0]}"
        return found

    def _fetch_recorder(self, watch: RankWatch, state: str) -> None:
        if state in "Tt":
            watch.notes["recorder"] = UNREAD_WHILE_STOPPED
            return
        path = Path(str(watch.box.identity.get("fr_socket") or watch.box.path.with_name(f"{watch.pid}.fr.sock")))
        members = {group.name: group.ranks for group in boxes.groups(watch.box.reader)}
        with contextlib.suppress(KeyError):
            del watch.notes["recorder"]
        try:
            data = recorder.fetch(path)
            watch.memory.note_answer(len(data))
            watch.recorder = recorder.parse(data, members)
        except recorder.NoRecorder as exc:
            after = watch.stat()
            if after is not None and after.state not in "ZX":
                watch.notes["recorder"] = f"no flight recorder: {exc}"


def _may_wait_for_children(stack: Stack) -> bool:
    """Whether the children's stacks may say more: the rank iterates a data loader, or its own stack is not known."""
    main = stack.main
    return main is None or any("/torch/utils/data/" in frame.file for frame in main.frames)
