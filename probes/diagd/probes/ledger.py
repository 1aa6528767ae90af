"""The ledger: what each tensor of the models is and, at steps that its name alone decides, a digest of what it holds.

Every rank takes the same tensor after the same step, so that the digests can be compared without any rank's asking
another. All are taken before the first step and after the first few; after that each once in a turn of steps, and its
gradient as the optimizer is given it in that step. A rank without others writes down what its tensors are, and takes no
digests but those that it is asked for.
"""

import sys
import weakref
from typing import Any

from diagd.probes import aliases, digest, dtypes, gradients, heartbeat, inventory, registered, states, sweeps, turns
from diagd.probes.box import ledger as layout
from diagd.probes.box.layout import Live
from diagd.probes.box.ledger import Flag, LedgerWriter
from diagd.probes.guard import Patches, Probe, wrapper
from diagd.probes.ledger_rows import TURN, Row, Rows
from diagd.probes.named import NAMED
from diagd.probes.registered import REGISTERED
from diagd.probes.snapshots import Snapshot
from diagd.probes.state import STATE

EARLY_BYTES = 1 << 30  # of a model larger than this, all only before the first step
# Models are looked for again when an optimizer steps for the first time, as after a resumption, or when modules were
# given something new, and each time only so many steps later than the time before, doubled each time: a script may make
# optimizers, or layers, without end.
LOOK_AGAIN = TURN
MANY_OPTIMIZERS = 64
_STEP, _OPTIMIZER_STEPS = int(Live.STEP), int(Live.OPTIMIZER_STEPS)

_joined: list[turns.Turn] = []
_patches = Patches()


class _Ledger:
    """This process's."""

    def __init__(self) -> None:
        self.off = False  # what is there cannot be compared, or there is no room
        self.alone = False  # there is nobody to compare with
        self.step = -1  # the last one that was looked at
        self.within: weakref.ref[Any] | None = None  # an optimizer that steps inside backward passes, as all do then
        self.early_until = layout.EARLY_STEPS
        self.looks = 0
        self.looked_at = 0  # step
        self.optimizers: dict[int, weakref.ref[Any]] = {}
        self.given: dict[int, gradients.Given] = {}  # by the optimizer's id
        self.rows = Rows()
        self.owners: dict[int, states.Owner] = {}  # of the parameters that are there, by their id
        self.gradients: dict[int, Row] = {}  # by the id of the parameter
        self.late: tuple[list[Row], int] = [], 0  # what is to be read before the next step, and for which one
        self.pending: list[tuple[list[Row], int, digest.Pending]] = []


LEDGER = _Ledger()


def install(probe: Probe, module: Any) -> None:
    """torch.optim.optimizer, modules, or what lets ranks have uneven inputs, is there."""
    if module.__name__ == "torch.nn.modules.module":
        registered.begin(probe, module, _wake)
        return
    if module.__name__ == "torch.optim.optimizer":
        _patches.replace(module.Optimizer, "add_param_group", wrapper(probe, _adding, _ignore, _ignore))
    if module.__name__.endswith(".join"):
        _patches.replace(module.Join, "__enter__", wrapper(probe, _joining, _ignore, _ignore))
        return
    STATE.listeners.append(_at_switch)
    heartbeat.LOOKS.append(_look_for_request)
    sweeps.take_snapshot = _take_snapshot
    _joined.append(turns.join(probe, _following, before=_before, after=_after, passed=_passed))


def remove() -> None:
    """Take the hooks away."""
    registered.end()
    if _look_for_request in heartbeat.LOOKS:
        heartbeat.LOOKS.remove(_look_for_request)
    _patches.undo()
    while _joined:
        turns.leave(_joined.pop().probe)


def _wake() -> None:
    for turn in _joined:
        turn.wake()


def _look_for_request() -> None:
    """In the thread of diagd's: a rank without others looks at none of its steps, and has to be woken for a request."""
    if LEDGER.alone and sweeps.is_asked(LEDGER.rows.writer):
        _wake()


def _ignore(*_: Any) -> None:
    """There is nothing to do afterwards."""


