from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Frame(_message.Message):
    __slots__ = ("function", "file", "line", "user")
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    function: str
    file: str
    line: int
    user: bool
    def __init__(self, function: _Optional[str] = ..., file: _Optional[str] = ..., line: _Optional[int] = ..., user: bool = ...) -> None: ...

class Thread(_message.Message):
    __slots__ = ("tid", "name", "frames", "main", "holds_gil")
    TID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    MAIN_FIELD_NUMBER: _ClassVar[int]
    HOLDS_GIL_FIELD_NUMBER: _ClassVar[int]
    tid: int
    name: str
    frames: _containers.RepeatedCompositeFieldContainer[Frame]
    main: bool
    holds_gil: bool
    def __init__(self, tid: _Optional[int] = ..., name: _Optional[str] = ..., frames: _Optional[_Iterable[_Union[Frame, _Mapping]]] = ..., main: bool = ..., holds_gil: bool = ...) -> None: ...

class Stack(_message.Message):
    __slots__ = ("pid", "role", "state", "threads", "taken_s", "source", "syscall", "wchan", "note", "times")
    PID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    TAKEN_S_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SYSCALL_FIELD_NUMBER: _ClassVar[int]
    WCHAN_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    pid: int
    role: str
    state: str
    threads: _containers.RepeatedCompositeFieldContainer[Thread]
    taken_s: float
    source: str
    syscall: str
    wchan: str
    note: str
    times: int
    def __init__(self, pid: _Optional[int] = ..., role: _Optional[str] = ..., state: _Optional[str] = ..., threads: _Optional[_Iterable[_Union[Thread, _Mapping]]] = ..., taken_s: _Optional[float] = ..., source: _Optional[str] = ..., syscall: _Optional[str] = ..., wchan: _Optional[str] = ..., note: _Optional[str] = ..., times: _Optional[int] = ...) -> None: ...

class Shape(_message.Message):
    __slots__ = ("dims",)
    DIMS_FIELD_NUMBER: _ClassVar[int]
    dims: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, dims: _Optional[_Iterable[int]] = ...) -> None: ...

class Operation(_message.Message):
    __slots__ = ("name", "group", "seq", "source", "shapes", "tensors", "numel", "dtype", "reduce_op", "root", "peer", "tag", "site", "thread", "is_async", "blocking", "entered_s", "returned_s", "failed", "detail", "retired", "timeout_s", "held_s", "thread_name")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SHAPES_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    NUMEL_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    REDUCE_OP_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    SITE_FIELD_NUMBER: _ClassVar[int]
    THREAD_FIELD_NUMBER: _ClassVar[int]
    IS_ASYNC_FIELD_NUMBER: _ClassVar[int]
    BLOCKING_FIELD_NUMBER: _ClassVar[int]
    ENTERED_S_FIELD_NUMBER: _ClassVar[int]
    RETURNED_S_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    RETIRED_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    HELD_S_FIELD_NUMBER: _ClassVar[int]
    THREAD_NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    group: str
    seq: int
    source: str
    shapes: _containers.RepeatedCompositeFieldContainer[Shape]
    tensors: int
    numel: int
    dtype: str
    reduce_op: str
    root: int
    peer: int
    tag: int
    site: Frame
    thread: int
    is_async: bool
    blocking: bool
    entered_s: float
    returned_s: float
    failed: str
    detail: str
    retired: bool
    timeout_s: float
    held_s: float
    thread_name: str
    def __init__(self, name: _Optional[str] = ..., group: _Optional[str] = ..., seq: _Optional[int] = ..., source: _Optional[str] = ..., shapes: _Optional[_Iterable[_Union[Shape, _Mapping]]] = ..., tensors: _Optional[int] = ..., numel: _Optional[int] = ..., dtype: _Optional[str] = ..., reduce_op: _Optional[str] = ..., root: _Optional[int] = ..., peer: _Optional[int] = ..., tag: _Optional[int] = ..., site: _Optional[_Union[Frame, _Mapping]] = ..., thread: _Optional[int] = ..., is_async: bool = ..., blocking: bool = ..., entered_s: _Optional[float] = ..., returned_s: _Optional[float] = ..., failed: _Optional[str] = ..., detail: _Optional[str] = ..., retired: bool = ..., timeout_s: _Optional[float] = ..., held_s: _Optional[float] = ..., thread_name: _Optional[str] = ...) -> None: ...

