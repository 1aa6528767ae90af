"""What all that is slow is told with: the ranks, where they are, and why."""

from diagd.daemon.detectors import contention, looks, words
from diagd.daemon.detectors.finding import Cause, Finding, Severity
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.slowness import CURRENT_S

KEY = "pace"


def finding_of(
    scene: Scene, kind: str, ranks: tuple[int, ...], waiting: tuple[int, ...], said: str, cause: Cause, *,
    backward: bool = True, beyond: looks.Beyond = looks.LAST_ROUND,
) -> Finding:  # fmt: skip
    """The finding; `backward`: the backward pass may be where they are slow; `beyond`: which looks tell the place."""
    data = kind == "slow.data"
    others = tuple(r for r in scene.state.paces if r not in ranks)
    met = kind == "slow.collective"
    locations = tuple(place for r in ranks for place in looks.meetings(scene.state, r)) if met else ()
    locations = locations or tuple(
        place for r in ranks for place in looks.places(scene.state, r, data, others, backward=backward, beyond=beyond)
    )
    where = words.place_text(locations[0].frame) if locations else ""
    often = "most often " if any(looks.seen_often(scene.state, r) for r in ranks) else ""
    return Finding(
        kind=kind, severity=Severity.WARNING, ranks=ranks, waiting_ranks=waiting,
        names=("worker",) if cause.key == contention.WORKERS or (data and looks.in_worker(scene.state, ranks)) else (),
        summary=words.shortened(said + (f"; {often}in {where}" if where else "") + "."), causes=(cause,),
        locations=locations, step=scene.step(ranks), since_s=scene.state.now_s - CURRENT_S, goes_on=True, key=KEY,
    )  # fmt: skip


def because(ranks: tuple[int, ...], why: str) -> str:
    """A reason at the end of what is said of these ranks; reasons speak of one."""
    if len(ranks) > 1:
        why = f" {why}".replace(" it waits", " they wait").replace(" its ", " their ").lstrip()
    return f"because {why}"
