"""Protocol buffers without their definitions: the fields of a message, one by one."""

import struct
from collections.abc import Iterator

Field = tuple[int, int | bytes]  # number; a varint, or the bytes of all other types


class Malformed(ValueError):
    """The bytes are no message."""


def fields(data: bytes) -> Iterator[Field]:
    """The fields in order: varints as numbers, all else as bytes.

    Raises:
        Malformed: The bytes are no message, or cut off.
    """
    at, end = 0, len(data)
    while at < end:
        tag, at = varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = varint(data, at)
            yield tag >> 3, value
            continue
        if kind == 2:
            length, at = varint(data, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise Malformed(f"field of type {kind}")
        if at + length > end:
            raise Malformed("cut off")
        yield tag >> 3, data[at : at + length]
        at += length


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and the place behind it.

    Raises:
        Malformed: It has no end.
    """
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise Malformed("cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def float32(data: int | bytes) -> float:
    """A float of four bytes.

    Raises:
        Malformed: They are not four.
    """
    if not isinstance(data, bytes) or len(data) != 4:
        raise Malformed("no float")
    return float(struct.unpack("<f", data)[0])


def signed(value: int | bytes) -> int:
    """An int64 of a varint."""
    if not isinstance(value, int):
        raise Malformed("no number")
    return value - (1 << 64) if value >= 1 << 63 else value


def message(value: int | bytes) -> bytes:
    """A field that is a message or text.

    Raises:
        Malformed: It is a number.
    """
    if not isinstance(value, bytes):
        raise Malformed("no message")
    return value


def text(value: int | bytes) -> str:
    """A field that is text."""
    return message(value).decode("utf-8", "replace")
