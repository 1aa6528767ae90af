"""Half precision that runs out of range: float16 ends at 65504, and a gradient scaler cannot help a forward pass.

A scaler that leaves steps out at first, to find its level, is healthy: from its usual start of 65536 it is at 1 after
16 of them.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.signals import Series, SignalBook

LARGEST = 65504.0  # of float16
NEAR = 0.5 * LARGEST
RISES = 1.15  # from one look to the next, and so at three in a row
IN_A_ROW = 20  # steps left out
WINDOW, PART = 40, 0.4  # share of the newest steps that were left out
LOW_SCALE, LOW_WINDOW, LOW_TIMES = 1.0, 8, 3  # a scale below one that goes on falling
LEAST_SCALE = 2.0**-14  # no loss is scaled by less to any use: float16 begins there
FINITE = 2  # looks, before the first inf
ABSMAX = "forward/absmax/"


def overflow(scene: Scene) -> Iterator[Finding]:
    """One finding for the ranks on which values were seen to pass the range, else one for the scaler."""
    signals = scene.state.signals
    saturated = {rank: said for rank in sorted(scene.state.details) if (said := _saturated(signals, rank))}
    scalers = sorted({*signals.ranks("scaler/skipped"), *signals.ranks("scaler/scale")})
    scaled = {rank: told for rank in scalers if (told := _scaler(signals, rank))}
    if saturated:
        yield _of_values(signals, saturated, scaled)
    elif scaled:
        yield _of_scaler(signals, scaled)
    else:
        yield from _near(signals, scene)


def _saturated(signals: SignalBook, rank: int) -> tuple[str, str, int] | None:
    """(what was seen, module, step)."""
    value, at = signals.series(rank, "overflow/value"), signals.fact(rank, "overflow/at")
    if value is not None and len(value) and at is not None:
        operation, _, behind = at[1].split("\t")
        module = _common(behind.split(","))
        size, step = float(value.values[0]), int(value.steps[0])
        what = _OPERATIONS.get(operation, operation)
        what = what if operation in _WHOLE else f"the result of {what}"
        said = f"{what} is inf" if np.isinf(size) else f"{what} comes to {size:.0f}, and float16 ends at 65504"
        return said, module, step
    for name in signals.names(rank):
        series = signals.series(rank, name) if name.startswith(ABSMAX) else None
        if series is not None and (first := _breaks_off(series.values)):
            said = f"an output has become inf, after {series.values[first - 1]:.0f} in step {series.steps[first - 1]}"
            return said, name.removeprefix(ABSMAX), int(series.steps[first])
    return None


def _breaks_off(values: NDArray[np.float64]) -> int:
    """Where it first was inf, if it is now and was a number before; 0 where not: masks are so from the start."""
    if not len(values) or not np.isinf(values[-1]):
        return 0
    first = int(np.argmax(~np.isfinite(values)))
    return first if first >= FINITE and np.isinf(values[first]) else 0


_WHOLE = ("Rsqrt",)  # its argument, not its result
_OPERATIONS = {
    "Bmm": "a batched matrix product", "Mm": "a matrix product", "Addmm": "a matrix product with a bias",
    "Baddbmm": "a batched matrix product", "Rsqrt": "the mean of squares that a norm divides by",
}  # fmt: skip


def _common(names: list[str]) -> str:
    """The module of these parameters; of several modules what their names begin with."""
    paths = [name.split(".")[:-1] or [name] for name in names]
    shared = []
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared) or names[0]


def _of_values(
    signals: SignalBook, saturated: dict[int, tuple[str, str, int]], scaled: dict[int, tuple[str, int, bool]]
) -> Finding:
    ranks = tuple(saturated)
    first = min(saturated, key=lambda rank: saturated[rank][2])
    said, module, step = saturated[first]
    evidence = [Evidence(f"{m}: {s}", "probe", rank, at) for rank, (s, m, at) in saturated.items()][:4]
    evidence += [Evidence(s, "probe", rank, at) for rank, (s, at, _) in scaled.items()][:2]
    text = f"float16 overflows in {module or 'the forward pass'}: {said}"
    names = (*([module] if module else []), "float16", "inf", *(("grad_scaler",) if scaled else ()))
    return _finding(ranks, "saturated", f"{text}, in step {step}", evidence, Severity.CRITICAL, step, names)


def _scaler(signals: SignalBook, rank: int) -> tuple[str, int, bool] | None:
    """(what was seen, step, whether nothing is trained any more)."""
    skipped, scale = signals.series(rank, "scaler/skipped"), signals.series(rank, "scaler/scale")
    if skipped is None or not len(skipped):
        return _scale_alone(scale) if scale is not None and skipped is None else None
    values, step = skipped.values, int(skipped.steps[-1])
    if not values.any() and scale is not None:  # fused optimizers leave steps out by themselves
        values = (np.diff(scale.values) < 0).astype(np.float64)
    trained = np.flatnonzero(values == 0)
    in_a_row = len(values) - (int(trained[-1]) + 1 if len(trained) else 0)
    now = float(scale.values[-1]) if scale is not None and len(scale) else np.inf
    level = f", and the scale is {now:.3g}" if np.isfinite(now) else ""
    if in_a_row >= IN_A_ROW:
        return f"the gradient scaler has left out {in_a_row} steps in a row{level}", step, True
    low = now < LOW_SCALE and values[-LOW_WINDOW:].sum() >= LOW_TIMES
    window = LOW_WINDOW if low else WINDOW
    if low or (len(values) >= WINDOW and values[-WINDOW:].mean() >= PART):
        part = f"{int(values[-window:].sum())} of the last {window} steps"
        return f"the gradient scaler has left out {part}{level}", step, low
    return None


def _scale_alone(scale: Series) -> tuple[str, int, bool] | None:
    """The same from the scale that a log tells: it halves with each step that is left out."""
    values = scale.values[np.isfinite(scale.values)]
    if len(values) < LOW_WINDOW or not 0 < values[-1] < LOW_SCALE or values[-1] >= values.max():
        return None
    falls = np.diff(values[-LOW_WINDOW:]) < 0
    if falls.sum() < LOW_TIMES and values[-1] > LEAST_SCALE:
        return None
    return (
        f"the gradient scaler's scale has fallen from {values.max():.3g} to {values[-1]:.3g}",
        int(scale.steps[-1]),
        True,
    )


def _of_scaler(signals: SignalBook, scaled: dict[int, tuple[str, int, bool]]) -> Finding:
    ranks = tuple(scaled)
    said, step, lost = scaled[ranks[0]]
    evidence = [Evidence(s, "probe", rank, at) for rank, (s, at, _) in scaled.items()][:4]
    text = f"{said}: gradients are inf or NaN {'at any scale' if lost else 'again and again'}"
    severity = Severity.CRITICAL if lost else Severity.WARNING
    return _finding(ranks, "scaler", text, evidence, severity, step, ("grad_scaler", "scale", "float16"))


def _near(signals: SignalBook, scene: Scene) -> Iterator[Finding]:
    """Outputs in float16 that rise towards its end."""
    found: dict[int, list[str]] = {}
    for rank in sorted(scene.state.details):
        for name in signals.names(rank):
            series = signals.series(rank, name) if name.startswith(ABSMAX) else None
            if series is not None and len(series) >= 3 and _rises(series.values[-3:].tolist()):
                found.setdefault(rank, []).append(name.removeprefix(ABSMAX))
    if not found:
        return
    ranks, rank = tuple(found), next(iter(found))
    modules = sorted(found[rank], key=lambda name: -_newest(signals, rank, name))
    top = _newest(signals, rank, modules[0])
    text = f"outputs of {modules[0]} in float16 rise towards its end of 65504, and have come to {top:.0f}"
    series = signals.series(rank, ABSMAX + modules[0])
    step = int(series.steps[-1]) if series is not None else None
    evidence = [Evidence(text, "probe", rank, step)]
    yield _finding(ranks, "saturated", text, evidence, Severity.WARNING, step, (*modules[:8], "float16"))


def _newest(signals: SignalBook, rank: int, module: str) -> float:
    series = signals.series(rank, ABSMAX + module)
    return float(series.values[-1]) if series is not None else 0.0


def _rises(values: list[float]) -> bool:
    first, second, third = values
    return NEAR <= third < np.inf and third >= RISES * second >= RISES * RISES * first


def _finding(
    ranks: tuple[int, ...], key: str, text: str, evidence: list[Evidence], severity: Severity, step: int | None,
    names: tuple[str, ...],
) -> Finding:  # fmt: skip
    cause = Cause(key, text, 0.9, Basis.OBSERVATION, tuple(evidence))
    said = words.shortened(f"{words.ranks_text(ranks)}: {text}.")
    return Finding("precision.overflow", severity, ranks, said, (cause,), names=names, step=step, sure=True,
                   goes_on=True, key="overflow")  # fmt: skip
