"""What is known of a job, as plain values: the only thing that a detector sees.

All times are Unix seconds (float), already brought to one clock by the agents.
"""

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Self

CALL = "call"  # a stack's role
INPUT = "input"  # a sample's note: the step loop was asking for its next batch
WAIT = "wait"  # likewise: its line waits for an operation that was issued before
ASKS = "asks for its next batch"  # in the note of a rank's own stack: its step loop does


class Status(IntEnum):
    """State of a rank's process, in the report's words (lower case)."""

    RUNNING = 0
    BLOCKED = 1
    STOPPED = 2
    EXITED = 3
    KILLED = 4
    LOST = 5

    @property
    def gone(self) -> bool:
        """Whether the process is known to have ended."""
        return self in (Status.EXITED, Status.KILLED)


@dataclass(frozen=True, slots=True)
class Frame:
    """One Python frame; `user` where it is no installed package's, the standard library's nor diagd's."""

    function: str
    file: str
    line: int
    user: bool = True

    @property
    def ours(self) -> bool:
        """Whether it is diagd's own; a folder of the user's may also be called so, and hold the whole environment."""
        return self.file.startswith("<diagd") or "/diagd/probes/" in self.file


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread's stack, innermost frame first."""

    tid: int
    name: str
    frames: tuple[Frame, ...]
    main: bool = False
    holds_gil: bool | None = None

    @property
    def user_frames(self) -> tuple[Frame, ...]:
        """The frames of the user's own code, innermost first."""
        return tuple(f for f in self.frames if f.user)


@dataclass(frozen=True, slots=True)
class Stack:
    """The stacks of one process: the rank's own, or a child's (a data worker)."""

    pid: int
    # rank, worker, child; sample: one of the places that the running rank was seen at, see `times`; call: one of the
    # files that its main thread waited for meanwhile (`syscall`, `note`), or none (both empty).
    role: str
    state: str  # R S D T Z, of its main thread
    threads: tuple[Thread, ...]
    taken_s: float
    source: str = "py-spy"  # or faulthandler
    syscall: str = ""  # of the main thread, e.g. "futex", "read", "openat"; empty where not known; of a sample: fsync
    # or fdatasync where its innermost line calls that
    wchan: str = ""
    note: str = ""  # why there are no threads, where that is so
    times: int = 0  # of a sample: how often it was seen so

    @property
    def main(self) -> Thread | None:
        """The main thread."""
        return next((t for t in self.threads if t.main), self.threads[0] if self.threads else None)


@dataclass(frozen=True, slots=True)
class Operation:
    """A collective, point-to-point operation, store access or group creation.

    `seq` is the operation's place in its group's order as the backend counts it, from 1; 0 where not known (always for
    gloo's point-to-point). `entered_s` is when the call was entered; `blocking` whether its thread is in it right now.
    """

    name: str  # ALLREDUCE, SEND, STORE_GET, NEW_GROUP, …
    group: str = ""
    seq: int = 0
    source: str = "probe"  # or "flight recorder"
    shapes: tuple[tuple[int, ...], ...] = ()  # of the first tensors; all of them only from the flight recorder
    tensors: int = 0
    numel: int = -1  # of all tensors together; -1 not known
    dtype: str = ""
    reduce_op: str = ""
    root: int = -1  # global rank
    peer: int = -1  # global rank; -1 any or none
    tag: int = 0
    site: Frame | None = None
    thread: int = 0
    thread_name: str = ""  # of another thread than the main one
    is_async: bool = False
    blocking: bool = False
    entered_s: float = 0.0
    returned_s: float | None = None
    failed: str = ""  # "RuntimeError: …" where it raised
    detail: str = ""  # a store's key, a new group's ranks
    retired: bool | None = None  # flight recorder only
    timeout_s: float = 0.0  # after which the backend gives it up; flight recorder only, 0 not known
    held_s: float = 0.0  # it kept its thread, in the call and in the wait; probe only, 0 while it has not returned

    @property
    def p2p(self) -> bool:
        """Whether it has one partner instead of a group."""
        return self.name in ("SEND", "RECV")


@dataclass(frozen=True, slots=True)
class Group:
    """A process group as one rank sees it."""

    name: str
    ranks: tuple[int, ...]  # global
    description: str = ""
    enqueued: int = -1  # operations issued to the backend; -1 not known
    completed: int = -1
    created_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Ending:
    """How the user's code ended, as noted inside the process: an exception or a call of exit."""

    what: str  # exception, exit, shutdown; thread: another than the main thread ended in an exception
    type: str = ""  # the exception's; of an exit, that in whose handler it was called
    message: str = ""
    code: int | None = None
    frames: tuple[Frame, ...] = ()  # innermost first
    at_s: float = 0.0
    thread: str = ""  # its name

    @property
    def raised(self) -> bool:
        """Whether an exception ended it: one that nobody caught, or one in whose handler exit was called to say so."""
        return self.what == "exception" or (self.what == "exit" and bool(self.type) and self.code not in (None, 0))


@dataclass(frozen=True, slots=True)
class Exit:
    """How the process ended, as seen from outside."""

    at_s: float
    code: int | None = None
    signal: str = ""  # SIGKILL, …
    oom_killed: bool = False  # the kernel or the cgroup says so
    seen_by: str = ""  # kernel, launcher; empty: only that it is gone is known

    def __str__(self) -> str:
        if self.signal:
            return self.signal
        return "exit code not seen" if self.code is None else str(self.code)


