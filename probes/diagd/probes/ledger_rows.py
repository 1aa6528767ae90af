"""The tensors that the ledger has written down, and at which steps each of them has its turn."""

import zlib
from collections.abc import Callable
from typing import Any

from diagd.probes import dtypes, gradients, inventory, states
from diagd.probes.box import ledger as layout
from diagd.probes.box.ledger import BESIDE, Flag, LedgerWriter, Tensor
from diagd.probes.placement import PLAIN
from diagd.probes.state import STATE
from diagd.probes.turns import NEVER

# A step touches each trained tensor a dozen times (forward, backward, optimizer), a digest reads it once or twice: one
# in 32 a step is about half a hundredth of the step, whatever the model's size.
TURN = layout.TURN
FROZEN_TURNS = 2  # frozen tensors are taken once in so many turns
STATE_TURNS = 2  # and what optimizers keep, which is twice as much as the parameters

Told = inventory.Found | states.Owner


class Row:
    """A tensor that is sampled, by where it is held."""

    __slots__ = ("dtype", "late", "name", "number", "owned", "read", "shape")

    def __init__(
        self, number: int, name: str, read: Callable[[], Any], shape: tuple[int, ...], owned: bool, late: bool = False,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        self.dtype = dtype  # of a buffer, whose cast nobody else sees; None for all else
        self.number = number
        self.late = late  # read right before the next step: a script may still be giving it to the others
        self.owned = owned
        self.name = name
        self.read = read
        self.shape = shape

    def tensor(self) -> Any:
        """What is held there now; None where there is nothing any more, or something else."""
        tensor = self.read()
        if tensor is None or tuple(tensor.shape) != self.shape:
            return None
        if self.dtype is not None and tensor.dtype is not self.dtype:
            dtypes.recast(self.name, self.dtype, tensor.dtype)
            self.dtype = tensor.dtype
        return tensor


class Rows:
    """All of them; `all` without gradients and without what no other rank holds."""

    def __init__(self) -> None:
        self.writer: LedgerWriter | None = None
        self.all: list[Row] = []
        self.bytes = 0  # of these
        self._known: dict[str, Row] = {}
        self._left_out: set[str] = set()  # each is counted once
        # By the step in a turn at which each is due.
        self._trained: dict[int, list[Row]] = {}
        self._frozen: dict[int, list[Row]] = {}
        self._states: dict[int, list[Row]] = {}

    def note(self, found: Told, tensor: Any, read: Callable[[], Any]) -> Row | None:
        """Write a tensor down, or follow it where its model was built anew; None where there is no room."""
        shape = tuple(tensor.shape)
        key = f"{int(found.kind)} {found.name} {found.placement.peers or found.placement.beside} {shape} {tensor.dtype}"
        known = self._known.get(key)
        thawed = known is not None and not known.owned and bool(found.flags & Flag.OWNED)
        if known is not None and not thawed:
            known.read = read
            return known
        number = self.writer.add(_described(found, tensor)) if self.writer is not None else None
        if number is None:
            self.leave_out(key)
            STATE.note("some tensors are not compared with other ranks': there is room for so many alone in the ledger")
            return None
        late = found.kind == layout.Kind.PARAMETER and found.placement is PLAIN
        dtype = tensor.dtype if found.kind == layout.Kind.BUFFER else None
        row = self._known[key] = Row(number, found.name, read, shape, bool(found.flags & Flag.OWNED), late, dtype)
        if known is not None:
            self._retire(known)
        if found.kind != layout.Kind.GRADIENT and not found.flags & Flag.LOCAL:
            self._enlist(row, found.kind, found.flags, tensor)
        return row

    def leave_out(self, key: str) -> None:
        """Count a tensor that cannot be compared."""
        if self.writer is not None and key not in self._left_out:
            self._left_out.add(key)
            self.writer.leave_out()

    def due(self, step: int) -> list[Row]:
        """By the step's number, which is the same on every rank, and by how rare samples have to be on this one."""
        taken = [rows.get(step % turn, ()) for rows, turn in self._kinds() if rows and gradients.is_turn(step, turn)]
        return [row for rows in taken for row in rows]

    def following(self, step: int) -> int:
        """The next step at which some may be due."""
        return min([gradients.next_turn(step, turn) for rows, turn in self._kinds() if rows], default=NEVER)

    def _kinds(self) -> tuple[tuple[dict[int, list[Row]], int], ...]:
        return (self._trained, TURN), (self._frozen, TURN * FROZEN_TURNS), (self._states, TURN * STATE_TURNS)

    def _retire(self, row: Row) -> None:
        """It goes on under another number, as an optimizer has come to own it since: what was frozen trains now."""
        self.all.remove(row)
        for table, _ in self._kinds():
            for rows in table.values():
                if row in rows:
                    rows.remove(row)

    def _enlist(self, row: Row, kind: layout.Kind, flags: int, tensor: Any) -> None:
        self.all.append(row)
        self.bytes += tensor.numel() * tensor.element_size()
        # Not by how many others there are: ranks may differ in that.
        place = zlib.crc32(f"{int(kind)} {row.name}".encode("utf-8", "replace"))
        if kind == layout.Kind.STATE:
            self._states.setdefault(place % (TURN * STATE_TURNS), []).append(row)
        elif flags & (Flag.TRAINABLE | Flag.OWNED) or kind == layout.Kind.BUFFER:
            self._trained.setdefault(place % TURN, []).append(row)
        else:
            self._frozen.setdefault(place % (TURN * FROZEN_TURNS), []).append(row)


def _described(found: Told, tensor: Any) -> Tensor:
    placed = found.placement
    peers = BESIDE * bool(placed.beside) + ",".join(map(str, placed.peers or placed.beside))
    shape = ",".join(str(int(extent)) for extent in tensor.shape)
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Tensor(found.name, found.kind, dtype, shape, found.placement.text, peers, found.flags, int(tensor.numel()))
