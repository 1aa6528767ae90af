"""Ranks that a rendezvous waits for and that nobody has started: the script asks for more than its launcher made."""

from collections.abc import Collection

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence
from diagd.daemon.detectors.scene import Scene


def never_started(scene: Scene, joined: Collection[int], missing: Collection[int]) -> Cause | None:
    """Why the missing will never come; None where the launcher has started so many, or that is not known."""
    state = scene.state
    told = {rank: fact[1] for rank in joined if (fact := state.signals.fact(rank, "init/world")) is not None}
    rank, (asked, launched) = next(((r, _numbers(text)) for r, text in sorted(told.items())), (-1, (0, 0)))
    heard = any(r in state.details or r in state.candidates for r in missing)
    if heard or not 0 < launched < asked or any(r < launched for r in missing):
        return None
    text = f"the script asks for {asked} ranks (world_size), and the launcher has started {launched}"
    text += f": {words.ranks_text(missing)} will never come"
    seen = Evidence(
        f"init_process_group is to make {asked} ranks; the launcher gave WORLD_SIZE={launched}", "probe", rank
    )
    return Cause("not_started", text, 0.95, Basis.OBSERVATION, (seen,))


def _numbers(text: str) -> tuple[int, int]:
    asked, _, launched = text.partition(" ")
    return (int(asked), int(launched)) if asked.isdecimal() and launched.isdecimal() else (0, 0)
