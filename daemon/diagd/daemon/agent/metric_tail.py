"""Follows one file of metrics that grows: JSON or CSV, a record a line, or a log."""

import csv
import json
import os
from collections.abc import Iterable
from typing import NamedTuple

from diagd.probes.box.metric_steps import Steps
from diagd.probes.box.metric_text import MAX_LINE, Line, Reader, from_mapping

MOST_BYTES = 1 << 20  # that are read at once
TOO_MUCH = 16 << 20  # behind: what is between is left out
JSON, CSV, TEXT = (".jsonl", ".ndjson", ".json"), (".csv", ".tsv"), (".log", ".txt", ".out")


class Sample(NamedTuple):
    """A metric's value; `step` None where the file does not say it."""

    name: str
    step: int | None
    value: float


class Tail:
    """A file that is read on from where the last read ended.

    Args:
        paths: Where it may be opened: as /proc/PID/fd/N, and by its name once the process is gone.
        inode: Its device and number: under these paths another file may lie by now.
        begin: The byte to begin at.
    """

    def __init__(self, paths: tuple[str, ...], inode: tuple[int, int], begin: int) -> None:
        self._paths, self._inode = paths, inode
        self._kind = os.path.splitext(paths[-1])[1].lower()  # noqa: PTH122 - a name
        self.at = begin
        self._begun = begin == 0
        self._rest = b""
        self._cut = False  # in the middle of a line whose beginning is not known
        self._records = _Records(self._kind)

    def read(self) -> list[Sample]:
        """What has been added in whole lines.

        Raises:
            OSError: The file is not there any more.
        """
        fd = self._open()
        try:
            size = os.fstat(fd).st_size
            self._place(fd, size)
            data = os.pread(fd, min(size - self.at, MOST_BYTES), self.at) if size > self.at else b""
        finally:
            os.close(fd)
        self.at += len(data)
        return self._records.samples(self._lines(data)) if data else []

    def _open(self) -> int:
        for path in self._paths:
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except OSError:
                continue
            about = os.fstat(fd)
            if (about.st_dev, about.st_ino) == self._inode:
                return fd
            os.close(fd)
        raise FileNotFoundError(self._paths[-1])

    def _place(self, fd: int, size: int) -> None:
        """Where to read on: anew where the file was cut, further on where too much has come."""
        if not self._begun:
            self._begun = True
            self._records.begin(os.pread(fd, MAX_LINE, 0))
            self._cut = os.pread(fd, 1, self.at - 1) != b"\n"
        if size < self.at:
            self.at, self._rest, self._cut = 0, b"", False
            self._records = _Records(self._kind)
        elif size - self.at > TOO_MUCH:
            self.at, self._rest, self._cut = size - MOST_BYTES, b"", True

    def _lines(self, data: bytes) -> Iterable[str]:
        *lines, rest = (self._rest + data).split(b"\n")
        if self._cut and lines:
            del lines[0]
            self._cut = False
        self._rest = rest if len(rest) <= MAX_LINE else b""
        self._cut = self._cut or len(rest) > MAX_LINE
        return (line.decode("utf-8", "replace") for line in lines if len(line) <= MAX_LINE)


class _Records:
    """Reads the lines of a file of one kind."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._header: list[str] = []
        self._reader = Reader()
        self._steps: dict[str, Steps] = {}

    def begin(self, head: bytes) -> None:
        """The file's first bytes, of which only a CSV's header is of use."""
        if self._kind in CSV:
            self._read(head.split(b"\n", 1)[0].decode("utf-8", "replace"))

    def samples(self, lines: Iterable[str]) -> list[Sample]:
        found: list[Sample] = []
        for line in lines:
            said = self._read(line)
            if said is not None and said.values:
                step = said.step
                if step is not None:
                    step = self._steps.setdefault(said.values[0].name, Steps()).place(step)
                found += [Sample(value.name, step, value.value) for value in said.values]
        return found

    def _read(self, line: str) -> Line | None:
        if self._kind in JSON:
            return _object(line)
        return self._row(line) if self._kind in CSV else self._reader.read(line.rpartition("\r")[2])

    def _row(self, line: str) -> Line | None:
        fields = next(csv.reader([line.rstrip("\r")], delimiter="\t" if self._kind == ".tsv" else ","), [])
        if not self._header or len(fields) != len(self._header):
            self._header = [field.strip() for field in fields] if not any(map(_is_number, fields)) else []
            return None
        said = dict(zip(self._header, fields, strict=True))
        return from_mapping(said)


def _object(line: str) -> Line | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return from_mapping(said) if isinstance(said, dict) else None


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
