"""The parts of a dump of one rank: each function writes what one witness says, or says why it cannot."""

import json
import pickle
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from diagd.daemon.agent import boxes, native, pyspy, recorder, stacks
from diagd.daemon.agent.discovery import Box
from diagd.daemon.agent.procfs import Procfs
from diagd.daemon.state.model import Frame, Operation, Stack
from diagd.probes.box import layout
from diagd.probes.box.layout import Live


class NotThere(Exception):
    """A part that cannot be had; the message says why."""


class NothingToWrite(Exception):
    """There is nothing of that kind in this process, and nothing is missing."""


@dataclass(frozen=True, slots=True)
class Target:
    """A process to dump: a rank with a box, or any Python process."""

    rank: int | None  # None: no rank, as far as is known
    pid: int
    label: str  # names its folder: "rank3", or "pid77" of what is none
    box: Box | None = None
    fr_socket: Path | None = None
    stacks_file: Path | None = None
    command: str = ""


@dataclass(slots=True)
class Context:
    """Where a dump of one rank is being written, and what was found on the way."""

    target: Target
    proc: Procfs
    root: Path
    deadline_s: float  # monotonic
    stacks: tuple[Stack, ...] = ()
    operations: tuple[Operation, ...] = ()
    closed: bool = False  # the summary is being written: nothing is added to the folder any more

    @property
    def folder(self) -> Path:
        """The rank's own folder."""
        return self.root / self.target.label

    @property
    def left_s(self) -> float:
        """The time that is left for this dump; never quite none, so that a call that takes it still ends properly."""
        return max(0.05, self.deadline_s - time.monotonic())

    def file(self, path: Path) -> Path:
        """A file to be written.

        Raises:
            NotThere: The dump is over.
        """
        if self.closed:
            raise NotThere("the dump is over")
        return path

    def write_json(self, name: str, value: object) -> None:
        """One file of the rank's folder."""
        self.file(self.folder / name).write_text(json.dumps(value, indent=1, default=str) + "\n", encoding="utf-8")


def write_process(context: Context) -> None:
    """process.json: state, system call, threads, children, limits."""
    proc, pid = context.proc, context.target.pid
    stat = proc.stat(pid)
    if stat is None:
        raise NotThere("the process has ended")
    call = proc.call(pid)
    context.write_json(
        "process.json",
        {
            "pid": pid,
            "state": stat.state,
            "command": proc.command(pid),
            "cpu_s": stat.cpu_s,
            "system_call": call.name,
            "system_call_on": proc.waits_on(pid, call),
            "waits_in_kernel": proc.wchan(pid),
            "io": proc.text(f"{pid}/io").splitlines(),
            "context_switches": {
                key: value for key, value in proc.status(pid).items() if key.endswith("ctxt_switches")
            },
            "traced_by": proc.tracer(pid),
            "threads": [_thread(proc, pid, tid, name) for tid, name in proc.threads(pid).items()],
            "children": [_child(proc, child) for child in proc.descendants([pid])[pid]],
            "limits": proc.text(f"{pid}/limits").splitlines(),
            "cgroup": proc.text(f"{pid}/cgroup").splitlines(),
        },
    )


def write_memory(context: Context) -> None:
    """memory.json: what /proc says of the process's memory, in bytes."""
    proc, pid = context.proc, context.target.pid
    status = proc.status(pid)
    if not status:
        raise NotThere("the process has ended")
    rollup = proc.text(f"{pid}/smaps_rollup").splitlines()[1:]
    fields = dict(line.split(":", 1) for line in rollup if ":" in line)
    values = {key: value for key, value in status.items() if key.startswith(("Vm", "Rss", "Hugetlb"))}
    context.write_json("memory.json", {"status": _bytes(values), "smaps_rollup": _bytes(fields)})


def write_box(context: Context) -> None:
    """box.json and the box's side of the collectives; there also after the process has ended."""
    box = context.target.box
    if box is None:
        raise NotThere("the job was not started under diagd, so the rank left no record of what it did")
    reader = box.reader
    context.write_json(
        "box.json",
        {
            "identity": box.identity,
            "numbers": {slot.name.lower(): reader.live(slot) for slot in Live},
            "phase": boxes.phase(reader),
            "step_s": boxes.time_s(reader, Live.STEP_NS),
            "heartbeat_s": boxes.time_s(reader, Live.HEARTBEAT_NS),
            "groups": [asdict(group) for group in boxes.groups(reader)],
            "endings": [asdict(ending) for ending in boxes.endings(reader)],
            "threads": reader.threads(),
        },
    )
    context.operations = boxes.operations(reader, reader.history(layout.RING_RECORDS))
    context.write_json("collectives.json", [asdict(operation) for operation in context.operations])


def write_stacks(context: Context) -> None:
    """stacks.txt: Python stacks of the rank and its children."""
    context.stacks = read_stacks(context.target, context.proc)
    _write_stacks(context, "stacks.txt", context.stacks)


def read_stacks(target: Target, proc: Procfs) -> tuple[Stack, ...]:
    """The stacks of a process, then of its children."""
    number = target.box.reader.live(Live.STACK_SIGNAL) if target.box else 0
    own = target.box.reader.live(Live.OWN_THREAD) if target.box else 0
    pids = [target.pid, *proc.descendants([target.pid])[target.pid][:16]]
    return tuple(
        stacks.take(
            stacks.Target(pid, "child" if place else "rank", number, target.stacks_file, 0 if place else own), proc
        )
        for place, pid in enumerate(pids)
    )


