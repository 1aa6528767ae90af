"""Whether what ranks did before, which tells who of them is out of order, is still to come."""

from collections.abc import Mapping

from diagd.daemon.detectors.position import Wait
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.model import Detail

HISTORY_S = 8.0  # by then it has come, or will not come
MANY = 16  # operations


def is_coming(scene: Scene, waits: Mapping[int, Wait]) -> bool:
    """Whether what these ranks did before, which tells who is out of order, has been asked for and is not here yet."""
    state = scene.state
    if state.from_dumps or state.ended_s is not None or scene.failed(tuple(waits)):
        return False
    if min(scene.age_s(wait) for wait in waits.values()) >= HISTORY_S:
        return False
    counts, groups = state.columns.operations, {wait.op.group for wait in waits.values()}
    return any(
        not state.detail(r).history or (len(groups) > 1 and _recorder_is_coming(state.detail(r)))
        for r in waits if r < len(counts) and int(counts[r]) > MANY
    )  # fmt: skip


def _recorder_is_coming(detail: Detail) -> bool:
    """Whether its flight recorder is still to be read, as far as it has one."""
    return not detail.recorder and not any("no flight recorder" in note for note in detail.notes)
