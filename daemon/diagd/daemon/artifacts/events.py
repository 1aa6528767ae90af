"""TensorBoard's event files: TFRecord frames around Event messages, of which only scalars are read.

A frame is a length (uint64), a checksum, the message and another checksum. Event: step = 2, summary = 5. Summary:
value = 1. Value: tag = 1, simple_value = 2, tensor = 8. TensorProto: dtype = 1, tensor_content = 4, float_val = 5,
double_val = 6.
(tensorflow/core/util/event.proto, framework/summary.proto, framework/tensor.proto)
"""

import struct
from collections.abc import Iterator
from typing import BinaryIO

from diagd.daemon.artifacts.columns import Piece
from diagd.daemon.artifacts.wire import Malformed, fields, float32, message, signed, text

MOST_BYTES = 256 << 20  # of one event: more is no length
EVENTS = 50_000  # in a piece
_FRAME = struct.Struct("<QI")
_FLOAT, _DOUBLE = 1, 2  # types of a tensor


def pieces(file: BinaryIO, rank: int) -> Iterator[Piece]:
    """The file's scalars, so many events at a time."""
    piece = Piece()
    while not piece.stopped:
        head = file.read(_FRAME.size)
        if not head:
            break
        length = _FRAME.unpack(head)[0] if len(head) == _FRAME.size else MOST_BYTES
        data = file.read(length + 4) if length < MOST_BYTES else b""
        if len(data) != length + 4:
            piece.stopped = "cut off" if length < MOST_BYTES or len(head) < _FRAME.size else "broken from here on"
            break
        piece.lines += 1
        piece.read += len(head) + len(data)
        try:
            _event(data[:-4], rank, piece)
        except Malformed:
            piece.skip("broken event")
        if piece.lines % EVENTS == 0:
            yield piece
            piece = Piece(lines=piece.lines)
    yield piece


def _event(data: bytes, rank: int, piece: Piece) -> None:
    step, summary = 0, b""
    for number, value in fields(data):
        if number == 2:
            step = signed(value)
        elif number == 5:
            summary = message(value)
    values = [_value(message(value)) for number, value in fields(summary) if number == 1]
    piece.put(rank, step, (value for value in values if value is not None))


def _value(data: bytes) -> tuple[str, float] | None:
    """Tag and value; None where it is no scalar."""
    tag, found = "", None
    for number, value in fields(data):
        if number == 1:
            tag = text(value)
        elif number == 2:
            found = float32(value)
        elif number == 8:
            found = _tensor(message(value))
    return (tag, found) if tag and found is not None else None


def _tensor(data: bytes) -> float | None:
    kind, content = 0, b""
    for number, value in fields(data):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number in (4, 5, 6) and isinstance(value, bytes):
            content = value
    if kind == _FLOAT and len(content) == 4:
        return float32(content)
    return float(struct.unpack("<d", content)[0]) if kind == _DOUBLE and len(content) == 8 else None