class Group(_message.Message):
    __slots__ = ("name", "ranks", "description", "enqueued", "completed", "created_s")
    NAME_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    ENQUEUED_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    CREATED_S_FIELD_NUMBER: _ClassVar[int]
    name: str
    ranks: _containers.RepeatedScalarFieldContainer[int]
    description: str
    enqueued: int
    completed: int
    created_s: float
    def __init__(self, name: _Optional[str] = ..., ranks: _Optional[_Iterable[int]] = ..., description: _Optional[str] = ..., enqueued: _Optional[int] = ..., completed: _Optional[int] = ..., created_s: _Optional[float] = ...) -> None: ...

class Ending(_message.Message):
    __slots__ = ("what", "type", "message", "code", "frames", "at_s", "thread")
    WHAT_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    AT_S_FIELD_NUMBER: _ClassVar[int]
    THREAD_FIELD_NUMBER: _ClassVar[int]
    what: str
    type: str
    message: str
    code: int
    frames: _containers.RepeatedCompositeFieldContainer[Frame]
    at_s: float
    thread: str
    def __init__(self, what: _Optional[str] = ..., type: _Optional[str] = ..., message: _Optional[str] = ..., code: _Optional[int] = ..., frames: _Optional[_Iterable[_Union[Frame, _Mapping]]] = ..., at_s: _Optional[float] = ..., thread: _Optional[str] = ...) -> None: ...

class Exit(_message.Message):
    __slots__ = ("at_s", "code", "signal", "oom_killed", "seen_by")
    AT_S_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    OOM_KILLED_FIELD_NUMBER: _ClassVar[int]
    SEEN_BY_FIELD_NUMBER: _ClassVar[int]
    at_s: float
    code: int
    signal: str
    oom_killed: bool
    seen_by: str
    def __init__(self, at_s: _Optional[float] = ..., code: _Optional[int] = ..., signal: _Optional[str] = ..., oom_killed: bool = ..., seen_by: _Optional[str] = ...) -> None: ...

class Child(_message.Message):
    __slots__ = ("pid", "role", "state", "cpu_s", "command", "exit", "in_data_loader")
    PID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CPU_S_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    IN_DATA_LOADER_FIELD_NUMBER: _ClassVar[int]
    pid: int
    role: str
    state: str
    cpu_s: float
    command: str
    exit: str
    in_data_loader: bool
    def __init__(self, pid: _Optional[int] = ..., role: _Optional[str] = ..., state: _Optional[str] = ..., cpu_s: _Optional[float] = ..., command: _Optional[str] = ..., exit: _Optional[str] = ..., in_data_loader: bool = ...) -> None: ...

class FramesDigest(_message.Message):
    __slots__ = ("at_s", "digest")
    AT_S_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    at_s: float
    digest: str
    def __init__(self, at_s: _Optional[float] = ..., digest: _Optional[str] = ...) -> None: ...

class MemorySample(_message.Message):
    __slots__ = ("at_s", "rss_bytes")
    AT_S_FIELD_NUMBER: _ClassVar[int]
    RSS_BYTES_FIELD_NUMBER: _ClassVar[int]
    at_s: float
    rss_bytes: int
    def __init__(self, at_s: _Optional[float] = ..., rss_bytes: _Optional[int] = ...) -> None: ...