@dataclass(frozen=True, slots=True)
class Detail:
    """What is known of one rank beyond the arrays."""

    rank: int
    local_rank: int = 0
    host: str = ""
    node: str = ""
    pid: int = 0
    attempt: int = 0
    backend: str = ""
    is_rank: bool = True  # False: RANK is set and torch.distributed loaded, but init_process_group was never entered
    groups: tuple[Group, ...] = ()
    world_size: int = 0  # as the rank was told; 0 not known
    group_count: int = 0  # groups this rank has taken part in creating, also those it is not a member of
    operations: tuple[Operation, ...] = ()  # unfinished, oldest first
    history: tuple[Operation, ...] = ()  # finished and unfinished, oldest first; only on suspicion or after the end
    recorder: tuple[Operation, ...] = ()  # the flight recorder's entries, oldest first; only on suspicion
    stacks: tuple[Stack, ...] = ()  # the newest look: the rank's own first, then its children
    backward_site: Frame | None = None  # where the last backward pass was called
    stale_cast_step: int = 0  # whose forward pass was first seen to use old casts of the weights; 0 none so far
    stale_cast_site: Frame | None = None  # where the autocast region that keeps them was entered
    looks: tuple[tuple[float, str], ...] = ()  # (time, digest of the main thread's frames) of each look, oldest first
    in_shutdown_s: float | None = None  # the interpreter's shutdown began
    debugger: str = ""  # why a person, not a fault, holds it: "ptrace by 123", "pdb", "prompt"
    ending: Ending | None = None
    thread_ended: Ending | None = None  # a thread of its own that ended in an exception; the process lives on
    exit: Exit | None = None
    still_since_s: float = 0.0  # of a process that is no rank yet: since when it does nothing; 0 not known
    save_site: Frame | None = None  # where a checkpoint was last begun to be written
    saving_s: float = 0.0  # when; 0 never
    children: tuple["Child", ...] = ()
    notes: tuple[str, ...] = ()  # what is not watched, and why
    rss_history: tuple[tuple[float, int], ...] = ()  # (time, bytes), sparse
    memory_limit_bytes: int | None = None

    def group(self, name: str) -> Group | None:
        """The group of that name, where the rank is in it."""
        return next((g for g in self.groups if g.name == name), None)

    @property
    def stack(self) -> Stack | None:
        """The rank's own stack."""
        return next((s for s in self.stacks if s.role == "rank"), None)

    def with_(self, **changes: object) -> Self:
        """A copy with some fields replaced."""
        return replace(self, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Child:
    """A child of a rank, directly or further down."""

    pid: int
    role: str  # worker (of a data loader), child
    state: str
    cpu_s: float
    command: str = ""
    exit: str = ""  # where it ended: code or signal
    in_data_loader: bool = False


@dataclass(slots=True)
class Facts:
    """The numbers every rank has at one moment; one row of the state's arrays, for tests and messages."""

    rank: int
    pid: int = 0
    status: Status = Status.RUNNING
    main_state: str = "S"  # of the main thread, as in /proc
    step: int = -1
    step_s: float = 0.0  # when the last step was completed
    phase: str = "init"
    phase_s: float = 0.0
    heartbeat_s: float = 0.0
    operations: int = 0
    wait_s: float = 0.0  # since when in a blocking operation; 0 in none
    main_cpu_s: float = 0.0
    other_cpu_s: float = 0.0
    children_cpu_s: float = 0.0
    io_bytes: int = 0
    rss_bytes: int = 0
    said_s: float = 0.0  # when its main thread last wrote a line, or anything to a file; 0 where that is not known
    finalizing: bool = False
    overhead_s: float = 0.0
    extra: dict[str, float] = field(default_factory=dict)


# Below these a process that only waits still moves: timers, the allocator, a monitor thread.
CPU_NOISE_RATIO = 0.02  # of one core
# Of the main thread alone: one that rests has none, and one that asks for something each 10 ms uses some 0.6 %.
MAIN_NOISE_RATIO = 0.01
CHILDREN_NOISE_RATIO = 0.004  # of what a script has started; idle data workers and helpers have next to none
CPU_GRAIN_S = 0.025  # the kernel counts a process's CPU in ticks of 10 ms
IO_NOISE_BYTES_PER_S = 64 * 1024
RSS_NOISE_BYTES = 32 * 1024 * 1024  # what an onlooker asks of a rank (the flight recorder, a dump) takes some memory
MARK_S = 6.0  # growth is measured from a mark that is moved on growth or after so long; children are read every 5 s

# total -> (sign, what is no sign: a rate, and an amount at once)
GROWTH = {
    "main_cpu_s": ("main_cpu_moved_s", MAIN_NOISE_RATIO, CPU_GRAIN_S),
    "other_cpu_s": ("other_cpu_moved_s", CPU_NOISE_RATIO, CPU_GRAIN_S),
    "children_cpu_s": ("children_moved_s", CHILDREN_NOISE_RATIO, CPU_GRAIN_S),
    "io_bytes": ("io_moved_s", IO_NOISE_BYTES_PER_S, IO_NOISE_BYTES_PER_S),
    "rss_bytes": ("memory_moved_s", 0.0, RSS_NOISE_BYTES),
}
