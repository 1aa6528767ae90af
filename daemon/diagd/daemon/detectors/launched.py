"""Rendezvous that cannot end, as what ranks ask for is not what their launcher has started."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence
from diagd.daemon.detectors.scene import Scene


@dataclass(frozen=True, slots=True)
class Claimed:
    """Ranks that join under the number of another one."""

    culprits: tuple[int, ...]
    cause: Cause


def never_started(scene: Scene, joined: Collection[int], missing: Collection[int]) -> Cause | None:
    """Why the missing will never come; None where the launcher has started so many, or that is not known."""
    state = scene.state
    told = {rank: pair for rank in sorted(joined) if (pair := _numbers(scene, rank, "init/world")) is not None}
    heard = any(r in state.details or r in state.candidates for r in missing)
    rank, (asked, launched) = next(iter(told.items()), (-1, (0, 0)))
    if heard or not 0 < launched < asked or any(r < launched for r in missing):
        return None
    text = f"the script asks for {asked} ranks (world_size), and the launcher has started {launched}"
    text += f": {words.ranks_text(missing)} will never come"
    seen = f"init_process_group is to make {asked} ranks; the launcher gave WORLD_SIZE={launched}"
    return Cause("not_started", text, 0.95, Basis.OBSERVATION, (Evidence(seen, "probe", rank),))


def claimed_twice(scene: Scene, joined: Collection[int]) -> Claimed | None:
    """Two processes that join as the same rank, so that another one's place stays empty; None where there are none."""
    asked = {rank: _numbers(scene, rank, "init/rank") for rank in sorted(joined)}
    by_number: dict[int, list[int]] = defaultdict(list)
    for rank, pair in asked.items():
        by_number[pair[0] if pair is not None else rank].append(rank)
    culprits = tuple(
        rank for number, ranks in sorted(by_number.items()) if len(ranks) > 1 for rank in ranks if rank != number
    )
    if not culprits:
        return None
    names = [f"rank {rank} joins as rank {pair[0]}" for rank in culprits if (pair := asked[rank]) is not None]
    text = f"{', '.join(names[:3])}{', …' if len(names) > 3 else ''}, which is another process's number"
    text += f": nobody joins as {words.ranks_text(culprits)}"
    seen = tuple(
        Evidence(f"init_process_group is given rank={pair[0]}; the launcher gave RANK={pair[1]}", "probe", rank)
        for rank in culprits[:4]
        if (pair := asked[rank]) is not None
    )
    return Claimed(culprits, Cause("same_rank", text, 0.95, Basis.OBSERVATION, seen))


def _numbers(scene: Scene, rank: int, name: str) -> tuple[int, int] | None:
    """What was asked for and what was launched."""
    fact = scene.state.signals.fact(rank, name)
    asked, _, launched = fact[1].partition(" ") if fact is not None else ("", "", "")
    return (int(asked), int(launched)) if asked.isdecimal() and launched.isdecimal() else None