def write_native_stacks(context: Context) -> None:
    """stacks_native.txt: with the frames of compiled code; the process is paused while they are read."""
    pid = context.target.pid
    stat = context.proc.stat(pid)
    if stat is None or stat.state in "ZX":
        raise NotThere("the process has ended")
    if stat.state in "Tt":
        raise NotThere("the process is stopped: native frames need it to run")
    if not context.proc.may_trace(pid):
        raise NotThere(pyspy.NO_PERMISSION)
    found = native.text(pid, context.left_s)
    context.file(context.folder / "stacks_native.txt").write_text(found, encoding="utf-8")


def write_recorder(context: Context) -> None:
    """fr_trace_RANK.json as the rank's worker server gives it, and flight_recorder/rank_N for torch's own analyzer."""
    target = context.target
    stat = context.proc.stat(target.pid)
    if stat is None or stat.state in "ZX":
        raise NotThere("the process has ended")
    if stat.state in "Tt":
        raise NotThere("the process is stopped")
    if target.box is not None and not boxes.groups(target.box.reader):
        raise NothingToWrite("it is in no process group")
    if target.fr_socket is None:
        raise NotThere("the process has no worker server to ask")
    data = recorder.fetch(target.fr_socket, timeout_s=min(1.5, context.left_s))
    context.file(context.root / f"fr_trace_{_number(target)}.json").write_bytes(data)
    dump = for_analyzer(json.loads(data), context)
    with context.file(context.root / "flight_recorder" / f"rank_{_number(target)}").open("wb") as file:
        pickle.dump(dump, file)


def _number(target: Target) -> int | str:
    return target.label if target.rank is None else target.rank


def for_analyzer(dump: dict[str, Any], context: Context) -> dict[str, Any]:
    """What `torchfrtrace` expects: the box adds the members and call sites that gloo's recorder leaves out."""
    box = context.target.box
    groups = boxes.groups(box.reader) if box else ()
    members = {
        g.name: {"name": g.name, "desc": _description(dump, g.name), "ranks": str(list(g.ranks))} for g in groups
    }
    sites = {(op.group, op.seq): op.site for op in context.operations if op.site and op.seq}
    for entry in dump.get("entries", []):
        entry["process_group"] = tuple(entry.get("process_group") or ("", ""))
        site = sites.get((entry["process_group"][0], entry.get("collective_seq_id")))
        entry.setdefault("frames", [_frame(site)] if site else [])
    known = {name: config for name, config in (dump.get("pg_config") or {}).items() if name}
    return {**dump, "pg_config": members | known}


Part = tuple[str, Callable[[Context], None]]
PARTS: tuple[Part, ...] = (
    ("process", write_process),
    ("box", write_box),
    ("stacks", write_stacks),
    ("collectives", write_recorder),
    ("memory", write_memory),
)
# Apart from the others: finding the names of torch's compiled functions costs much CPU for each rank.
NATIVE: Part = ("native stacks", write_native_stacks)


def render(stack: Stack) -> str:
    """A process's stacks as text; the user's own lines are marked."""
    where = f", in {stack.syscall}" if stack.syscall else ""
    lines = [f"{stack.role} process {stack.pid}, state {stack.state}{where}  ({stack.source})"]
    if stack.note:
        lines.append(f"  {stack.note}")
    for thread in stack.threads:
        gil = ", holds the GIL" if thread.holds_gil else ""
        lines.append(f"  thread {thread.tid or '?'} {thread.name or 'unnamed'}{gil}")
        lines += [
            f"   {'*' if f.user else ' '} {f.function} ({f.file}:{f.line})"
            for f in thread.frames
            if not f.file.startswith("<diagd")
        ]  # code of ours that was made around torch's
    return "\n".join(lines)


def _write_stacks(context: Context, name: str, found: tuple[Stack, ...]) -> None:
    context.file(context.folder / name).write_text(
        "\n\n".join(render(stack) for stack in found) + "\n", encoding="utf-8"
    )
    if not found[0].threads:
        raise NotThere(found[0].note or "no Python thread was found")
    if found[0].main is None or not found[0].main.frames:
        raise NotThere("its main thread is in no Python code: it has not begun to run any, or is on its way out")


def _thread(proc: Procfs, pid: int, tid: int, name: str) -> dict[str, object]:
    state = proc.text(f"{pid}/task/{tid}/stat").rpartition(")")[2].split()[:1]
    return {
        "tid": tid,
        "name": name,
        "state": state[0] if state else "",
        "cpu_s": proc.thread_cpu_s(pid, tid),
        "system_call": proc.call(pid, tid).name,
    }


def _child(proc: Procfs, pid: int) -> dict[str, object]:
    stat, call = proc.stat(pid), proc.call(pid)
    return {
        "pid": pid,
        "state": stat.state if stat else "X",
        "name": stat.name if stat else "",
        "cpu_s": stat.cpu_s if stat else None,
        "command": proc.command(pid),
        "system_call": call.name,
        "system_call_on": proc.waits_on(pid, call),
    }


def _bytes(fields: dict[str, str]) -> dict[str, int]:
    """Values such as "12 kB" in bytes; the kernel means 1024 by it."""
    found = {}
    for key, value in fields.items():
        number, _, unit = value.strip().partition(" ")
        if number.isdecimal():
            found[key.strip()] = int(number) * (1024 if unit == "kB" else 1)
    return found


def _description(dump: dict[str, Any], group: str) -> str:
    """The recorder's own description of a group: its analyzer compares it with the entries'."""
    for entry in dump.get("entries", []):
        name, description = [*(entry.get("process_group") or ()), "", ""][:2]
        if name == group:
            return str(description)
    return "default_pg" if group == "0" else "undefined"


def _frame(site: Frame) -> dict[str, object]:
    return {"name": site.function, "filename": site.file, "line": site.line}
