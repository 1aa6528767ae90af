from diagd.proto.v1 import rank_pb2 as _rank_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ConnectRequest(_message.Message):
    __slots__ = ("hello", "window", "result", "goodbye")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    window: Window
    result: CommandResult
    goodbye: Goodbye
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., window: _Optional[_Union[Window, _Mapping]] = ..., result: _Optional[_Union[CommandResult, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ...) -> None: ...

class ConnectResponse(_message.Message):
    __slots__ = ("ack", "command")
    ACK_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    ack: Ack
    command: Command
    def __init__(self, ack: _Optional[_Union[Ack, _Mapping]] = ..., command: _Optional[_Union[Command, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("agent_version", "protocol", "node", "boot_id", "session", "job_id", "command", "started_s", "hang_after_s", "resume_seq", "time_s")
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    STARTED_S_FIELD_NUMBER: _ClassVar[int]
    HANG_AFTER_S_FIELD_NUMBER: _ClassVar[int]
    RESUME_SEQ_FIELD_NUMBER: _ClassVar[int]
    TIME_S_FIELD_NUMBER: _ClassVar[int]
    agent_version: str
    protocol: int
    node: str
    boot_id: str
    session: str
    job_id: str
    command: _containers.RepeatedScalarFieldContainer[str]
    started_s: float
    hang_after_s: float
    resume_seq: int
    time_s: float
    def __init__(self, agent_version: _Optional[str] = ..., protocol: _Optional[int] = ..., node: _Optional[str] = ..., boot_id: _Optional[str] = ..., session: _Optional[str] = ..., job_id: _Optional[str] = ..., command: _Optional[_Iterable[str]] = ..., started_s: _Optional[float] = ..., hang_after_s: _Optional[float] = ..., resume_seq: _Optional[int] = ..., time_s: _Optional[float] = ...) -> None: ...

class Window(_message.Message):
    __slots__ = ("seq", "time_s", "facts", "details", "dropped_windows", "ledgers", "signals")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    TIME_S_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_WINDOWS_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    SIGNALS_FIELD_NUMBER: _ClassVar[int]
    seq: int
    time_s: float
    facts: FactColumns
    details: _containers.RepeatedCompositeFieldContainer[_rank_pb2.Detail]
    dropped_windows: int
    ledgers: _containers.RepeatedCompositeFieldContainer[Ledger]
    signals: _containers.RepeatedCompositeFieldContainer[Signals]
    def __init__(self, seq: _Optional[int] = ..., time_s: _Optional[float] = ..., facts: _Optional[_Union[FactColumns, _Mapping]] = ..., details: _Optional[_Iterable[_Union[_rank_pb2.Detail, _Mapping]]] = ..., dropped_windows: _Optional[int] = ..., ledgers: _Optional[_Iterable[_Union[Ledger, _Mapping]]] = ..., signals: _Optional[_Iterable[_Union[Signals, _Mapping]]] = ...) -> None: ...

class Signals(_message.Message):
    __slots__ = ("rank", "pid", "first_string", "strings", "names", "steps", "values", "facts", "left_out")
    RANK_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    FIRST_STRING_FIELD_NUMBER: _ClassVar[int]
    STRINGS_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    rank: int
    pid: int
    first_string: int
    strings: _containers.RepeatedScalarFieldContainer[str]
    names: bytes
    steps: bytes
    values: bytes
    facts: _containers.RepeatedCompositeFieldContainer[SignalFact]
    left_out: int
    def __init__(self, rank: _Optional[int] = ..., pid: _Optional[int] = ..., first_string: _Optional[int] = ..., strings: _Optional[_Iterable[str]] = ..., names: _Optional[bytes] = ..., steps: _Optional[bytes] = ..., values: _Optional[bytes] = ..., facts: _Optional[_Iterable[_Union[SignalFact, _Mapping]]] = ..., left_out: _Optional[int] = ...) -> None: ...

class SignalFact(_message.Message):
    __slots__ = ("name", "step", "text")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    name: int
    step: int
    text: int
    def __init__(self, name: _Optional[int] = ..., step: _Optional[int] = ..., text: _Optional[int] = ...) -> None: ...

class Ledger(_message.Message):
    __slots__ = ("rank", "pid", "first_row", "tensors", "rows", "steps", "digests", "left_out", "part_rows", "part_steps", "part_firsts", "part_stops", "part_digests", "answered", "answer", "sums")
    RANK_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    FIRST_ROW_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    PART_ROWS_FIELD_NUMBER: _ClassVar[int]
    PART_STEPS_FIELD_NUMBER: _ClassVar[int]
    PART_FIRSTS_FIELD_NUMBER: _ClassVar[int]
    PART_STOPS_FIELD_NUMBER: _ClassVar[int]
    PART_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    SUMS_FIELD_NUMBER: _ClassVar[int]
    rank: int
    pid: int
    first_row: int
    tensors: _containers.RepeatedCompositeFieldContainer[LedgerTensor]
    rows: bytes
    steps: bytes
    digests: bytes
    left_out: int
    part_rows: bytes
    part_steps: bytes
    part_firsts: bytes
    part_stops: bytes
    part_digests: bytes
    answered: int
    answer: int
    sums: bytes
    def __init__(self, rank: _Optional[int] = ..., pid: _Optional[int] = ..., first_row: _Optional[int] = ..., tensors: _Optional[_Iterable[_Union[LedgerTensor, _Mapping]]] = ..., rows: _Optional[bytes] = ..., steps: _Optional[bytes] = ..., digests: _Optional[bytes] = ..., left_out: _Optional[int] = ..., part_rows: _Optional[bytes] = ..., part_steps: _Optional[bytes] = ..., part_firsts: _Optional[bytes] = ..., part_stops: _Optional[bytes] = ..., part_digests: _Optional[bytes] = ..., answered: _Optional[int] = ..., answer: _Optional[int] = ..., sums: _Optional[bytes] = ...) -> None: ...

class LedgerTensor(_message.Message):
    __slots__ = ("name", "kind", "dtype", "shape", "placement", "peers", "trainable", "owned", "local", "copy", "trained_model", "transient", "beside")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    TRAINABLE_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    TRAINED_MODEL_FIELD_NUMBER: _ClassVar[int]
    TRANSIENT_FIELD_NUMBER: _ClassVar[int]
    BESIDE_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    placement: str
    peers: _containers.RepeatedScalarFieldContainer[int]
    trainable: bool
    owned: bool
    local: bool
    copy: bool
    trained_model: bool
    transient: bool
    beside: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., placement: _Optional[str] = ..., peers: _Optional[_Iterable[int]] = ..., trainable: bool = ..., owned: bool = ..., local: bool = ..., copy: bool = ..., trained_model: bool = ..., transient: bool = ..., beside: _Optional[_Iterable[int]] = ...) -> None: ...

class FactColumns(_message.Message):
    __slots__ = ("schema", "rows", "rank", "pid", "status", "step", "operations", "io_bytes", "rss_bytes", "step_s", "phase_s", "heartbeat_s", "wait_s", "main_cpu_s", "other_cpu_s", "children_cpu_s", "overhead_s", "finalizing", "phase", "main_state", "phase_words", "main_state_words", "extra", "said_s")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    IO_BYTES_FIELD_NUMBER: _ClassVar[int]
    RSS_BYTES_FIELD_NUMBER: _ClassVar[int]
    STEP_S_FIELD_NUMBER: _ClassVar[int]
    PHASE_S_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_S_FIELD_NUMBER: _ClassVar[int]
    WAIT_S_FIELD_NUMBER: _ClassVar[int]
    MAIN_CPU_S_FIELD_NUMBER: _ClassVar[int]
    OTHER_CPU_S_FIELD_NUMBER: _ClassVar[int]
    CHILDREN_CPU_S_FIELD_NUMBER: _ClassVar[int]
    OVERHEAD_S_FIELD_NUMBER: _ClassVar[int]
    FINALIZING_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    MAIN_STATE_FIELD_NUMBER: _ClassVar[int]
    PHASE_WORDS_FIELD_NUMBER: _ClassVar[int]
    MAIN_STATE_WORDS_FIELD_NUMBER: _ClassVar[int]
    EXTRA_FIELD_NUMBER: _ClassVar[int]
    SAID_S_FIELD_NUMBER: _ClassVar[int]
    schema: int
    rows: int
    rank: bytes
    pid: bytes
    status: bytes
    step: bytes
    operations: bytes
    io_bytes: bytes
    rss_bytes: bytes
    step_s: bytes
    phase_s: bytes
    heartbeat_s: bytes
    wait_s: bytes
    main_cpu_s: bytes
    other_cpu_s: bytes
    children_cpu_s: bytes
    overhead_s: bytes
    finalizing: bytes
    phase: bytes
    main_state: bytes
    phase_words: _containers.RepeatedScalarFieldContainer[str]
    main_state_words: _containers.RepeatedScalarFieldContainer[str]
    extra: _containers.RepeatedCompositeFieldContainer[ExtraColumn]
    said_s: bytes
    def __init__(self, schema: _Optional[int] = ..., rows: _Optional[int] = ..., rank: _Optional[bytes] = ..., pid: _Optional[bytes] = ..., status: _Optional[bytes] = ..., step: _Optional[bytes] = ..., operations: _Optional[bytes] = ..., io_bytes: _Optional[bytes] = ..., rss_bytes: _Optional[bytes] = ..., step_s: _Optional[bytes] = ..., phase_s: _Optional[bytes] = ..., heartbeat_s: _Optional[bytes] = ..., wait_s: _Optional[bytes] = ..., main_cpu_s: _Optional[bytes] = ..., other_cpu_s: _Optional[bytes] = ..., children_cpu_s: _Optional[bytes] = ..., overhead_s: _Optional[bytes] = ..., finalizing: _Optional[bytes] = ..., phase: _Optional[bytes] = ..., main_state: _Optional[bytes] = ..., phase_words: _Optional[_Iterable[str]] = ..., main_state_words: _Optional[_Iterable[str]] = ..., extra: _Optional[_Iterable[_Union[ExtraColumn, _Mapping]]] = ..., said_s: _Optional[bytes] = ...) -> None: ...

class ExtraColumn(_message.Message):
    __slots__ = ("name", "rows", "values")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    name: str
    rows: bytes
    values: bytes
    def __init__(self, name: _Optional[str] = ..., rows: _Optional[bytes] = ..., values: _Optional[bytes] = ...) -> None: ...

class CommandResult(_message.Message):
    __slots__ = ("id", "error", "folder")
    ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    id: int
    error: str
    folder: str
    def __init__(self, id: _Optional[int] = ..., error: _Optional[str] = ..., folder: _Optional[str] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ("reason", "exit_code", "time_s")
    REASON_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    TIME_S_FIELD_NUMBER: _ClassVar[int]
    reason: str
    exit_code: int
    time_s: float
    def __init__(self, reason: _Optional[str] = ..., exit_code: _Optional[int] = ..., time_s: _Optional[float] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("seq", "time_s", "sent_s")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    TIME_S_FIELD_NUMBER: _ClassVar[int]
    SENT_S_FIELD_NUMBER: _ClassVar[int]
    seq: int
    time_s: float
    sent_s: float
    def __init__(self, seq: _Optional[int] = ..., time_s: _Optional[float] = ..., sent_s: _Optional[float] = ...) -> None: ...

class Command(_message.Message):
    __slots__ = ("id", "look", "dump", "end_rank", "digest")
    ID_FIELD_NUMBER: _ClassVar[int]
    LOOK_FIELD_NUMBER: _ClassVar[int]
    DUMP_FIELD_NUMBER: _ClassVar[int]
    END_RANK_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    id: int
    look: LookCommand
    dump: DumpCommand
    end_rank: EndRankCommand
    digest: DigestCommand
    def __init__(self, id: _Optional[int] = ..., look: _Optional[_Union[LookCommand, _Mapping]] = ..., dump: _Optional[_Union[DumpCommand, _Mapping]] = ..., end_rank: _Optional[_Union[EndRankCommand, _Mapping]] = ..., digest: _Optional[_Union[DigestCommand, _Mapping]] = ...) -> None: ...

class LookCommand(_message.Message):
    __slots__ = ("stacks", "recorder", "history")
    STACKS_FIELD_NUMBER: _ClassVar[int]
    RECORDER_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    stacks: _containers.RepeatedScalarFieldContainer[int]
    recorder: _containers.RepeatedScalarFieldContainer[int]
    history: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, stacks: _Optional[_Iterable[int]] = ..., recorder: _Optional[_Iterable[int]] = ..., history: _Optional[_Iterable[int]] = ...) -> None: ...

class DumpCommand(_message.Message):
    __slots__ = ("ranks", "incident")
    RANKS_FIELD_NUMBER: _ClassVar[int]
    INCIDENT_FIELD_NUMBER: _ClassVar[int]
    ranks: _containers.RepeatedScalarFieldContainer[int]
    incident: str
    def __init__(self, ranks: _Optional[_Iterable[int]] = ..., incident: _Optional[str] = ...) -> None: ...

class EndRankCommand(_message.Message):
    __slots__ = ("rank", "pid", "incident")
    RANK_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    INCIDENT_FIELD_NUMBER: _ClassVar[int]
    rank: int
    pid: int
    incident: str
    def __init__(self, rank: _Optional[int] = ..., pid: _Optional[int] = ..., incident: _Optional[str] = ...) -> None: ...

class DigestCommand(_message.Message):
    __slots__ = ("requests",)
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[DigestRequest]
    def __init__(self, requests: _Optional[_Iterable[_Union[DigestRequest, _Mapping]]] = ...) -> None: ...

class DigestRequest(_message.Message):
    __slots__ = ("rank", "pid", "serial", "step", "everything", "targets", "sums")
    RANK_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    EVERYTHING_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    SUMS_FIELD_NUMBER: _ClassVar[int]
    rank: int
    pid: int
    serial: int
    step: int
    everything: bool
    targets: _containers.RepeatedCompositeFieldContainer[DigestTarget]
    sums: bool
    def __init__(self, rank: _Optional[int] = ..., pid: _Optional[int] = ..., serial: _Optional[int] = ..., step: _Optional[int] = ..., everything: bool = ..., targets: _Optional[_Iterable[_Union[DigestTarget, _Mapping]]] = ..., sums: bool = ...) -> None: ...

class DigestTarget(_message.Message):
    __slots__ = ("row", "first", "stop", "parts")
    ROW_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    row: int
    first: int
    stop: int
    parts: int
    def __init__(self, row: _Optional[int] = ..., first: _Optional[int] = ..., stop: _Optional[int] = ..., parts: _Optional[int] = ...) -> None: ...
