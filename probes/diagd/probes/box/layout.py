"""One definition of the rank box, for its writer in the rank and its readers outside.

All numbers are little-endian; times are CLOCK_MONOTONIC in nanoseconds, which `Header.anchor_wall_ns` ties to the wall
clock. The file has a fixed size, is allocated whole before it is mapped (a sparse file on a full /dev/shm raises SIGBUS
at the first write) and is never resized.

    header | live numbers | texts (seqlocked JSON) | group counters | strings | rings of operations, one for each thread
"""

import struct
from enum import IntEnum
from typing import NamedTuple

MAGIC = b"DIAGDBOX"
VERSION = 1

HEADER = struct.Struct("<8sIIIIqqq")  # magic, version, size, pid, spare, anchor_mono_ns, anchor_wall_ns, start_ticks

LIVE_AT = 256
LIVE_SLOTS = 64  # int64 each; written whole by memoryview assignment, so a reader never sees half a number

RING_COUNT = 16
RING_RECORDS = 512
GROUP_SLOTS = 256
COUNTER_FIELDS = 4  # enqueued, completed, updated_ns, spare: int64 each; -1 where not known


class Live(IntEnum):
    """Index of each number in the live block."""

    HEARTBEAT_NS = 0  # by the box's own thread: stale while another thread holds the GIL
    STEP = 1  # completed training steps; -1 before the first is known to exist
    STEP_NS = 2
    PHASE = 3
    PHASE_NS = 4
    IS_RANK = 5  # 0 candidate (torch.distributed is loaded), 1 init_process_group entered or a first step done
    FINALIZING_NS = 6  # the interpreter's shutdown began
    OVERHEAD_NS = 7  # what the probes themselves cost so far
    PROBE_ERRORS = 8
    PROBES_OFF = 9  # bit for each probe that has switched itself off; the reason stands in the identity's `notes`
    STRINGS_USED = 10  # bytes, up to the end of the highest string so far
    RINGS_USED = 11
    OPERATIONS = 12
    BACKWARDS = 13
    OPTIMIZER_STEPS = 14
    ENABLED = 15  # 0 while the probes are switched off for a measurement
    DROPPED = 16  # records lost: no ring left, or strings full
    MAIN_THREAD = 17  # native thread id
    STACK_SIGNAL = 18  # signal with a faulthandler registered, 0 if none
    STEP_STARTED_NS = 19
    GROUPS_BEGUN = 20  # creations of groups this rank has entered, also of groups it is no member of
    OWN_THREAD = 22  # native id of diagd's thread: a signal sent to it disturbs no call of the job's
    BACKWARD_SITE = 21  # string: where the last backward pass was called
    GARBAGE_NS = 23  # in Python's garbage collector so far
    SAMPLES_LEFT_OUT = 24  # how often a sample was not taken for the budget's sake
    SAMPLE_STRIDE = 25  # steps between regular samples, where more often would cost too much; 0 and 1: each that is due
    SAVE_SITE = 26  # string: where a checkpoint was last begun to be written
    SAVE_NS = 27  # when
    STALE_CAST_STEP = 28  # the step whose forward pass was first seen to use old casts of weights; 0 none so far
    STALE_CAST_SITE = 29  # string: where the autocast region that keeps them was entered
    SAID_NS = 30  # when the main thread last wrote a line to standard output or standard error
    FORWARD_NS = 31  # when a batch came, or a wrapper's forward was called: what follows a step alone is only guessed
    PHASE_TOTALS = 32  # ns in each phase so far, without the one that lasts: a slot for each, as numbered by Phase


class Phase(IntEnum):
    """What a rank is doing, in the schema's words."""

    INIT = 0
    DATA = 1
    FORWARD = 2
    BACKWARD = 3
    OPTIMIZER = 4
    COLLECTIVE = 5
    CHECKPOINT = 6
    EVAL = 7
    OTHER = 8


class Section(NamedTuple):
    """A seqlocked text: uint32 sequence (odd while being written), uint32 length, then the bytes."""

    offset: int
    size: int


TEXTS_AT = LIVE_AT + LIVE_SLOTS * 8
IDENTITY = Section(TEXTS_AT, 16 * 1024)
GROUPS = Section(IDENTITY.offset + IDENTITY.size, 256 * 1024)
ENDING = Section(GROUPS.offset + GROUPS.size, 32 * 1024)  # the exception or exit call that ended the process
COUNTERS_AT = ENDING.offset + ENDING.size
STRINGS_AT = COUNTERS_AT + GROUP_SLOTS * COUNTER_FIELDS * 8
STRINGS_SIZE = 256 * 1024  # entries: uint16 length, UTF-8; named by their offset; offset 0 is the empty string
RINGS_AT = STRINGS_AT + STRINGS_SIZE


