"""Messages in, values out: what an agent sent, as the state's own types.

The fields of a message and of the dataclass that it mirrors have the same names, so both directions (this one, and the
agent's `wire`) are derived from the dataclasses' types.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from diagd.daemon.state import model
from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Detail, Facts, Status
from diagd.daemon.state.scalars import SignalNews
from diagd.daemon.state.tensors import LedgerNews, TensorInfo
from diagd.proto.v1 import agent_pb2, rank_pb2

FACTS_SCHEMA = 1
INT_COLUMNS = ("rank", "pid", "step", "operations", "io_bytes", "rss_bytes")
FLOAT_COLUMNS = (
    "step_s",
    "phase_s",
    "heartbeat_s",
    "wait_s",
    "main_cpu_s",
    "other_cpu_s",
    "children_cpu_s",
    "overhead_s",
    "said_s",
)
LATER_COLUMNS = ("said_s",)  # agents before them send none
BYTE_COLUMNS = ("status", "finalizing", "phase", "main_state")
DTYPES: dict[str, np.dtype[Any]] = {
    **dict.fromkeys(INT_COLUMNS, np.dtype("<i8")),
    **dict.fromkeys(FLOAT_COLUMNS, np.dtype("<f8")),
    **dict.fromkeys(BYTE_COLUMNS, np.dtype("u1")),
}
SAMPLE_DTYPES: dict[str, np.dtype[Any]] = {
    "rows": np.dtype("<u4"),
    "steps": np.dtype("<i8"),
    "digests": np.dtype("<i8"),
}
PART_DTYPES: dict[str, np.dtype[Any]] = {
    "part_rows": np.dtype("<u4"),
    **dict.fromkeys(("part_steps", "part_firsts", "part_stops", "part_digests"), np.dtype("<i8")),
}
SIGNAL_DTYPES: dict[str, np.dtype[Any]] = {
    "names": np.dtype("<u4"),
    "steps": np.dtype("<i8"),
    "values": np.dtype("<f8"),
}
# Arrays are as long as the highest rank: a number above this is a mistake, and would cost memory.
MAX_RANKS = 1 << 17

# Pairs have no dataclass of their own; the message that carries each.
PAIR_MESSAGES: dict[str, tuple[Any, tuple[str, str]]] = {
    "looks": (rank_pb2.FramesDigest, ("at_s", "digest")),
    "rss_history": (rank_pb2.MemorySample, ("at_s", "rss_bytes")),
}


class BadMessage(ValueError):
    """A message that no agent of ours sends."""


@dataclass(frozen=True, slots=True)
class FieldForm:
    """How one field travels: plain, optional, list, pairs, shapes, message, maybe (a message or none) or messages."""

    name: str
    form: str
    inner: type | None = None


@cache
def forms(cls: type) -> tuple[FieldForm, ...]:
    """How each field of a dataclass of the model travels."""
    hints = get_type_hints(cls, vars(model))
    return tuple(_form(f.name, hints[f.name]) for f in fields(cls))


def _form(name: str, hint: Any) -> FieldForm:
    origin, args = get_origin(hint), get_args(hint)
    if name in PAIR_MESSAGES:
        return FieldForm(name, "pairs")
    if origin in (Union, UnionType):
        inner = next(a for a in args if a is not type(None))
        return (
            FieldForm(name, "maybe", inner) if hasattr(inner, "__dataclass_fields__") else FieldForm(name, "optional")
        )
    if origin is tuple:
        if get_origin(args[0]) is tuple:
            return FieldForm(name, "shapes")
        if _is_message(args[0]):
            return FieldForm(name, "messages", args[0])
        return FieldForm(name, "list")
    return FieldForm(name, "plain")


def _is_message(hint: Any) -> bool:
    return hasattr(hint, "__dataclass_fields__")


def _decoder(cls: type) -> Callable[[Any], Any]:
    steps = [(f.name, f.form, f.inner and decoder(f.inner)) for f in forms(cls)]

    def decode(message: Any) -> Any:
        values: dict[str, Any] = {}
        for name, form, inner in steps:
            if form == "plain":
                values[name] = getattr(message, name)
            elif form == "list":
                values[name] = tuple(getattr(message, name))
            elif form == "messages" and inner:
                values[name] = tuple([inner(m) for m in getattr(message, name)])
            elif form == "maybe" and inner:
                values[name] = inner(getattr(message, name)) if message.HasField(name) else None
            elif form == "optional":
                values[name] = getattr(message, name) if message.HasField(name) else None
            elif form == "shapes":
                values[name] = tuple(tuple(s.dims) for s in getattr(message, name))
            else:
                first, second = PAIR_MESSAGES[name][1]
                values[name] = tuple((getattr(m, first), getattr(m, second)) for m in getattr(message, name))
        return cls(**values)

    return decode


@cache
def decoder(cls: type) -> Callable[[Any], Any]:
    """Makes a dataclass of the model from its message."""
    return _decoder(cls)


def detail_from_message(message: rank_pb2.Detail) -> Detail:
    """What a rank's message says of it.

    Raises:
        BadMessage: The rank's number cannot be one.
    """
    if not 0 <= message.rank < MAX_RANKS:
        raise BadMessage(f"rank {message.rank} is outside 0..{MAX_RANKS - 1}")
    made: Detail = decoder(Detail)(message)
    return made


def facts_from_columns(columns: agent_pb2.FactColumns) -> list[Facts]:
    """One row for each rank.

    Raises:
        BadMessage: The columns do not fit together, or follow a schema that is not known here.
    """
    if columns.schema != FACTS_SCHEMA:
        if not columns.rows:
            return []
        raise BadMessage(f"facts of schema {columns.schema}; this diagd reads schema {FACTS_SCHEMA}")
    read = {name: _column(columns, name) for name in DTYPES}
    if any(not 0 <= rank < MAX_RANKS for rank in read["rank"]):
        raise BadMessage(f"a rank is outside 0..{MAX_RANKS - 1}")
    try:
        read["status"] = [Status(value) for value in read["status"]]
        read["phase"] = [columns.phase_words[i] for i in read["phase"]]
        read["main_state"] = [columns.main_state_words[i] for i in read["main_state"]]
    except (ValueError, IndexError) as exc:
        raise BadMessage(f"facts with an unknown word: {exc}") from exc
    read["finalizing"] = [bool(value) for value in read["finalizing"]]
    rows = [Facts(**dict(zip(read, row, strict=True))) for row in zip(*read.values(), strict=True)]
    for extra in columns.extra:
        _apply_extra(rows, extra)
    return rows


def _column(columns: agent_pb2.FactColumns, name: str) -> list[Any]:
    packed = getattr(columns, name)
    if name in LATER_COLUMNS and not packed:
        return [0.0] * columns.rows
    if len(packed) != columns.rows * DTYPES[name].itemsize:
        raise BadMessage(f"column {name} has {len(packed)} bytes for {columns.rows} rows")
    values: list[Any] = np.frombuffer(packed, dtype=DTYPES[name]).tolist()
    return values


def _apply_extra(rows: list[Facts], extra: agent_pb2.ExtraColumn) -> None:
    if len(extra.rows) % 8 or len(extra.rows) != len(extra.values):
        raise BadMessage(f"extra column {extra.name} is cut off")
    values = np.frombuffer(extra.values, dtype="<f8").tolist()
    for row, value in zip(np.frombuffer(extra.rows, dtype="<i8").tolist(), values, strict=True):
        if not 0 <= row < len(rows):
            raise BadMessage(f"extra column {extra.name} names row {row} of {len(rows)}")
        rows[row].extra[extra.name] = value


def window_values(window: agent_pb2.Window) -> tuple[list[Facts], list[Detail]]:
    """All that a window says.

    Raises:
        BadMessage: It is no window that an agent of ours sends.
    """
    return facts_from_columns(window.facts), [detail_from_message(m) for m in window.details]


def ledger_values(window: agent_pb2.Window) -> list[LedgerNews]:
    """What a window says of the ranks' tensors.

    Raises:
        BadMessage: The columns do not fit together, or the rank's number cannot be one.
    """
    return [_ledger_news(message) for message in window.ledgers]


def _ledger_news(message: agent_pb2.Ledger) -> LedgerNews:
    samples, parts = _samples(message, SAMPLE_DTYPES, "ledger"), _samples(message, PART_DTYPES, "ledger")
    return LedgerNews(
        message.rank, message.pid, message.first_row, tuple(_tensor_info(m) for m in message.tensors),
        samples["rows"], samples["steps"], samples["digests"], message.left_out,
        answered=message.answered, answer=message.answer, sums=message.sums, **parts,
    )  # fmt: skip


def _tensor_info(message: agent_pb2.LedgerTensor) -> TensorInfo:
    values = {name: getattr(message, name) for name in TensorInfo.__slots__}
    lists = {name: tuple(getattr(message, name)) for name in ("shape", "peers", "beside")}
    return TensorInfo(**{**values, **lists})


def signal_values(window: agent_pb2.Window) -> list[SignalNews]:
    """What a window says of the ranks' scalars.

    Raises:
        BadMessage: The columns do not fit together, or the rank's number cannot be one.
    """
    return [_signal_news(message) for message in window.signals]


def _signal_news(message: agent_pb2.Signals) -> SignalNews:
    samples = _samples(message, SIGNAL_DTYPES, "signals")
    return SignalNews(
        message.rank, message.pid, message.first_string, tuple(message.strings),
        samples["names"], samples["steps"], samples["values"],
        tuple((fact.name, fact.step, fact.text) for fact in message.facts), message.left_out,
    )  # fmt: skip


def _samples(
    message: agent_pb2.Ledger | agent_pb2.Signals, columns: dict[str, np.dtype[Any]], what: str
) -> dict[str, list[Any]]:
    """The columns of samples in a rank's message, equally long, and the rank's number one that can be."""
    samples = {name: _packed(getattr(message, name), kind) for name, kind in columns.items()}
    if len({len(values) for values in samples.values()}) != 1:
        raise BadMessage(f"the samples of rank {message.rank}'s {what} are cut off")
    if not 0 <= message.rank < MAX_RANKS:
        raise BadMessage(f"rank {message.rank} is outside 0..{MAX_RANKS - 1}")
    return samples


def _packed(data: bytes, kind: np.dtype[Any]) -> list[Any]:
    if len(data) % kind.itemsize:
        raise BadMessage(f"{len(data)} bytes are no column of {kind.itemsize} bytes each")
    values: list[Any] = np.frombuffer(data, dtype=kind).tolist()
    return values


def apply_window(state: JobState, facts: list[Facts], details: Iterable[Detail], time_s: float) -> None:
    """Bring a window into the state; its own time counts, not when it came."""
    state.apply(facts, details, time_s)
