"""The model's values as messages; `diagd.daemon.state.apply` is the way back.

Times are shifted to the aggregator's clock on the way, so that one clock holds for a job that spans nodes.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np

from diagd.daemon.state.apply import (
    BYTE_COLUMNS,
    DTYPES,
    FACTS_SCHEMA,
    PAIR_MESSAGES,
    PART_DTYPES,
    SAMPLE_DTYPES,
    SIGNAL_DTYPES,
    forms,
)
from diagd.daemon.state.model import Detail, Facts
from diagd.daemon.state.scalars import SignalNews
from diagd.daemon.state.tensors import LedgerNews, TensorInfo
from diagd.proto.v1 import agent_pb2, rank_pb2

TIME_FIELDS = frozenset(
    {"taken_s", "entered_s", "returned_s", "created_s", "at_s", "in_shutdown_s", "still_since_s", "saving_s"}
)
TIME_COLUMNS = frozenset({"step_s", "phase_s", "heartbeat_s", "wait_s", "said_s"})


def shifted(time_s: float, shift_s: float) -> float:
    """The time on the other clock; 0 and below mean that there is none."""
    return time_s + shift_s if time_s > 0 else time_s


def _text(value: object) -> object:
    """A command line or path may hold bytes that are no UTF-8; a message may not."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


@cache
def _encoder(cls: type) -> Callable[[Any, float], Any]:
    message_type = getattr(rank_pb2, cls.__name__)
    steps = [(f.name, f.form, f.inner and _encoder(f.inner), f.name in TIME_FIELDS) for f in forms(cls)]

    def encode(value: Any, shift_s: float) -> Any:
        made: dict[str, Any] = {}
        for name, form, inner, is_time in steps:
            item = getattr(value, name)
            if item is None:
                continue
            if form == "messages" and inner:
                made[name] = [inner(one, shift_s) for one in item]
            elif form == "maybe" and inner:
                made[name] = inner(item, shift_s)
            elif form == "pairs":
                message, (first, second) = PAIR_MESSAGES[name]
                made[name] = [message(**{first: shifted(a, shift_s), second: _text(b)}) for a, b in item]
            elif form == "shapes":
                made[name] = [rank_pb2.Shape(dims=dims) for dims in item]
            elif form == "list":
                made[name] = [_text(one) for one in item]
            else:
                made[name] = shifted(item, shift_s) if is_time else _text(item)
        return message_type(**made)

    return encode


def detail_message(detail: Detail, shift_s: float = 0.0) -> rank_pb2.Detail:
    """The message for one rank's detail."""
    made: rank_pb2.Detail = _encoder(Detail)(detail, shift_s)
    return made


def ledger_message(news: LedgerNews) -> agent_pb2.Ledger:
    """The message for what is new in one rank's ledger."""
    return agent_pb2.Ledger(
        rank=news.rank,
        pid=news.pid,
        first_row=news.first_row,
        tensors=[_tensor_message(info) for info in news.tensors],
        left_out=news.left_out,
        answered=news.answered,
        answer=news.answer,
        sums=news.sums,
        **{
            name: np.array(getattr(news, name), dtype=kind).tobytes()
            for name, kind in (SAMPLE_DTYPES | PART_DTYPES).items()
        },
    )


def signals_message(news: SignalNews) -> agent_pb2.Signals:
    """The message for what is new in one rank's signals."""
    return agent_pb2.Signals(
        rank=news.rank,
        pid=news.pid,
        first_string=news.first_string,
        strings=[str(_text(text)) for text in news.strings],
        facts=[agent_pb2.SignalFact(name=name, step=step, text=text) for name, step, text in news.facts],
        left_out=news.left_out,
        **{name: np.array(getattr(news, name), dtype=kind).tobytes() for name, kind in SIGNAL_DTYPES.items()},
    )


def _tensor_message(info: TensorInfo) -> agent_pb2.LedgerTensor:
    values: dict[str, Any] = {name: _text(getattr(info, name)) for name in TensorInfo.__slots__}
    return agent_pb2.LedgerTensor(**values)


def facts_columns(facts: Sequence[Facts], shift_s: float = 0.0) -> agent_pb2.FactColumns:
    """The columns for the numbers of all ranks."""
    phases = _words(f.phase for f in facts)
    states = _words(f.main_state for f in facts)
    columns: dict[str, list[Any]] = {
        name: [getattr(f, name) for f in facts] for name in DTYPES if name not in BYTE_COLUMNS
    }
    columns["status"] = [int(f.status) for f in facts]
    columns["finalizing"] = [int(f.finalizing) for f in facts]
    columns["phase"] = [phases[f.phase] for f in facts]
    columns["main_state"] = [states[f.main_state] for f in facts]
    if shift_s:
        for name in TIME_COLUMNS:
            columns[name] = [shifted(t, shift_s) for t in columns[name]]
    return agent_pb2.FactColumns(
        schema=FACTS_SCHEMA,
        rows=len(facts),
        phase_words=[str(_text(w)) for w in phases],
        main_state_words=[str(_text(w)) for w in states],
        extra=_extra(facts),
        **{name: np.array(values, dtype=DTYPES[name]).tobytes() for name, values in columns.items()},
    )


def _words(values: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for value in values:
        found.setdefault(value, len(found))
    return found


def _extra(facts: Sequence[Facts]) -> list[agent_pb2.ExtraColumn]:
    rows: dict[str, tuple[list[int], list[float]]] = {}
    for row, fact in enumerate(facts):
        for name, value in fact.extra.items():
            where, values = rows.setdefault(name, ([], []))
            where.append(row)
            values.append(value)
    return [
        agent_pb2.ExtraColumn(
            name=str(_text(name)), rows=np.array(where, "<i8").tobytes(), values=np.array(values, "<f8").tobytes()
        )
        for name, (where, values) in rows.items()
    ]
