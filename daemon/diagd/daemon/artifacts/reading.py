"""Files as pieces in order; text in pieces of some megabytes that several processes read at once."""

import contextlib
import gzip
import os
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from diagd.daemon.artifacts import documents, events, text, wandb
from diagd.daemon.artifacts.columns import Piece
from diagd.daemon.artifacts.sources import CSV, EVENTS, JSON, STATE, WANDB, Source

PIECE_BYTES = 8 << 20
_PART_BYTES = 64 << 10  # of what is compressed: so much may be lost before a place where it is cut off
_SPOILT = (EOFError, gzip.BadGzipFile, zlib.error)
MANY_BYTES = 48 << 20  # below it, starting processes takes longer than reading
MOST_PROCESSES = 8
_LONGEST = 1 << 20  # a line that is longer is cut here


class Reading(AbstractContextManager["Reading"]):
    """Reads files; holds the processes that do so.

    Args:
        total_bytes: What there is to read in all.
    """

    def __init__(self, total_bytes: int) -> None:
        several = min(os.cpu_count() or 1, MOST_PROCESSES) if total_bytes > MANY_BYTES else 1
        self._pool = ProcessPoolExecutor(several) if several > 1 else None
        self._ahead = 2 * several

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def pieces(self, stream: Sequence[Source]) -> Iterator[tuple[Source, Piece]]:
        """What the files of a stream hold, one after the other.

        Raises:
            OSError: A file cannot be read.
        """
        for source in stream:
            for piece in self._of(source):
                yield source, piece

    def _of(self, source: Source) -> Iterator[Piece]:
        if source.kind in (EVENTS, WANDB):
            with _opened(source.path) as file:
                yield from (events if source.kind == EVENTS else wandb).pieces(file, source.rank)
        elif source.kind == STATE:
            if source.size > documents.MOST_BYTES:
                yield Piece(stopped="too large for one JSON document")
                return
            yield documents.read(source.path.read_bytes(), source.rank)
        elif _is_plain(source.path):
            yield from self._in_order(source)
        else:
            yield from _decoded(source)

    def _in_order(self, source: Source) -> Iterator[Piece]:
        """Text as pieces, read ahead by the other processes."""
        header, delimiter = _header(source)
        begins = range(0, max(source.size, 1), PIECE_BYTES)
        tasks = ((str(source.path), source.kind, source.rank, begin, header, delimiter) for begin in begins)
        if self._pool is None or len(begins) == 1:
            yield from (read_piece(*task) for task in tasks)
            return
        waiting: deque[Future[Piece]] = deque()
        for task in tasks:
            waiting.append(self._pool.submit(read_piece, *task))
            if len(waiting) >= self._ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def read_piece(path: str, kind: str, rank: int, begin: int, header: list[str], delimiter: str) -> Piece:
    """The lines that begin in a piece of a file."""
    with open(path, "rb") as file:  # noqa: PTH123 - once for each piece
        data = _whole_lines(file, begin)
    lines = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    piece = Piece(read=len(data))
    _read(lines, kind, rank, piece, header, delimiter)
    return piece


def _read(lines: list[str], kind: str, rank: int, piece: Piece, header: list[str], delimiter: str) -> None:
    if kind == JSON:
        text.read_json(lines, rank, piece)
    elif kind == CSV and header:
        text.read_csv(
            (line for line in lines if line.strip() != delimiter.join(header)), rank, piece, header, delimiter
        )
    else:
        text.read_log(lines, rank, piece)


def _whole_lines(file: BinaryIO, begin: int) -> bytes:
    """From the first line that begins in the piece to the end of the last one that does."""
    if begin:
        file.seek(begin - 1)
        if file.read(1) != b"\n":
            file.readline(_LONGEST)
    start = file.tell()
    end = begin + PIECE_BYTES
    if start >= end:
        return b""
    data = file.read(end - start)
    return data if data.endswith(b"\n") or len(data) < end - start else data + file.readline(_LONGEST)


def _decoded(source: Source) -> Iterator[Piece]:
    """A file that is compressed or in UTF-16: one process reads it from its beginning."""
    header, delimiter = _header(source)
    with _opened(source.path) as file:
        encoding = _encoding(source.path)
        rest, cut = "", list[str]()
        for data in _parts(file, cut):
            lines = (rest + data.decode(encoding, "replace")).replace("\r\n", "\n").replace("\r", "\n").split("\n")
            rest = lines.pop()[:_LONGEST]
            piece = Piece(read=len(data))
            _read([line.lstrip("\ufeff") for line in lines], source.kind, source.rank, piece, header, delimiter)
            yield piece
    if rest:
        piece = Piece()
        _read([rest], source.kind, source.rank, piece, header, delimiter)
        yield piece
    if cut:
        yield Piece(stopped=cut[0])


def _parts(file: BinaryIO, cut: list[str]) -> Iterator[bytes]:
    """A file piece by piece; of what is compressed, all before the place where it is cut off or damaged."""
    parts: list[bytes] = []
    size = 0
    try:
        while more := file.read1(_PART_BYTES):  # type: ignore[attr-defined]  # read() loses what it has got so far
            parts.append(more)
            size += len(more)
            if size >= PIECE_BYTES:
                yield b"".join(parts)
                parts, size = [], 0
    except _SPOILT as error:
        cut.append("cut off" if isinstance(error, EOFError) else "damaged from here on")
    if parts:
        yield b"".join(parts)


def _header(source: Source) -> tuple[list[str], str]:
    if source.kind != CSV:
        return [], ","
    line = b""
    with _opened(source.path) as file, contextlib.suppress(*_SPOILT):
        line = file.readline(_LONGEST)
    return text.header_of(line.decode(_encoding(source.path), "replace"))


def _opened(path: Path) -> BinaryIO:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _is_plain(path: Path) -> bool:
    return path.suffix != ".gz" and _encoding(path) == "utf-8"


def _encoding(path: Path) -> str:
    """By its first bytes; of what is neither, each byte that is no UTF-8 is shown as such."""
    head = b""
    with _opened(path) as file, contextlib.suppress(*_SPOILT):
        head = file.read(2)
    return {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}.get(head, "utf-8")
