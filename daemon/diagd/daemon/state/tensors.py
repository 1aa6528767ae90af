"""What an agent tells of a rank's tensors, as plain values."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A parameter, a buffer or a part of an optimizer's state, as one rank has it."""

    name: str
    kind: str = "parameter"  # buffer; state: what an optimizer keeps for a parameter
    dtype: str = "float32"
    shape: tuple[int, ...] = ()
    placement: str = "plain"
    peers: tuple[int, ...] = ()  # must hold the same, by wrapper or mesh; empty where nothing says so
    trainable: bool = True
    owned: bool = True  # in an optimizer
    local: bool = False  # nothing to compare
    copy: bool = False  # of the untrained twin of a trained model
    trained_model: bool = True
    transient: bool = False  # a buffer that is not saved with its module
    beside: tuple[int, ...] = ()  # hold the same part of it, and nothing says that they must hold the same


@dataclass(frozen=True, slots=True)
class LedgerNews:
    """What is new in one rank's ledger; `rows`, `steps` and `digests` are one sample each, `part_…` likewise."""

    rank: int
    pid: int
    first_row: int = 0
    tensors: tuple[TensorInfo, ...] = ()
    rows: Sequence[int] = ()
    steps: Sequence[int] = ()
    digests: Sequence[int] = ()
    left_out: int = 0
    part_rows: Sequence[int] = ()  # of the ledger; the part is of the tensor's rows from `part_firsts` to `part_stops`
    part_steps: Sequence[int] = ()
    part_firsts: Sequence[int] = ()
    part_stops: Sequence[int] = ()
    part_digests: Sequence[int] = ()
    answered: int = 0  # the last request that was done; 0 none
    answer: int = 0  # the step after which its digests were taken; -1: it was over already
    sums: bytes = b""  # in answer to a request for them: the rank's own JSON (box/sums.py), compressed with zlib
