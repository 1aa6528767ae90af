"""Find what there is to watch: the boxes of a run directory, and the run directories of this user."""

import contextlib
import json
import os
import re
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from diagd.daemon.agent import frames
from diagd.daemon.agent.procfs import Procfs, listed
from diagd.probes.box import layout
from diagd.probes.box.layout import Live
from diagd.probes.box.reader import BadBox, BoxReader

_BOX_NAME = re.compile(r"(\d+)-(\d+)\.box")
_BESIDE = "ledger", "signals", "sums", "sums-part"  # files of the same name
_SETTLED_NS = 2_500_000_000  # file systems keep times by ticks of some milliseconds, some by whole seconds
_UNFINISHED_LOOKS = 20  # a box may be found while it is being made; after so many looks it counts as bad


@dataclass(slots=True)
class Box:
    """A rank box and what its identity says; the rank is -1 where the process has none."""

    path: Path
    reader: BoxReader
    identity: dict[str, Any] = field(default_factory=dict)
    identity_version: int = -1

    @property
    def pid(self) -> int:
        """The process that wrote it."""
        return self.reader.header.pid

    @property
    def rank(self) -> int:
        """The global rank."""
        return _number(self.identity.get("rank"), -1)

    @property
    def attempt(self) -> int:
        """Which restart of the job it belongs to."""
        return _number(self.identity.get("attempt"), 0)

    @property
    def is_rank(self) -> bool:
        """Whether it has entered init_process_group or done a step; else it is but a candidate."""
        return self.reader.live(Live.IS_RANK) == 1

    @property
    def is_whole(self) -> bool:
        """Whether its file is still there in full: to read past its end would be the agent's death by SIGBUS."""
        return _size(self.path) >= layout.BOX_SIZE

    def refresh(self) -> None:
        """Read the identity again if it was rewritten."""
        version = self.reader.text_version(layout.IDENTITY)
        if version == self.identity_version:
            return
        found = self.reader.text(layout.IDENTITY)
        if isinstance(found, dict):
            self.identity, self.identity_version = found, version
            installed = found.get("installed")
            frames.know(installed if isinstance(installed, list) else ())


class _Listing(NamedTuple):
    """A folder's names, and when it was changed last."""

    changed_ns: int
    settled: bool  # long enough before it was listed
    names: list[str]
    boxes: dict[str, Path]


