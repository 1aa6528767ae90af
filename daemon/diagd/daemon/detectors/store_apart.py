"""Ranks that wait at one line, each for a key of its own: one fault, and often one key that they spell differently."""

import re
from collections.abc import Sequence

from diagd.daemon.detectors import store_keys, words
from diagd.daemon.detectors.finding import Evidence
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.model import Operation

# A hash, an address, a time: letters and digits together, or more digits than a rank's number or a step has.
_OPAQUE = re.compile(
    r"(?<![0-9A-Za-z])-?(?:(?=[0-9]*[A-Fa-f])(?=[A-Fa-f]*[0-9])[0-9A-Fa-f]{5,}|[0-9]{9,})(?:-[0-9A-Fa-f]+)*(?![0-9A-Za-z])"
)
_NUMBER = re.compile(r"[0-9]+")
ALIKE = 2  # keys, at least


def merged(scene: Scene, groups: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Groups of ranks that wait for keys; as one those that wait at one line for keys alike, which nobody owns."""
    alike: dict[tuple[object, ...], list[int]] = {}
    for ranks in groups:
        alike.setdefault(_likeness(scene, ranks) or ranks, []).extend(ranks)
    return [tuple(sorted(ranks)) for ranks in alike.values()]


def _likeness(scene: Scene, ranks: tuple[int, ...]) -> tuple[object, ...]:
    wait = scene.graph.wait(ranks[0])
    keys = store_keys.unset(scene, wait.op) if wait is not None and wait.op.name != "STORE_JOIN" else ()
    if wait is None or wait.op.site is None or not keys:
        return ()
    if any(store_keys.owner(scene, key, ranks) is not None for key in keys):
        return ()
    return wait.op.site.file, wait.op.site.line, tuple(_NUMBER.sub("#", _shape(key)) for key in keys)


def spelled_apart(scene: Scene, ops: Sequence[Operation]) -> tuple[Evidence, ...]:
    """Who has set or waits for one key in another spelling: the same but for something that no rank chose.

    Empty where the keys differ otherwise, as by the ranks' numbers.
    """
    waited = {key for op in ops for key in store_keys.unset(scene, op)}
    shapes = {_shape(key) for key in waited}
    if len(shapes) != 1 or "*" not in (shape := shapes.pop()):
        return ()
    set_ = [(rank, op) for rank, op in store_keys.sets(scene) if _shape(op.detail) == shape and op.detail not in waited]
    if len(waited) + len({op.detail for _, op in set_}) < ALIKE:
        return ()
    return tuple(
        Evidence(f"set {op.detail!r}" + (f" in {words.place_text(op.site)}" if op.site else ""), "probe", rank)
        for rank, op in dict(set_).items()
    )[:ALIKE] or (Evidence(f"{len(waited)} spellings of {shape!r} are waited for", "probe"),)


def _shape(key: str) -> str:
    """The key with what is opaque in it as a star."""
    return _OPAQUE.sub("*", key)
