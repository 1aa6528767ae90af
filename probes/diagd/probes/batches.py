"""What a DataLoader gives: whether its workers repeat each other, and by which sampler it chooses.

    data/loaded          fingerprint (52 bits) of the first batch that a training step fetches
    data/worker_groups   turns in which each worker has given one batch, as far as they were looked at
    data/worker_repeats  of those, turns in which all gave the same batch, and another than in the turn before
    data/sampler         fact: the sampler's class, and of a DistributedSampler its rank and number of replicas
    data/part            fact: "0 of 4", which part of one dataset a sampler gives this rank; "0 of 4 accelerate"
    data/shuffle         fact: "rank replicas samples seed epoch" of a DistributedSampler that shuffles
    data/same_order      fact: a shuffling sampler that was asked for another epoch without being told so

Both are of training alone: no gradients, or a model that was told to evaluate, and nothing is looked at.
"""

import sys
import threading
import weakref
from typing import Any

from diagd.probes import cost, fingerprint, inputs, randomness, reading, rows
from diagd.probes.box.layout import Live
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

TURNS = 12  # of an epoch's beginning are looked at
_STEP = int(Live.STEP)


class _Turns:
    """The batches of one iterator's workers, in the order in which the workers take turns."""

    def __init__(self) -> None:
        self.turn: list[int] = []
        self.before: int | None = None


_turns: "weakref.WeakKeyDictionary[Any, _Turns]" = weakref.WeakKeyDictionary()
_epochs: "weakref.WeakKeyDictionary[Any, tuple[int, int]]" = weakref.WeakKeyDictionary()  # epoch, times
_totals = {"groups": 0, "repeats": 0}
_looked = {"step": -1}


def fetched(iterator: Any, batch: Any) -> None:
    """An iterator has given a batch."""
    live = STATE.live
    if live is None or not STATE.is_rank or threading.get_ident() != STATE.trainer:
        return
    randomness.at_fetch()
    if not sys.modules["torch"].is_grad_enabled():
        return
    number, step = getattr(iterator, "_num_yielded", 0), max(live[_STEP], 0)
    in_turn = 0 < number <= TURNS * getattr(iterator, "_num_workers", 0) and iterator._num_workers > 1
    wanted = step != _looked["step"] and not STATE.evaluating
    due = wanted and (inputs.is_due(step) or rows.is_due(step))
    if in_turn or due or number == 2:
        began = cost.begin()
        _look(iterator, batch, number, step if due else -1, in_turn)
        cost.count(began)


def _look(iterator: Any, batch: Any, number: int, step: int, in_turn: bool) -> None:
    if in_turn:
        fingerprint.take(batch, lambda value: _in_turn(iterator, number, value))
    if number == 2 and not STATE.evaluating:  # at the first batch it is not yet known whether it is trained on
        _look_at_sampler(iterator)
    if step >= 0:
        _looked["step"] = step
        rows.look(batch, step)
        if inputs.is_due(step):
            fingerprint.take(batch, lambda value: SIGNALS.record("data/loaded", value, step + 1))
            reading.arrived(iterator, number, step + 1)


def _in_turn(iterator: Any, number: int, value: int) -> None:
    """Workers give batches in turn, the first one first."""
    turns = _turns.setdefault(iterator, _Turns())
    turns.turn.append(value)
    if number % iterator._num_workers:
        return
    turn, turns.turn = turns.turn, []
    if len(turn) != iterator._num_workers:
        return
    _totals["groups"] += 1
    _totals["repeats"] += len(set(turn)) == 1 and turn[0] != turns.before
    turns.before = turn[0]
    SIGNALS.record("data/worker_groups", _totals["groups"])
    SIGNALS.record("data/worker_repeats", _totals["repeats"])


def _look_at_sampler(iterator: Any) -> None:
    sampler = iterator.__dict__.get("_index_sampler")
    while sampler is not None:
        _note_part(sampler.__dict__, "process_index", "num_processes", type(sampler).__module__.partition(".")[0])
        inner = sampler.__dict__.get("sampler") or sampler.__dict__.get("batch_sampler")
        if inner is None or not hasattr(inner, "__dict__"):
            break
        sampler = inner
    kinds = [base.__name__ for base in type(sampler).__mro__]
    text = kinds[0]
    if "DistributedSampler" in kinds:
        mine = sampler.__dict__
        text += f" rank {mine.get('rank')} of {mine.get('num_replicas')}"
        _note_part(mine, "rank", "num_replicas")
        if mine.get("shuffle") and type(mine.get("epoch")) is int:
            _note_epoch(sampler, kinds[0], mine["epoch"])
            told = [mine.get(name) for name in ("rank", "num_replicas", "total_size", "seed", "epoch")]
            if all(type(number) is int for number in told):
                SIGNALS.fact("data/shuffle", " ".join(map(str, told)))
    SIGNALS.fact("data/sampler", text)


def _note_part(held: dict[str, Any], index: str, count: str, whose: str = "") -> None:
    which, of = held.get(index), held.get(count)
    if type(which) is int and type(of) is int and of > 1:
        SIGNALS.fact("data/part", f"{which} of {of} {whose}".rstrip())


def _note_epoch(sampler: Any, kind: str, epoch: int) -> None:
    before, times = _epochs.get(sampler, (epoch, 0))
    times = times + 1 if before == epoch else 1
    _epochs[sampler] = epoch, times
    if times > 1:
        SIGNALS.fact("data/same_order", f"{kind}, {times} passes with epoch {epoch}")