def _adding(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """An optimizer is given more parameters: some were frozen until now, say."""
    REGISTERED.note()


def _joining(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Ranks may make different numbers of steps from now on: a step's number no longer names the same moment."""
    if not LEDGER.off:
        LEDGER.off, LEDGER.rows.writer = True, None
        STATE.note("tensors are not compared: with Join, ranks make different numbers of steps")


def _at_switch(recording: bool) -> None:
    if STATE.box is None:
        LEDGER.__init__()  # type: ignore[misc]  # a forked child is another rank, or none


def _before(optimizer: Any) -> None:
    """What the optimizer is given; before the very first step also what the ranks begin with."""
    if LEDGER.off or not STATE.recording or _is_within(optimizer):
        return
    _take_late()
    known = LEDGER.optimizers.get(id(optimizer))
    if known is None or known() is not optimizer:
        _meet(optimizer)
    elif REGISTERED.anew:
        _look_again(optimizer, max(STATE.live[_STEP], 0))
    given = LEDGER.given.get(id(optimizer))
    if given is None:
        return
    step = max(STATE.live[_STEP], 0) + 1
    due = given.due(step, step <= LEDGER.early_until and LEDGER.rows.bytes <= EARLY_BYTES)
    if due:
        _take(due, step)


def _is_within(optimizer: Any) -> bool:
    """Whether optimizers step inside backward passes, where ranks are not at the same point: looked at after them."""
    if LEDGER.step < 0 and STATE.backward_depth:
        LEDGER.within = weakref.ref(optimizer)
    if LEDGER.within is not None and id(optimizer) not in LEDGER.optimizers:
        _remember(optimizer)
    return LEDGER.within is not None


def _passed(roots: Any) -> None:
    """A backward pass is over, and with it the step of the optimizers that step inside it."""
    optimizer = LEDGER.within() if LEDGER.within is not None else None
    if LEDGER.off or optimizer is None:
        return
    if STATE.live[_OPTIMIZER_STEPS] != turns.counted() * len(LEDGER.optimizers):
        # Of a parameter that a pass has not used, nobody has stepped: ranks may number their steps in other ways.
        LEDGER.off, LEDGER.rows.writer = True, None
        STATE.note("tensors are not compared: not all optimizers that step inside backward passes step in each of them")
    elif LEDGER.step < 0:
        LEDGER.early_until = turns.counted() + layout.EARLY_STEPS
        _meet(optimizer)
    else:
        _look_after(optimizer)


def _meet(optimizer: Any) -> None:
    """Before the very first step: what the ranks begin with. Before another optimizer's: what there is anew."""
    _remember(optimizer)
    step = max(STATE.live[_STEP], 0)
    if LEDGER.step < 0:
        LEDGER.step = LEDGER.looked_at = step
        if _open():
            _look(optimizer)
            _look_at_states()  # there are some where they come from a checkpoint
            _take(LEDGER.rows.all, step)
            _take_at_start(step)
    else:
        _look_again(optimizer, step)
    _follow(optimizer)


def _look_again(optimizer: Any, step: int) -> None:
    """Find what there is anew, unless that was done too lately."""
    if LEDGER.rows.writer is None or step < _again_at():
        return
    LEDGER.looks, LEDGER.looked_at, LEDGER.early_until = LEDGER.looks + 1, step, step + layout.EARLY_STEPS
    known = {row.number for row in LEDGER.rows.all}
    _look(optimizer)
    if LEDGER.rows.bytes <= EARLY_BYTES and LEDGER.within is None:
        _take([row for row in LEDGER.rows.all if row.number not in known], step)  # what they begin with
    for one in [ref() for ref in LEDGER.optimizers.values()]:
        if one is not None:
            _follow(one)


def _again_at() -> int:
    return LEDGER.looked_at + (LOOK_AGAIN << LEDGER.looks)


def _follow(optimizer: Any) -> None:
    if LEDGER.rows.writer is not None and not LEDGER.alone and not STATE.backward_depth and LEDGER.within is None:
        LEDGER.given[id(optimizer)] = gradients.Given(optimizer, LEDGER.gradients)


def _after(optimizer: Any) -> None:
    if LEDGER.within is None:
        _look_after(optimizer)


def _look_after(optimizer: Any) -> None:
    """After each step of a training step's last optimizer."""
    ledger = LEDGER
    if ledger.rows.writer is None or not STATE.recording or turns.counted() == ledger.step:
        return
    step = ledger.step = turns.counted()
    if step == ledger.looked_at + 1:
        _look_at_states()
        ledger.owners.clear()
    due = _due(step)
    if due or ledger.pending:
        _collect()
        late = [] if ledger.within is not None or ledger.alone else [row for row in due if row.late]
        ledger.late = late, step
        _take([row for row in due if not row.late] if late else due, step)


def _take_at_start(step: int) -> None:
    """What there is before the first step, where `diagd run` was told to want that."""
    if STATE.settings.ledger_at_start and LEDGER.rows.writer is not None:
        _finish(sweeps.begin_at_start(LEDGER.rows.writer, step), inventory.optimizers(), later=False)


def _take_snapshot(snapshot: Snapshot) -> None:
    """Of all that there is after this step, on request."""
    optimizers = [one for ref in LEDGER.optimizers.values() if (one := ref()) is not None]
    late = LEDGER.within is None and not LEDGER.alone and any(row.late for row in LEDGER.rows.all)
    _finish(snapshot, optimizers, later=late)


def _finish(snapshot: Snapshot, optimizers: list[Any], later: bool) -> None:
    snapshot.take(optimizers, later)
    if LEDGER.alone and LEDGER.rows.writer is not None:  # nothing else was asked for, and this step may be the last
        sweeps.settle(LEDGER.rows.writer)


def _take_late() -> None:
    """What no wrapper makes the same: a script may do it after the step, by averaging weights or sending what it made.

    So it is read as the next step finds it, and counts for the one before.
    """
    rows, step = LEDGER.late
    if rows:
        LEDGER.late = [], step
        if sweeps.SWEEP.snapshot is not None:
            sweeps.SWEEP.snapshot.take_late()
        _take(rows, step)


def _following(step: int) -> int:
    """The next step at which there may be something to take."""
    # A pass is over when its step is done, and the next one under way.
    return _next(step) if LEDGER.within is None else _next(step - 1) + 1


def _next(step: int) -> int:
    ledger = LEDGER
    if ledger.off or ledger.rows.writer is None:
        return turns.NEVER
    if ledger.pending or ledger.late[0] or step < max(ledger.early_until, ledger.looked_at + 1):
        return step + 1
    anew = max(_again_at(), step) + 1 if REGISTERED.anew else turns.NEVER
    if ledger.alone:
        return min(anew, sweeps.serving(step))
    return min(anew, sweeps.following(step), ledger.rows.following(step))


def _due(step: int) -> list[Row]:
    """By the step's number, which is the same on every rank, and by how rare samples have to be on this one."""
    missing, is_small = [taken for _, taken, _ in LEDGER.pending], LEDGER.rows.bytes <= EARLY_BYTES
    if sweeps.after_step(LEDGER.rows.writer, step, LEDGER.rows.all, missing, is_small):
        return LEDGER.rows.all
    if step <= LEDGER.early_until and is_small:
        return LEDGER.rows.all
    return LEDGER.rows.due(step)


def _open() -> bool:
    distributed = sys.modules.get("torch.distributed")
    box = STATE.box
    LEDGER.alone = distributed is None or not distributed.is_initialized() or distributed.get_world_size() < 2
    if box is None or STATE.backward_depth:  # inside a backward pass ranks are not at the same point
        LEDGER.off = True
        return False
    try:
        if not LEDGER.alone:
            digest.load()
        LEDGER.rows.writer = LedgerWriter(box.path.with_suffix(layout.SUFFIX))
    except (OSError, ImportError) as error:
        LEDGER.off = True
        STATE.note(f"no ledger of tensors: {getattr(error, 'strerror', None) or error}")
    return LEDGER.rows.writer is not None


def _remember(optimizer: Any) -> None:
    known = LEDGER.optimizers
    if len(known) >= MANY_OPTIMIZERS:
        for number in [number for number, ref in known.items() if ref() is None]:
            del known[number]
            LEDGER.given.pop(number, None)
    known[id(optimizer)] = weakref.ref(optimizer)


def _look(optimizer: Any) -> None:
    """Find the tensors that are there, and write down those that are new."""
    REGISTERED.anew = False
    LEDGER.owners.clear()
    LEDGER.gradients.clear()
    survey = inventory.survey(optimizer)
    NAMED.take(survey)
    aliases.tell(survey.titled, sys._getframe())
    buffers = [(f.name, f.tensor()) for f in survey.found if f.kind == layout.Kind.BUFFER]
    dtypes.buffers([(name, tensor) for name, tensor in buffers if tensor is not None and dtypes.is_wanted(tensor)])
    for found in survey.found:
        tensor = found.tensor()
        if tensor is not None:
            LEDGER.rows.note(found, tensor, inventory.reader(found.module, found.leaf, found.kind))
            if found.kind == layout.Kind.PARAMETER and found.flags & Flag.OWNED:
                _look_at_owned(found, tensor)
        elif not found.is_empty():
            LEDGER.rows.leave_out(f"{int(found.kind)} {found.name}")


def _look_at_owned(found: inventory.Found, tensor: Any) -> None:
    """Prepare to follow what optimizers keep for a parameter, and the gradients that they are given."""
    number = id(found.module.__dict__["_parameters"][found.leaf])
    if found.placement.peers:
        LEDGER.owners[number] = states.Owner.of(found)
    if not LEDGER.alone and not found.flags & Flag.LOCAL:
        gradient = found._replace(kind=layout.Kind.GRADIENT)
        row = LEDGER.rows.note(gradient, tensor, gradients.reader(found.module, found.leaf))
        if row is not None:
            LEDGER.gradients[number] = row


def _look_at_states() -> None:
    """Write down what optimizers keep: right after their first step they have it."""
    for optimizer in [ref() for ref in LEDGER.optimizers.values()]:
        for found, tensor, read in states.of(optimizer, LEDGER.owners) if optimizer is not None else ():
            LEDGER.rows.note(found, tensor, read)


def _take(rows: list[Row], step: int) -> None:
    """Begin to digest these, and write down those that are there at once."""
    torch = sys.modules["torch"]
    if LEDGER.alone or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()):
        return
    held = [(row, tensor) for row in rows if (tensor := row.tensor()) is not None]
    if held:
        pending = digest.Pending([tensor for _, tensor in held])
        LEDGER.pending.append(([row for row, _ in held], step, pending))
    _collect()


def _collect() -> None:
    """Write down the digests that have arrived; the device is not waited for."""
    late = []
    for rows, step, pending in LEDGER.pending:
        if not pending.ready():
            late.append((rows, step, pending))
        elif LEDGER.rows.writer is not None:
            for row, bits in zip(rows, pending.bits(), strict=True):
                LEDGER.rows.writer.sample(row.number, step, bits)
    LEDGER.pending = late
