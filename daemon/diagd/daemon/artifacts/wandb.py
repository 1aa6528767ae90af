"""The file of a wandb run that was made offline: LevelDB's log format around Record messages, of which history is read.

Blocks of 32 KiB hold chunks: a checksum (4 bytes), a length (2), a type (1: whole, 2: first, 3: middle, 4: last).
Record: history = 2. HistoryRecord: item = 1, step = 2 (num = 1). HistoryItem: key = 1, nested_key = 2, value_json = 16.
"""

import json
import struct
from collections.abc import Iterator
from typing import BinaryIO

from diagd.daemon.artifacts.columns import Piece
from diagd.daemon.artifacts.wire import Malformed, fields, message, signed, text
from diagd.probes.box.metric_text import from_mapping

MAGIC = b":W&B"
_HEADER = 7
_BLOCK = 32768
_CHUNK = struct.Struct("<IHB")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
RECORDS = 50_000  # in a piece
_OWN = ("_timestamp", "_runtime", "_step", "_wandb")


def pieces(file: BinaryIO, rank: int) -> Iterator[Piece]:
    """The run's history, so many records at a time."""
    piece = Piece()
    if not file.read(_HEADER).startswith(MAGIC):
        piece.stopped = "no wandb run"
        yield piece
        return
    for data in _records(file):
        piece.lines += 1
        piece.read += len(data)
        try:
            _record(data, rank, piece)
        except (Malformed, ValueError, RecursionError):
            piece.skip("broken record")
        if piece.lines % RECORDS == 0:
            yield piece
            piece = Piece(lines=piece.lines)
    yield piece


def _records(file: BinaryIO) -> Iterator[bytes]:
    parts: list[bytes] = []
    at = _HEADER
    while True:
        left = _BLOCK - at % _BLOCK
        if left < _CHUNK.size:
            at += len(file.read(left))
            continue
        head = file.read(_CHUNK.size)
        if len(head) < _CHUNK.size:
            return
        _, length, kind = _CHUNK.unpack(head)
        data = file.read(length)
        at += len(head) + len(data)
        if len(data) < length or kind not in (_WHOLE, _FIRST, _MIDDLE, _LAST):
            return
        if kind in (_WHOLE, _FIRST):
            parts = []
        parts.append(data)
        if kind in (_WHOLE, _LAST):
            yield b"".join(parts)


def _record(data: bytes, rank: int, piece: Piece) -> None:
    for number, value in fields(data):
        if number == 2:
            _history(message(value), rank, piece)


def _history(data: bytes, rank: int, piece: Piece) -> None:
    step: int | None = None
    said: dict[str, object] = {}
    for number, value in fields(data):
        if number == 2:
            step = next((signed(v) for n, v in fields(message(value)) if n == 1), 0)
        elif number == 1:
            name, content = _item(message(value))
            said[name] = json.loads(content)
    own = said.get("_step")
    found = from_mapping({name: value for name, value in said.items() if not name.startswith(_OWN)})
    if found is not None:
        step = found.step if found.step is not None else step
        step = own if step is None and isinstance(own, int) else step
        piece.put(rank, step, ((value.name, value.value) for value in found.values))


def _item(data: bytes) -> tuple[str, str]:
    key, content = "", "null"
    nested: list[str] = []
    for number, value in fields(data):
        if number == 1:
            key = text(value)
        elif number == 2:
            nested.append(text(value))
        elif number == 16:
            content = text(value)
    return "/".join(nested) or key, content