class Op(IntEnum):
    """Operations, by the names that reports use."""

    NONE = 0
    ALLREDUCE = 1
    BROADCAST = 2
    ALLGATHER = 3
    REDUCE = 4
    REDUCE_SCATTER = 5
    ALLTOALL = 6
    GATHER = 7
    SCATTER = 8
    BARRIER = 9
    SEND = 10
    RECV = 11
    MONITORED_BARRIER = 12
    COALESCED = 13
    NEW_GROUP = 14
    INIT = 15
    DESTROY = 16
    STORE_GET = 17
    STORE_WAIT = 18
    STORE_SET = 19
    WAIT = 20  # a wait on work that diagd did not see being issued
    ALLGATHER_COALESCED = 21
    REDUCE_SCATTER_COALESCED = 22
    ALLREDUCE_COALESCED = 23
    OTHER = 24
    STORE_JOIN = 25  # making a store that waits for its workers; numel is their number


POINT_TO_POINT = frozenset({Op.SEND, Op.RECV})


class Flag(IntEnum):
    """Bits of a record's flags."""

    ASYNC = 1
    FAILED = 2  # it raised; `detail` then holds type and message
    ANY_SOURCE = 4
    IN_BACKWARD = 8


class Dtype(IntEnum):
    """Element types; OTHER where it is none of these."""

    NONE = 0
    FLOAT32 = 1
    FLOAT64 = 2
    FLOAT16 = 3
    BFLOAT16 = 4
    INT64 = 5
    INT32 = 6
    INT16 = 7
    INT8 = 8
    UINT8 = 9
    BOOL = 10
    COMPLEX64 = 11
    COMPLEX128 = 12
    OTHER = 13


class Reduce(IntEnum):
    """Reduce operations."""

    NONE = 0
    SUM = 1
    AVG = 2
    PRODUCT = 3
    MIN = 4
    MAX = 5
    BAND = 6
    BOR = 7
    BXOR = 8
    PREMUL_SUM = 9
    OTHER = 10


MAX_DIMS = 6
RING_HEADER = 64  # int64 native thread id, int64 records begun, 48 bytes thread name
RECORD_SIZE = 128
RING_SIZE = RING_HEADER + RING_RECORDS * RECORD_SIZE
BOX_SIZE = RINGS_AT + RING_COUNT * RING_SIZE

# The first five are rewritten in place as the operation goes on; int64 index within the record in brackets.
# serial [0] (0 while being written), entered_ns [1], issued_ns [2], wait_ns [3], returned_ns [4], seq [5] (in its
# group, as the backend counts; 0 unknown), numel [6] (of all tensors), group (index into the groups text, -1 none), op,
# flags, dtype, reduce, ndim, tensors (how many), peer (root or partner as global rank, -1 none), tag, site, detail
# (string offsets), thread, dims (of the first tensor).
RECORD = struct.Struct("<qqqqqqqhBBBBBBiiIII6I20x")
# 20 spare bytes: a new field needs no new version while readers ignore it.


class FieldIndex(IntEnum):
    """int64 index of the fields that change while an operation goes on."""

    SERIAL = 0
    ENTERED = 1
    ISSUED = 2
    WAIT = 3
    RETURNED = 4
    SEQ = 5


class Record(NamedTuple):
    """One operation as it lies in a ring; see RECORD."""

    serial: int
    entered_ns: int
    issued_ns: int
    wait_ns: int
    returned_ns: int
    seq: int
    numel: int
    group: int
    op: int
    flags: int
    dtype: int
    reduce: int
    ndim: int
    tensors: int
    peer: int
    tag: int
    site: int
    detail: int
    thread: int
    dims: tuple[int, ...]

    @property
    def blocking(self) -> bool:
        """Whether its thread is inside the call, or waits for it, right now."""
        return self.returned_ns == 0 and (self.issued_ns == 0 or self.wait_ns != 0)


class Header(NamedTuple):
    """Who wrote the box, and the anchor of its clock."""

    size: int
    pid: int
    anchor_mono_ns: int
    anchor_wall_ns: int
    start_ticks: int
