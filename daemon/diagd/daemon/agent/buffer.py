"""What the agent keeps for the aggregator until that has acknowledged it."""

from collections import deque
from typing import NamedTuple

from diagd.proto.v1.agent_pb2 import Window


class Queue(NamedTuple):
    """Windows, one a look; what is neither waiting nor dropped the aggregator has taken."""

    made: int
    waiting: int
    waiting_bytes: int
    dropped: int

    @property
    def taken(self) -> int:
        """Acknowledged by the aggregator."""
        return self.made - self.waiting - self.dropped


class Buffer:
    """Windows that the aggregator has not acknowledged, oldest first; bounded.

    What is dropped are numbers, which newer ones replace. How a rank ended is said only once: that moves on to the next
    window.
    """

    def __init__(self, max_windows: int, max_bytes: int) -> None:
        self._max_windows = max_windows
        self._max_bytes = max_bytes
        self._windows: deque[tuple[Window, int]] = deque()
        self._bytes = 0
        self._next_seq = 1
        self.dropped = 0

    def add(self, window: Window) -> None:
        """Give the window its number and keep it."""
        window.seq, window.dropped_windows = self._next_seq, self.dropped
        self._next_seq += 1
        size = window.ByteSize()
        self._windows.append((window, size))
        self._bytes += size
        while len(self._windows) > 1 and (len(self._windows) > self._max_windows or self._bytes > self._max_bytes):
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest, size = self._windows.popleft()
        self._bytes -= size
        self.dropped += 1
        endings = [d for d in oldest.details if d.HasField("ending") or d.HasField("exit")]
        if endings:
            heir, heir_size = self._windows[0]
            known = {(d.rank, d.pid) for d in heir.details if d.HasField("ending") or d.HasField("exit")}
            fuller = Window()  # a new one: the old may be on its way out in another thread
            fuller.CopyFrom(heir)
            fuller.details.extend(d for d in endings if (d.rank, d.pid) not in known)
            self._windows[0] = (fuller, fuller.ByteSize())
            self._bytes += fuller.ByteSize() - heir_size

    def acknowledge(self, seq: int) -> None:
        """Forget all up to this one."""
        while self._windows and self._windows[0][0].seq <= seq:
            self._bytes -= self._windows.popleft()[1]

    def after(self, seq: int) -> Window | None:
        """The first one after this number."""
        if not self._windows or self._windows[-1][0].seq <= seq:
            return None
        # Seldom more than a few are waiting, and the wanted one is nearly always the last.
        first = self._windows[0][0].seq
        index = max(seq + 1 - first, 0)
        return self._windows[index][0]

    @property
    def queue(self) -> Queue:
        """What was made, and what became of it."""
        return Queue(self._next_seq - 1, len(self._windows), self._bytes, self.dropped)

    @property
    def oldest(self) -> int:
        """The number of the oldest that is kept, or of the next."""
        return self._windows[0][0].seq if self._windows else self._next_seq

    def __len__(self) -> int:
        return len(self._windows)