class BoxFolder:
    """The boxes in a run directory, as they come and go."""

    def __init__(self, run_dir: Path, proc: Procfs) -> None:
        self.run_dir = run_dir
        self.notes: dict[str, str] = {}  # file -> why it is not read; said once
        self.exit_files: list[str] = []
        self._proc = proc
        self._boxes: dict[str, Box] = {}
        # Where a rank goes when the run directory is full or read-only.
        self._folders = list(dict.fromkeys((run_dir, *(root / run_dir.name for root in roots()[1:]))))
        self._unreadable: dict[str, int] = {}  # file -> looks so far
        self._listings: dict[Path, _Listing] = {}
        self._below: set[str] = set()  # boxes of processes that a rank started with its own rank in the environment
        self._left: set[str] = set()  # and of those that have left being the rank to such a process

    def scan(self) -> list[Box]:
        """All boxes that are there now, also those whose process has ended."""
        present: dict[str, Path] = {}
        for folder in self._folders:
            listing = self._listing(folder)
            present |= listing.boxes
            self._read_off_notes(folder, listing.names)
            if folder == self.run_dir:
                self.exit_files = [name for name in listing.names if name.endswith(".exits")]
        for name in self._boxes.keys() - present.keys():
            self._boxes.pop(name).reader.close()
        for name in sorted(present.keys() - self._boxes.keys()):
            self._open(present[name])
        for name, box in list(self._boxes.items()):
            if not box.is_whole:
                self.notes[name] = f"{name} is no longer read: it was cut off while it was in use"
                self._boxes.pop(name).reader.close()
            else:
                box.refresh()
        return list(self._boxes.values())

    def _listing(self, folder: Path) -> _Listing:
        """What is in it: read again where something came or went, or did so too lately for its time to show more."""
        try:
            changed_ns = os.stat(folder).st_mtime_ns  # noqa: PTH116 - at each look
        except OSError:
            return _Listing(0, False, [], {})
        known = self._listings.get(folder)
        if known is None or known.changed_ns != changed_ns or not known.settled:
            settled = abs(time.time_ns() - changed_ns) > _SETTLED_NS
            names = listed(str(folder))
            boxes = {name: folder / name for name in names if _BOX_NAME.fullmatch(name)}
            known = self._listings[folder] = _Listing(changed_ns, settled, names, boxes)
        return known

    def boxes(self) -> list[Box]:
        """All boxes as of the last scan."""
        return list(self._boxes.values())

    def by_rank(self) -> dict[int, Box]:
        """The newest box of each rank; a rank restarted under the same number replaces the one before."""
        rivals: dict[int, list[Box]] = {}
        for box in self.scan():
            if box.rank >= 0 and box.path.name not in self._below:
                rivals.setdefault(box.rank, []).append(box)
        return {rank: boxes[0] if len(boxes) == 1 else self._winner(boxes) for rank, boxes in rivals.items()}

    def _winner(self, boxes: list[Box]) -> Box:
        ordered = sorted(boxes, key=self._precedence)
        found = ordered[0]
        for box in ordered[1:]:
            if found.is_rank and not box.is_rank and box.path.name in self._left:
                continue  # the process that it has started may have ended, as after one trial of several
            if not self._started_by(box, found):
                found = box
            elif box.is_rank and not found.is_rank:  # it joins in its parent's place
                self._left.add(found.path.name)
                found = box
            else:
                self._below.add(box.path.name)
        return found

    def remove(self, box: Box) -> None:
        """Delete a dead box and what belongs to it, after it was reported."""
        beside = (*(f"{box.path.stem}.{kind}" for kind in _BESIDE), f"{box.pid}.fr.sock", f"{box.pid}.stacks")
        for name in (box.path.name, *beside):
            with contextlib.suppress(OSError):
                (box.path.parent / name).unlink()

    def close(self) -> None:
        """Unmap all boxes."""
        for box in self._boxes.values():
            box.reader.close()
        self._boxes.clear()

    def _precedence(self, box: Box) -> tuple[int, bool, bool, int]:
        """Later attempt, then living, then a rank proper, then the later start: the last in this order wins."""
        stat = self._proc.stat(box.pid)
        alive = stat is not None and stat.start_ticks == box.reader.header.start_ticks and stat.state not in "ZX"
        return box.attempt, alive, box.is_rank, box.reader.header.start_ticks

    def _started_by(self, box: Box, other: Box) -> bool:
        """Whether `box` is of a process that `other`'s process started: a tool with the rank's environment."""
        pid = box.pid
        for _ in range(8):
            stat = self._proc.stat(pid)
            if stat is None or stat.parent <= 1:
                return False
            pid = stat.parent
            if pid == other.pid:
                return True
        return False

    def _open(self, path: Path) -> None:
        name = path.name
        if name in self.notes:
            return
        try:
            box = Box(path, BoxReader(path))
        except (OSError, BadBox, ValueError) as exc:
            self._unreadable[name] = self._unreadable.get(name, 0) + 1
            if self._unreadable[name] >= _UNFINISHED_LOOKS or "version" in str(exc):
                self.notes[name] = f"{name} is not read: {exc}"
            return
        if not name.startswith(f"{box.pid}-"):
            self.notes[name] = f"{name} is not read: process {box.pid} wrote it, in another PID namespace or as a copy"
            box.reader.close()
            return
        self._unreadable.pop(name, None)
        self._boxes[name] = box

    def _read_off_notes(self, folder: Path, names: list[str]) -> None:
        for name in names:
            if name.endswith(".off") and name not in self.notes:
                with contextlib.suppress(OSError):
                    reason = (folder / name).read_text(encoding="utf-8", errors="replace").strip()
                    if reason:
                        self.notes[name] = f"process {name.removesuffix('.off')} is not watched: {reason}"


@dataclass(frozen=True, slots=True)
class Job:
    """A run directory."""

    job: str
    run_dir: Path
    info: dict[str, Any]  # run.json; empty where the job has none

    @property
    def alive(self) -> bool:
        """Whether any process that has a box there still runs."""
        for path in self.run_dir.glob("*.box"):
            matched = _BOX_NAME.fullmatch(path.name)
            stat = Procfs().stat(int(matched[1])) if matched else None
            if matched and stat is not None and stat.start_ticks == int(matched[2]) and stat.state not in "ZX":
                return True
        return False


def roots(uid: int | None = None) -> list[Path]:
    """Where this user's run directories may lie."""
    name = f"diagd-{os.getuid() if uid is None else uid}"
    return [Path("/dev/shm") / name, Path(tempfile.gettempdir()) / name]


def find_jobs(under: list[Path] | None = None) -> list[Job]:
    """This user's jobs, the newest first; folders of another owner are not trusted."""
    found: dict[Path, float] = {}
    for root in roots() if under is None else under:
        with contextlib.suppress(OSError):
            if root.stat().st_uid == os.getuid():
                found |= {path: path.stat().st_mtime for path in root.iterdir() if path.is_dir()}
    return [Job(path.name, path, _run_info(path)) for path in sorted(found, key=lambda p: -found[p])]


def _run_info(run_dir: Path) -> dict[str, Any]:
    try:
        info = json.loads((run_dir / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return info if isinstance(info, dict) else {}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return layout.BOX_SIZE  # removed: what is mapped stays


def _number(value: object, otherwise: int) -> int:
    try:
        return int(value)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError):
        return otherwise
