"""All detectors, in order, and what remains of their findings when those that explain each other are folded."""

from collections.abc import Callable, Iterable, Iterator

from diagd.daemon.detectors import (
    averages,
    casting,
    checkpoint,
    circle,
    counters,
    data,
    divergence,
    drifted,
    dtypes,
    ended,
    guarded,
    half_moments,
    memory_rules,
    mismatch,
    modes,
    outside,
    overflow,
    parted,
    precision,
    scaling,
    schedules,
    sharing,
    shuffles,
    silent,
    slow,
    store_apart,
    store_keys,
    storing,
    threads,
    underflow,
    unscaled,
    waiting,
)
from diagd.daemon.detectors.aliases import aliased
from diagd.daemon.detectors.consequences import without_consequences
from diagd.daemon.detectors.deaths import first_deaths
from diagd.daemon.detectors.finding import Finding, Severity
from diagd.daemon.detectors.folding import deepest, together
from diagd.daemon.detectors.graph import sinks
from diagd.daemon.detectors.group_names import with_members
from diagd.daemon.detectors.numerics.rules import NUMERICS
from diagd.daemon.detectors.position import is_stopped
from diagd.daemon.detectors.scene import Scene, scene_of
from diagd.daemon.detectors.training.rules import TRAINING
from diagd.daemon.detectors.training.sites import located
from diagd.daemon.detectors.victims import with_victims
from diagd.daemon.state.job import JobState

CALM_S, CALM_TIMES = 60.0, 2.0  # into a job of which nothing was said: its training is looked at so much more seldom

Detector = Callable[[Scene], Iterable[Finding]]
Failed = Callable[[Exception], None]


def detect(state: JobState, failed: Failed | None = None) -> tuple[Finding, ...]:
    """All that is wrong with the job at the state's time, deepest causes only.

    Args:
        failed: Told of a detector that fails; the others judge all the same. Without it the error is the caller's.
    """
    if not state.details and not state.candidates:
        return ()
    scene = scene_of(state)
    found = _found(PROMPT, scene, failed) + _of_training(scene, failed)
    for guess in LAST_RESORTS:
        # What the job goes on with does not say why it fell.
        if not any(f.severity == Severity.CRITICAL and not f.goes_on for f in found):
            found += _found((guess,), scene, failed)
    told = deepest(together(without_consequences(found)))
    whole = (with_victims(scene, sharing.with_sharers(scene, threads.with_fallen(scene, one))) for one in told)
    return tuple(with_members(state, one) for one in whole)


def _found(detectors: Iterable[Detector], scene: Scene, failed: Failed | None) -> list[Finding]:
    found: list[Finding] = []
    for detector in detectors:
        try:
            found += list(detector(scene))
        except Exception as exc:
            if failed is None:
                raise
            failed(exc)
    return found


def _of_training(scene: Scene, failed: Failed | None) -> list[Finding]:
    """What is wrong in what training computes; while the job runs, it is not looked at as often as its progress."""
    state = scene.state
    live = state.ended_s is None and not any(state.status(r).gone for r in state.ranks())
    if live and state.looked is not None and 0 <= state.now_s - state.looked[0] < _again_s(state):
        return list(state.looked[1])
    found = [aliased(state, located(scene, finding)) for finding in _found(OF_TRAINING, scene, failed)]
    state.looked = state.now_s, found
    return list(found)


def _again_s(state: JobState) -> float:
    """From one look at what training computes to the next: longer in a job of which nothing has been said so far."""
    calm = state.looked is not None and not state.looked[1] and state.now_s - state.started_s > CALM_S
    return state.look_again_s * (CALM_TIMES if calm else 1.0)


def _roots(scene: Scene) -> Iterator[Finding]:
    """What each end of the wait-for graph says."""
    ended_ranks = {d.rank for d in first_deaths(scene)}
    keys: dict[str, list[int]] = {}
    for component in sinks(scene.graph.edges):
        if len(component) > 1:
            found = circle.circle(scene, component)
        elif component[0] in ended_ranks:
            continue
        else:
            found = _single(scene, component[0], keys)
        if found is not None:
            yield found
    for ranks in store_apart.merged(scene, store_keys.not_to_come(scene, store_keys.grouped(scene, keys))):
        if (found := storing.store_wait(scene, ranks)) is not None:
            yield found
    yield from _creations(scene)


def _single(scene: Scene, rank: int, keys: dict[str, list[int]]) -> Finding | None:
    wait = scene.graph.wait(rank)
    if wait is None or is_stopped(scene.state, rank):
        return _not_waiting(scene, rank)
    if wait.kind == "store":
        keys.setdefault(wait.op.detail, []).append(rank)
        return None
    if wait.kind == "creation":
        return None if _left_out(scene) else waiting.creation(scene, rank)
    return waiting.all_arrived(scene, wait)


def _not_waiting(scene: Scene, rank: int) -> Finding | None:
    if rank not in scene.state.details:
        return None  # nothing is known of it: whoever waits for its joining says so
    if scene.state.status(rank).gone and not scene.failed(scene.graph.waiting_for((rank,))):
        return None
    return outside.outside(scene, rank)


def _creations(scene: Scene) -> Iterator[Finding]:
    """Creations that wait for ranks outside: the wait is on the creation before all else."""
    for rank in _left_out(scene)[:1]:
        found = waiting.creation(scene, rank)
        if found is not None:
            yield found


def _left_out(scene: Scene) -> list[int]:
    """The ranks in a creation that others are known not to have joined, those in the first one first."""
    waits = {rank: scene.graph.wait(rank) for rank in sorted(scene.graph.waits)}
    left = [r for r, w in waits.items() if w is not None and w.kind == "creation" and scene.graph.edges[r]]
    return sorted(left, key=lambda r: scene.state.detail(r).group_count)


# Of progress.
PROMPT: tuple[Detector, ...] = (
    ended.ended,
    mismatch.mismatches,
    silent.silent,
    drifted.drifted,
    _roots,
    slow.slow,
)
# Of what is computed.
OF_TRAINING: tuple[Detector, ...] = (
    precision.stale_casts,
    casting.autocast_off,
    overflow.overflow,
    underflow.underflow,
    unscaled.unscaled,
    counters.stuck,
    counters.standing,
    averages.averages,
    scaling.skipped_alone,
    guarded.guarded,
    half_moments.half_moments,
    dtypes.dtype_mismatch,
    divergence.divergence,
    modes.left_evaluating,
    schedules.stepped_by_some,
    data.same_data,
    data.same_workers,
    data.same_order,
    shuffles.other_orders,
    checkpoint.checkpoint,
    memory_rules.memory,
    *NUMERICS,
    *TRAINING,
)
# Asked, in this order, only where nothing critical was found that would have ended the job.
LAST_RESORTS: tuple[Detector, ...] = (parted.parted, ended.unexplained)
