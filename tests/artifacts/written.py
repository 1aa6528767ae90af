"""Files as TensorBoard and wandb write them, byte by byte."""

import json
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def varint(value: int) -> bytes:
    parts = []
    value &= (1 << 64) - 1
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def scalar(tag: str, value: float) -> bytes:
    """A Summary.Value as torch's SummaryWriter makes it."""
    return field(1, tag.encode()) + varint(2 << 3 | 5) + struct.pack("<f", value)


def tensor(tag: str, value: float) -> bytes:
    """The same as TensorFlow 2 makes it."""
    made = field(1, 1) + field(4, struct.pack("<f", value))
    return field(1, tag.encode()) + field(8, made) + field(9, field(1, field(1, b"scalars")))


def histogram(tag: str) -> bytes:
    return field(1, tag.encode()) + field(5, varint(1 << 3 | 1) + struct.pack("<d", 1.0))


def event(step: int, *values: bytes) -> bytes:
    summary = b"".join(field(1, value) for value in values)
    return varint(1 << 3 | 1) + struct.pack("<d", 1.7e9 + step) + field(2, step) + field(5, summary)


def event_file(path: Path, events: Iterable[bytes]) -> Path:
    first = varint(1 << 3 | 1) + struct.pack("<d", 1.7e9) + field(3, b"brain.Event:2")
    with path.open("wb") as file:
        for data in (first, *events):
            file.write(struct.pack("<QI", len(data), 0) + data + struct.pack("<I", 0))
    return path


def wandb_file(path: Path, history: Iterable[dict[str, Any]]) -> Path:
    """A run's file: blocks of 32 KiB, records that go over their ends in parts."""
    data = bytearray(b":W&B" + struct.pack("<HB", 0xBEE1, 0))
    records = [field(17, field(1, b"run"))]
    for step, said in enumerate(history):
        items = b"".join(field(1, field(1, k.encode()) + field(16, json.dumps(v).encode())) for k, v in said.items())
        records.append(field(1, step + 1) + field(2, items + field(2, field(1, step))))
    for record in records:
        _put(data, record)
    path.write_bytes(data)
    return path


def _put(data: bytearray, record: bytes) -> None:
    first = True
    while True:
        left = 32768 - len(data) % 32768
        if left < 7:
            data += b"\0" * left
            continue
        part, record = record[: left - 7], record[left - 7 :]
        kind = (1 if first else 4) if not record else (2 if first else 3)
        data += struct.pack("<IHB", zlib.crc32(part), len(part), kind) + part
        first = False
        if not record:
            return
