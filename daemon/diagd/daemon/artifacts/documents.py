"""Whole JSON documents with a history in them: transformers' trainer_state.json, and lists of records."""

import json
from typing import Any

from diagd.daemon.artifacts.columns import Piece
from diagd.probes.box.metric_text import from_mapping

MOST_BYTES = 512 << 20
HISTORIES = ("log_history", "history", "logs", "metrics")


def read(data: bytes, rank: int) -> Piece:
    """The document's records."""
    piece = Piece(read=len(data))
    try:
        said = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        piece.stopped = "no JSON document"
        return piece
    records = history_of(said)
    if records is None:
        piece.stopped = "holds no history"
        return piece
    for record in records:
        piece.lines += 1
        found = from_mapping(record) if isinstance(record, dict) else None
        if found is not None:
            piece.put(rank, found.step, ((value.name, value.value) for value in found.values))
    return piece


def history_of(said: Any) -> list[Any] | None:
    """The list of records in a document; None where there is none."""
    if isinstance(said, dict):
        said = next((said[name] for name in HISTORIES if isinstance(said.get(name), list)), None)
    return said if isinstance(said, list) and any(isinstance(record, dict) for record in said) else None
