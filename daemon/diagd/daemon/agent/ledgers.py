"""Reads the ranks' ledgers: what each tensor is, once, and what was sampled since the last look."""

import logging
import mmap
import os
import time
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diagd.daemon.agent.boxes import parse_ranks
from diagd.daemon.state.tensors import LedgerNews, TensorInfo
from diagd.probes.box import ledger as layout
from diagd.probes.box import requests, sums
from diagd.probes.box.ledger import BESIDE, Flag, Kind, Number, Tensor
from diagd.probes.box.requests import Request

log = logging.getLogger(__name__)

MAX_SUMS_BYTES = 64 << 20  # some 400,000 tensors; a third of it after compression
BEING_MADE_S = 10.0  # a busy machine takes long to allocate some megabytes

_KINDS = {Kind.PARAMETER: "parameter", Kind.BUFFER: "buffer", Kind.STATE: "state", Kind.GRADIENT: "gradient"}


class NoLedger(ValueError):
    """The file is no ledger that this version can read."""


def is_new(path: Path) -> bool:
    """Whether the file may have been made just now, and is not yet as long as it will be, or has no header yet."""
    try:
        return time.time() - path.stat().st_mtime < BEING_MADE_S
    except OSError:
        return False


class LedgerReader:
    """One rank's ledger, mapped read-only; remembers how far it was read.

    Raises:
        OSError: The file cannot be opened.
        NoLedger: It is cut off, foreign, or of another version.
    """

    def __init__(self, path: Path, rank: int, pid: int) -> None:
        self.path, self.rank, self.pid = path, rank, pid
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < layout.SIZE:
                raise NoLedger(f"{path} is too short")
            self._map = mmap.mmap(file.fileno(), layout.SIZE, prot=mmap.PROT_READ)
        magic, version, *_ = layout.HEADER.unpack_from(self._map, 0)
        if (magic, version) != (layout.MAGIC, layout.VERSION):
            raise NoLedger(f"{path} is no ledger of version {layout.VERSION}")
        self._numbers = np.frombuffer(self._map, "<i8")
        ring = np.frombuffer(self._map, "<i8", layout.MAX_SAMPLES * layout.SAMPLE_FIELDS, layout.SAMPLES_AT)
        self._samples = ring.reshape(layout.MAX_SAMPLES, layout.SAMPLE_FIELDS)
        parts = np.frombuffer(self._map, "<i8", layout.MAX_PARTS * layout.PART_FIELDS, layout.PARTS_AT)
        self._parts = parts.reshape(layout.MAX_PARTS, layout.PART_FIELDS)
        self._rows = self._seen = self._step = 0
        self._seen_parts = 0
        self._sums_ns = 0  # when what was told of them last was written
        self._told: tuple[int, ...] = (0,) * 5  # the numbers as they were told last
        self._seldom = np.zeros(layout.MAX_ROWS, np.bool_)  # rows that are sampled so seldom that none is left out

    def news(self) -> LedgerNews | None:
        """What is new since the last call; None where nothing is."""
        if self.path.stat().st_size < layout.SIZE:  # reading past its end would be the agent's death
            raise NoLedger(f"{self.path} was cut off")
        # In this order: by an answer all its digests are there, and of what these are of all rows.
        answered, answer = self._number(Number.ANSWERED), self._number(Number.ANSWER)
        newest, newest_part = self._number(Number.SAMPLES), self._number(Number.PARTS)
        first, rows = self._rows, min(self._number(Number.ROWS), layout.MAX_ROWS)
        told = answered, newest, newest_part, rows, self._number(Number.LEFT_OUT)
        if rows == first and told == self._told:
            return None
        told_sums = self._sums() if answered != self._told[0] else b""
        self._told = told
        tensors = tuple(_info(layout.read_tensor(self._map, row)) for row in range(first, rows))
        for row, info in enumerate(tensors, first):
            frozen = info.kind == "parameter" and not (info.trainable or info.owned)
            self._seldom[row] = frozen or info.kind == "state"
        self._rows = rows
        samples = self._thinned(self._new(self._samples, self._seen, newest))
        parts = self._new(self._parts, self._seen_parts, newest_part)
        self._seen, self._seen_parts = newest, newest_part
        return LedgerNews(
            self.rank, self.pid, first, tensors,
            samples[:, 1].tolist(), samples[:, 2].tolist(), samples[:, 3].tolist(), told[-1],
            parts[:, 1].tolist(), parts[:, 2].tolist(), parts[:, 3].tolist(), parts[:, 4].tolist(),
            parts[:, 5].tolist(), answered, answer, told_sums,
        )  # fmt: skip

    def ask(self, request: Request) -> None:
        """Have the rank digest tensors out of turn; it is not waited for.

        Raises:
            OSError: Its file cannot be written.
        """
        fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            requests.write(fd, layout.REQUEST_AT, request)
        finally:
            os.close(fd)

    def forget_sent(self) -> None:
        """Describe all tensors anew: who was told is gone."""
        self._rows = 0

    def _sums(self) -> bytes:
        """What the rank has told beside its ledger, in answer to the request that it has just done; mostly nothing."""
        path = self.path.with_suffix(sums.SUFFIX)
        try:
            made_ns = path.stat().st_mtime_ns
            if made_ns == self._sums_ns:
                return b""  # of an earlier one
            told, self._sums_ns = path.read_bytes(), made_ns
        except OSError:
            return b""
        if len(told) > MAX_SUMS_BYTES:
            log.warning("what rank %d tells of its tensors is not read: %d bytes", self.rank, len(told))
            return b""
        return zlib.compress(told, 1)

    def _number(self, which: Number) -> int:
        return int(self._numbers[layout.NUMBERS_AT // 8 + which])

    @staticmethod
    def _new(ring: NDArray[np.int64], seen: int, newest: int) -> NDArray[np.int64]:
        # The writer may be a few further by now: what it overwrites shows another serial.
        serials = np.arange(max(seen, newest - len(ring)) + 1, newest + 1)
        found = ring[(serials - 1) % len(ring)].copy()
        sound: NDArray[np.int64] = found[found[:, 0] == serials]
        return sound

    def _thinned(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of a rank of many steps a second, one or two of each tensor: in turns that other nodes choose alike.

        What was asked for is told in any case.
        """
        if not len(samples):
            return samples
        steps = samples[:, 2]
        turns = (int(steps.max()) - self._step) // layout.TURN
        self._step = int(steps.max())
        every = 1 << max(turns.bit_length() - 1, 0)
        seldom = self._seldom[samples[:, 1] % layout.MAX_ROWS]
        asked = steps == self._numbers[layout.REQUEST_AT // 8 + 1]
        wanted = (steps <= layout.EARLY_STEPS) | (steps // layout.TURN % every == 0) | seldom | asked
        kept: NDArray[np.int64] = samples[wanted]
        return kept


class LedgerShelf:
    """The ledgers of a node's ranks, as they come and go."""

    def __init__(self) -> None:
        self._readers: dict[Path, LedgerReader] = {}
        self._bad: set[Path] = set()

    def news(self, boxes: Iterable[tuple[int, int, Path]], anew: bool = False) -> list[LedgerNews]:
        """What is new in the ledgers beside these boxes (rank, process, path)."""
        present = {path.with_suffix(layout.SUFFIX): (rank, pid) for rank, pid, path in boxes}
        for path in self._readers.keys() - present.keys():
            del self._readers[path]
        found = [self._of(path, rank, pid, anew) for path, (rank, pid) in present.items() if path not in self._bad]
        return [news for news in found if news is not None]

    def ask(self, rank: int, pid: int, request: Request) -> None:
        """Have this rank digest tensors out of turn.

        Raises:
            ValueError: This process has no ledger here.
            OSError: Its file cannot be written.
        """
        reader = next((r for r in self._readers.values() if (r.rank, r.pid) == (rank, pid)), None)
        if reader is None:
            raise ValueError(f"rank {rank} is not process {pid}, or has no ledger: nothing is asked of it")
        reader.ask(request)

    def _of(self, path: Path, rank: int, pid: int, anew: bool) -> LedgerNews | None:
        try:
            reader = self._readers.get(path)
            if reader is None or reader.rank != rank:
                reader = self._readers[path] = LedgerReader(path, rank, pid)
            elif anew:
                reader.forget_sent()
            return reader.news()
        except FileNotFoundError:
            return None  # there is none yet, or no longer
        except (OSError, NoLedger) as exc:
            if is_new(path):
                return None  # it is being made
            log.warning("a ledger is not read: %s", exc)
            self._bad.add(path)
            return None


def _info(tensor: Tensor) -> TensorInfo:
    flags, apart = Flag(tensor.flags), tensor.peers.startswith(BESIDE)
    ranks = parse_ranks(tensor.peers.removeprefix(BESIDE))
    return TensorInfo(
        tensor.name, _KINDS[tensor.kind], tensor.dtype,
        tuple(int(extent) for extent in tensor.shape.split(",") if extent), tensor.placement,
        () if apart else ranks, bool(flags & Flag.TRAINABLE), bool(flags & Flag.OWNED), bool(flags & Flag.LOCAL),
        bool(flags & Flag.COPY), bool(flags & Flag.TRAINED_MODEL), bool(flags & Flag.TRANSIENT), ranks if apart else (),
    )  # fmt: skip