class Detail(_message.Message):
    __slots__ = ("rank", "local_rank", "host", "node", "pid", "attempt", "backend", "is_rank", "groups", "operations", "history", "recorder", "stacks", "looks", "in_shutdown_s", "debugger", "ending", "exit", "children", "notes", "rss_history", "memory_limit_bytes", "group_count", "world_size", "backward_site", "stale_cast_step", "stale_cast_site", "thread_ended", "still_since_s", "save_site", "saving_s")
    RANK_FIELD_NUMBER: _ClassVar[int]
    LOCAL_RANK_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    IS_RANK_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    RECORDER_FIELD_NUMBER: _ClassVar[int]
    STACKS_FIELD_NUMBER: _ClassVar[int]
    LOOKS_FIELD_NUMBER: _ClassVar[int]
    IN_SHUTDOWN_S_FIELD_NUMBER: _ClassVar[int]
    DEBUGGER_FIELD_NUMBER: _ClassVar[int]
    ENDING_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    CHILDREN_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    RSS_HISTORY_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    GROUP_COUNT_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    BACKWARD_SITE_FIELD_NUMBER: _ClassVar[int]
    STALE_CAST_STEP_FIELD_NUMBER: _ClassVar[int]
    STALE_CAST_SITE_FIELD_NUMBER: _ClassVar[int]
    THREAD_ENDED_FIELD_NUMBER: _ClassVar[int]
    STILL_SINCE_S_FIELD_NUMBER: _ClassVar[int]
    SAVE_SITE_FIELD_NUMBER: _ClassVar[int]
    SAVING_S_FIELD_NUMBER: _ClassVar[int]
    rank: int
    local_rank: int
    host: str
    node: str
    pid: int
    attempt: int
    backend: str
    is_rank: bool
    groups: _containers.RepeatedCompositeFieldContainer[Group]
    operations: _containers.RepeatedCompositeFieldContainer[Operation]
    history: _containers.RepeatedCompositeFieldContainer[Operation]
    recorder: _containers.RepeatedCompositeFieldContainer[Operation]
    stacks: _containers.RepeatedCompositeFieldContainer[Stack]
    looks: _containers.RepeatedCompositeFieldContainer[FramesDigest]
    in_shutdown_s: float
    debugger: str
    ending: Ending
    exit: Exit
    children: _containers.RepeatedCompositeFieldContainer[Child]
    notes: _containers.RepeatedScalarFieldContainer[str]
    rss_history: _containers.RepeatedCompositeFieldContainer[MemorySample]
    memory_limit_bytes: int
    group_count: int
    world_size: int
    backward_site: Frame
    stale_cast_step: int
    stale_cast_site: Frame
    thread_ended: Ending
    still_since_s: float
    save_site: Frame
    saving_s: float
    def __init__(self, rank: _Optional[int] = ..., local_rank: _Optional[int] = ..., host: _Optional[str] = ..., node: _Optional[str] = ..., pid: _Optional[int] = ..., attempt: _Optional[int] = ..., backend: _Optional[str] = ..., is_rank: bool = ..., groups: _Optional[_Iterable[_Union[Group, _Mapping]]] = ..., operations: _Optional[_Iterable[_Union[Operation, _Mapping]]] = ..., history: _Optional[_Iterable[_Union[Operation, _Mapping]]] = ..., recorder: _Optional[_Iterable[_Union[Operation, _Mapping]]] = ..., stacks: _Optional[_Iterable[_Union[Stack, _Mapping]]] = ..., looks: _Optional[_Iterable[_Union[FramesDigest, _Mapping]]] = ..., in_shutdown_s: _Optional[float] = ..., debugger: _Optional[str] = ..., ending: _Optional[_Union[Ending, _Mapping]] = ..., exit: _Optional[_Union[Exit, _Mapping]] = ..., children: _Optional[_Iterable[_Union[Child, _Mapping]]] = ..., notes: _Optional[_Iterable[str]] = ..., rss_history: _Optional[_Iterable[_Union[MemorySample, _Mapping]]] = ..., memory_limit_bytes: _Optional[int] = ..., group_count: _Optional[int] = ..., world_size: _Optional[int] = ..., backward_site: _Optional[_Union[Frame, _Mapping]] = ..., stale_cast_step: _Optional[int] = ..., stale_cast_site: _Optional[_Union[Frame, _Mapping]] = ..., thread_ended: _Optional[_Union[Ending, _Mapping]] = ..., still_since_s: _Optional[float] = ..., save_site: _Optional[_Union[Frame, _Mapping]] = ..., saving_s: _Optional[float] = ...) -> None: ...
