"""The parts of a dump of one rank: each function writes what one witness says, or says why it cannot."""

import time
from collections.abc import Callable
from dataclasses import asdict

from diagd.daemon.agent import boxes, native, permission, pyspy, readers, stacks
from diagd.daemon.agent.dump_context import Context, NotThere, Target, stat_of
from diagd.daemon.agent.dump_recorder import write_recorder
from diagd.daemon.agent.procfs import Procfs
from diagd.daemon.agent.signals import facts_beside
from diagd.daemon.state.model import Stack
from diagd.probes.box import layout
from diagd.probes.box.layout import Live

_TRIES, _BETWEEN_S = 3, 0.1


def write_process(context: Context) -> None:
    """process.json: state, system call, threads, children, limits."""
    proc, pid = context.proc, context.target.pid
    stat = stat_of(context)
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
            "phase_s": boxes.time_s(reader, Live.PHASE_NS),
            "step_s": boxes.time_s(reader, Live.STEP_NS),
            "heartbeat_s": boxes.time_s(reader, Live.HEARTBEAT_NS),
            "groups": [asdict(group) for group in boxes.groups(reader)],
            "endings": [asdict(ending) for ending in boxes.endings(reader)],
            "threads": reader.threads(),
            "facts": facts_beside(box.path, box.rank, box.pid),
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
    stat = stat_of(context)
    if stat is None or stat.state in "ZX":
        raise NotThere("the process has ended")
    if stat.state in "Tt":
        raise NotThere("the process is stopped: native frames need it to run")
    if not context.proc.may_trace(pid):
        raise NotThere(permission.why_not(context.proc, pid))
    try:
        found = _native(context, pid)
    except pyspy.NoStack as exc:
        raise NotThere(permission.why_not(context.proc, pid, str(exc))) from exc
    context.file(context.folder / "stacks_native.txt").write_text(found, encoding="utf-8")


def _native(context: Context, pid: int) -> str:
    """The native stacks; again where somebody else's dump of the same process, which takes one reader at a time, came
    first.
    """
    for _ in range(_TRIES):
        try:
            return native.text(pid, context.left_s)
        except pyspy.NoStack as exc:
            if str(exc) != pyspy.NO_PERMISSION:
                raise
            time.sleep(min(_BETWEEN_S, context.left_s))
            readers.wait_for(context.proc, pid, context.left_s)
    return native.text(pid, context.left_s)


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
