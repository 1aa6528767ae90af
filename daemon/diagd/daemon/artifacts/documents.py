"""Whole JSON documents with a history in them: transformers' trainer_state.json, and lists of records."""

import json
import re
from typing import Any

from diagd.daemon.artifacts.columns import Piece
from diagd.probes.box.metric_text import from_mapping

MOST_BYTES = 512 << 20
_BETWEEN = re.compile(r"[\s,]*")
HISTORIES = ("log_history", "history", "logs", "metrics")


def read(data: bytes, rank: int) -> Piece:
    """The document's records."""
    piece = Piece(read=len(data))
    text = data.decode("utf-8", "replace")
    try:
        records = history_of(json.loads(text))
    except (ValueError, RecursionError):
        if not (records := _whole_ones(text)):
            piece.stopped = "no JSON document"
            return piece
        piece.stopped = f"cut off or damaged after {len(records)} records"
    if records is None:
        piece.stopped = "holds no history"
        return piece
    for record in records:
        piece.lines += 1
        found = from_mapping(record) if isinstance(record, dict) else None
        if found is not None:
            piece.put(rank, found.step, ((value.name, value.value) for value in found.values))
    return piece


def _whole_ones(text: str) -> list[Any]:
    """The records of a history that are whole, up to where the document is cut off or damaged."""
    begin = next((at.end() for name in HISTORIES if (at := re.search(rf'"{name}"\s*:\s*\[', text))), None)
    records: list[Any] = []
    decoder = json.JSONDecoder()
    while begin is not None:
        try:
            record, begin = decoder.raw_decode(text, _next(text, begin))
        except (ValueError, RecursionError):
            break
        records.append(record)
    return records


def _next(text: str, begin: int) -> int:
    """Past the comma and the blanks between two records."""
    found = _BETWEEN.match(text, begin)
    return found.end() if found is not None else begin


def history_of(said: Any) -> list[Any] | None:
    """The list of records in a document; None where there is none."""
    if isinstance(said, dict):
        said = next((said[name] for name in HISTORIES if isinstance(said.get(name), list)), None)
    return said if isinstance(said, list) and any(isinstance(record, dict) for record in said) else None
