"""What happens when a job hangs: a dump at once, then what --on-hang says."""

import logging
import queue
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from diagd.daemon.detectors.finding import Severity
from diagd.daemon.incidents.incident import Incident

log = logging.getLogger(__name__)

# A death is the launcher's business; if ranks still wait for the dead one after this, it has become a hang. torchrun
# ends the others within a second, and what ignores SIGTERM after 30 s.
DEATH_PATIENCE_S = 35.0
START_PATIENCE_S = 60.0  # a restarted job takes its time to meet again, and may have no other restart left
BEFORE_TIMEOUT_S = 6.0  # a dump takes up to 3 s, and looks come twice a second


class Ranks(Protocol):
    """What the policy needs to know of the ranks on this node."""

    def pid_of(self, rank: int) -> int | None:
        """Its live process, where it is on this node."""

    def held_by(self, rank: int) -> str:
        """The debugger or person that holds it; empty where none does."""


@dataclass(slots=True)
class Policy:
    """Takes dumps and asks the supervisor to act; each incident is handled once.

    Args:
        folder_of: Where an incident's dump goes, by its id.
        take_dump: Writes a dump to the folder; runs in a thread of its own.
        tell: Sends a message to the supervisor.
        dumped: Called with the incident and its dump's folder, as the report names it.
    """

    on_hang: str
    folder_of: Callable[[str], Path]
    report_dir: Path | None
    ranks: Ranks
    take_dump: Callable[[Path], object]
    tell: Callable[[dict[str, Any]], None]
    dumped: Callable[[Incident, str], None]
    stopping: Callable[[], None]
    _taken: set[str] = field(default_factory=set)
    _acted: set[str] = field(default_factory=set)
    _wanted: "queue.SimpleQueue[tuple[Incident, Path] | None]" = field(default_factory=queue.SimpleQueue)
    _done: "queue.SimpleQueue[tuple[Incident, Path | None]]" = field(default_factory=queue.SimpleQueue)
    _thread: threading.Thread | None = None
    _under_way: set[str] = field(default_factory=set)
    _held_said: set[str] = field(default_factory=set)

    def consider(self, incidents: Iterable[Incident], now_s: float) -> None:
        """Begin what is due, and finish what has been done since."""
        by_id = {incident.id: incident for incident in incidents}
        while not self._done.empty():
            incident, folder = self._done.get()
            self._under_way.discard(incident.id)
            current = by_id.get(incident.id, incident)
            if folder is not None:
                self.dumped(current, self._shown(folder))
            by_id.setdefault(current.id, current)
        for incident in by_id.values():
            hangs = is_hang(incident, now_s)
            if not (hangs or _runs_out(incident, now_s)) or incident.id in self._under_way or not self._lives(incident):
                continue
            if incident.dump or incident.id in self._taken:  # by this watcher, or by one before it
                if hangs:
                    self._act(incident, now_s)
            else:
                self._taken.add(incident.id)
                self._order_dump(incident)

    @property
    def busy(self) -> bool:
        """Whether a dump is under way."""
        return bool(self._under_way)

    def close(self) -> None:
        """Let a dump that is under way end."""
        if self._thread is not None:
            self._wanted.put(None)
            self._thread.join(timeout=5.0)

    def _lives(self, incident: Incident) -> bool:
        """Whether some rank of it is alive on this node: the rest is another node's, or over."""
        return any(self.ranks.pid_of(rank) is not None for rank in (*incident.ranks, *incident.waiting_ranks))

    def _order_dump(self, incident: Incident) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="diagd-dump", daemon=True)
            self._thread.start()
        self._under_way.add(incident.id)
        self._wanted.put((incident, self.folder_of(incident.id)))

    def _work(self) -> None:
        while (order := self._wanted.get()) is not None:
            incident, folder = order
            try:
                folder.mkdir(parents=True, exist_ok=True)
                self.take_dump(folder)
            except (OSError, RuntimeError, ValueError) as exc:
                log.warning("no dump for incident %s: %s", incident.id, exc)
                self._done.put((incident, None))
            else:
                self._done.put((incident, folder))

    def _act(self, incident: Incident, now_s: float) -> None:
        if self.on_hang == "dump" or incident.id in self._acted:
            return
        starts = incident.op_name == "INIT" and now_s - incident.opened_s < START_PATIENCE_S
        if self.on_hang == "restart" and starts:
            return
        if held := next((by for rank in incident.ranks if (by := self.ranks.held_by(rank))), ""):
            if incident.id not in self._held_said:
                log.warning("the job is left alone: %s", held)
            self._held_said.add(incident.id)  # it may be let go of
            return
        self._acted.add(incident.id)
        if self.on_hang == "abort":
            self.stopping()
            self.tell({"abort": {"incident": incident.id, "summary": incident.summary}})
            return
        for rank in (*incident.ranks, *incident.waiting_ranks):
            if (pid := self.ranks.pid_of(rank)) is not None:
                self.stopping()
                self.tell({"restart": {"pid": pid, "rank": rank, "incident": incident.id}})
                return

    def _shown(self, folder: Path) -> str:
        if self.report_dir is not None and folder.is_relative_to(self.report_dir):
            return folder.relative_to(self.report_dir).as_posix()
        return str(folder)


def _runs_out(incident: Incident, now_s: float) -> bool:
    """Whether torch is about to give up what the ranks wait in, which ends the job and its evidence."""
    ends_s = incident.times_out_s
    return incident.is_open and ends_s is not None and ends_s - BEFORE_TIMEOUT_S <= now_s < ends_s


def is_hang(incident: Incident, now_s: float) -> bool:
    """Whether the job stands still because of it; what a watcher before this one found may be over since."""
    if not incident.is_open or incident.restored or incident.severity is not Severity.CRITICAL:
        return False
    if incident.kind.startswith("exit."):
        return bool(incident.waiting_ranks) and now_s - incident.opened_s >= DEATH_PATIENCE_S
    return incident.kind.startswith("hang.") and not incident.goes_on
