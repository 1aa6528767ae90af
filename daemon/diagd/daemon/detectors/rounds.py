"""Rounds of operations that repeat from step to step: who has left one out this time.

The rank that waits for what is missing goes on as always; the order that its partner has kept in each round before
tells which of the two left it. Where all others have left theirs too, the round was meant to be another one.
"""

from collections.abc import Mapping, Sequence

from diagd.daemon.detectors.history import RECV, SEND
from diagd.daemon.detectors.position import Wait
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.model import Detail

ROUNDS = 6  # that are alike: so often, a number of micro-batches that varies is not the same by chance
ROUNDS_OF_ONE = 50  # of a single operation each: a long row of sends is no more than a part of a round
LATELY = 256  # operations of which at least half are alike: what repeats for less may be a part of a longer round
LATEST = 2  # rounds within which the order was left
Key = tuple[str, int]  # SEND or RECV, the partner; a collective, its elements


def left_out(scene: Scene, waits: Mapping[int, Wait]) -> tuple[int, ...]:
    """Of ranks on a circle those that have left the order of their rounds at what another one on it waits for."""
    departed = _departed(scene)
    wanted = {(w.op.peer, RECV if w.op.name == SEND else SEND, rank) for rank, w in waits.items() if w.op.p2p}
    found = tuple(sorted(rank for rank, (name, peer) in departed.items() if (rank, name, peer) in wanted))
    return found if len(found) < len(waits) and set(found) == set(departed) else ()


def kept_on(scene: Scene, waits: Mapping[int, Wait]) -> tuple[int, ...]:
    """Of ranks on a circle the one that goes on as always, where all others of the job have left their order."""
    departed = _departed(scene)
    rest = set(scene.state.details) - set(departed)
    return tuple(rest) if len(rest) == 1 and rest < set(waits) and len(departed) > 1 else ()


def _departed(scene: Scene) -> dict[int, Key]:
    """By rank, what it has left out; of a rank that is in no wait that is not known."""
    found: dict[int, Key] = {}
    for rank, detail in scene.state.details.items():
        wait = scene.graph.wait(rank)
        if wait is not None and (key := missing(_keys(detail, wait))) is not None:
            found[rank] = key
    return found


def _keys(detail: Detail, wait: Wait) -> list[Key]:
    done = (op for op in detail.history if op.p2p and op.returned_s is not None and not op.failed)
    keys = [(op.name, op.peer) for op in sorted(done, key=lambda op: op.entered_s)]
    return [*keys, (wait.op.name, wait.op.peer)] if wait.op.p2p else keys


def missing(keys: Sequence[Key]) -> Key | None:
    """What was due at the first place, in the latest rounds, at which a rank's order is not that of the rounds before.

    Args:
        keys: The rank's sends and receives, oldest first.
    """
    count = len(keys)
    for length in range(1, count // (ROUNDS + LATEST) + 1):
        settled = count - LATEST * length
        if _is_settled(keys, length, settled):
            return next((keys[i - length] for i in range(settled, count) if keys[i] != keys[i - length]), None)
    return None


def due(keys: Sequence[Key]) -> Key | None:
    """What comes next in rounds that are alike up to now; None where there are none."""
    count = len(keys)
    for length in range(1, count // ROUNDS + 1):
        if _is_settled(keys, length, count):
            return keys[count - length]
    return None


def _is_settled(keys: Sequence[Key], length: int, end: int) -> bool:
    """Whether rounds of that length are alike up to `end`: often enough, and for most of what was done lately."""
    alike, kinds = end - _alike_since(keys, length, end), len(set(keys[end - length : end]))
    return alike >= (ROUNDS if kinds > 1 else ROUNDS_OF_ONE) * length and 2 * alike >= min(end, LATELY)


def _alike_since(keys: Sequence[Key], length: int, end: int) -> int:
    """The first place from which on the keys repeat after so many, up to `end`."""
    place = end - 1
    while place >= length and keys[place] == keys[place - length]:
        place -= 1
    return place + 1 - length if place >= length else 0
