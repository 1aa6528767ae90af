from diagd.proto.v1 import agent_pb2 as _agent_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RecordEntry(_message.Message):
    __slots__ = ("received_s", "job_id", "node", "request", "started", "ended", "stopping")
    RECEIVED_S_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    STOPPING_FIELD_NUMBER: _ClassVar[int]
    received_s: float
    job_id: str
    node: str
    request: _agent_pb2.ConnectRequest
    started: JobStarted
    ended: JobEnded
    stopping: JobStopping
    def __init__(self, received_s: _Optional[float] = ..., job_id: _Optional[str] = ..., node: _Optional[str] = ..., request: _Optional[_Union[_agent_pb2.ConnectRequest, _Mapping]] = ..., started: _Optional[_Union[JobStarted, _Mapping]] = ..., ended: _Optional[_Union[JobEnded, _Mapping]] = ..., stopping: _Optional[_Union[JobStopping, _Mapping]] = ...) -> None: ...

class JobStarted(_message.Message):
    __slots__ = ("command", "started_s", "hang_after_s")
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    STARTED_S_FIELD_NUMBER: _ClassVar[int]
    HANG_AFTER_S_FIELD_NUMBER: _ClassVar[int]
    command: _containers.RepeatedScalarFieldContainer[str]
    started_s: float
    hang_after_s: float
    def __init__(self, command: _Optional[_Iterable[str]] = ..., started_s: _Optional[float] = ..., hang_after_s: _Optional[float] = ...) -> None: ...

class JobEnded(_message.Message):
    __slots__ = ("exit_code",)
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    exit_code: int
    def __init__(self, exit_code: _Optional[int] = ...) -> None: ...

class JobStopping(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
