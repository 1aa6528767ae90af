"""Updates that are too small for the dtype of the weights: rounded away, while nothing tells of it.

An update below half the distance to the next number of the dtype changes nothing (IEEE 754, round to nearest): at 1.0
in bfloat16 that is 0.002 downwards and 0.004 upwards. That parameters are kept in half precision is no fault: only what
was seen to be lost is told, over LEAST steps and more, at a learning rate that is neither warming up nor fading out.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.signals import Series, SignalBook

LOOKS = 2  # in a row
ALL = 0.99  # share of a parameter's elements: it stands still
MOST = 0.6  # share that stands still, and share of the updates that are lost
# Of small trained parts of a frozen model, which are meant to be in full precision as they cost little.
ADAPTER_STILL, ADAPTER_LOST = 0.2, 0.5
HALF = 0.5  # of the parameters; of the largest learning rate so far, below which it is fading out
RISE = 1.02  # a learning rate that has grown so much within LEAST steps is warming up
LEAST = 24
LUCKY = 0.01  # of the elements: the optimizer does not simply round


@dataclass(slots=True)
class _Lost:
    """What one rank loses, parameters by name."""

    still: list[str] = field(default_factory=list)
    most: list[str] = field(default_factory=list)
    adapters: list[str] = field(default_factory=list)
    flushed: list[str] = field(default_factory=list)


def underflow(scene: Scene) -> Iterator[Finding]:
    """One finding for each way in which updates are lost, of all ranks on which they are."""
    signals = scene.state.signals
    lost = {rank: _lost(signals, rank) for rank in signals.ranks("roundoff/lr")}
    for key, build in (("adapter", _adapter), ("update", _update), ("moments", _moments)):
        ranks = tuple(rank for rank in sorted(lost) if _of(lost[rank], key))
        if ranks:
            yield build(signals, ranks, [lost[rank] for rank in ranks])


def _of(lost: _Lost, key: str) -> bool:
    return bool({"adapter": lost.adapters, "update": lost.still or lost.most, "moments": lost.flushed}[key])


def _lost(signals: SignalBook, rank: int) -> _Lost:
    found = _Lost()
    prefix = "roundoff/flushed/"
    names = [name.removeprefix(prefix) for name in signals.names(rank) if name.startswith(prefix)]
    found.flushed = [name for name in names if _least(signals, rank, prefix + name) >= HALF]
    if not _steady(signals.series(rank, "roundoff/lr")) or _lucky(signals, rank):
        return found
    shares = {name: (_still(signals, rank, name), _least(signals, rank, f"roundoff/lost/{name}")) for name in names}
    adapters = set((signals.fact(rank, "roundoff/adapters") or (0, ""))[1].split(","))
    found.adapters = [
        n for n, (still, gone) in shares.items() if n in adapters and still >= ADAPTER_STILL and gone >= ADAPTER_LOST
    ]
    if len(found.adapters) < HALF * len(adapters):
        found.adapters = []
    rest = {name: both for name, both in shares.items() if name not in found.adapters}
    found.still = [
        n for n, (still, gone) in rest.items() if still >= ALL and (gone >= MOST or _unknown(signals, rank, n))
    ]
    found.most = [n for n, (still, gone) in rest.items() if n not in found.still and still >= MOST and gone >= MOST]
    if len(found.most) + len(found.still) < HALF * _last(signals.series(rank, "roundoff/parameters")):
        found.most = []  # some may be about to settle, or have large weights
    return found


def _still(signals: SignalBook, rank: int, name: str) -> float:
    return _least(signals, rank, f"roundoff/still/{name}")


def _unknown(signals: SignalBook, rank: int, name: str) -> bool:
    """Whether the optimizer is not one whose updates can be told."""
    return _last(signals.series(rank, f"roundoff/size/{name}")) == 0


def _least(signals: SignalBook, rank: int, name: str) -> float:
    """The least of the last looks; 0 where there were too few."""
    series = signals.series(rank, name)
    return float(series.values[-LOOKS:].min()) if series is not None and len(series) >= LOOKS else 0.0


def _last(series: Series | None) -> float:
    return float(series.values[-1]) if series is not None and len(series) else 0.0


def _steady(lr: Series | None) -> bool:
    """Whether the learning rate is one at which the weights are meant to move."""
    if lr is None or len(lr) < LOOKS:
        return False
    now = float(lr.values[-1])
    earlier = lr.values[lr.steps <= lr.steps[-1] - LEAST]
    return bool(len(earlier) and now >= HALF * lr.values.max() and now <= RISE * earlier[-1])


def _lucky(signals: SignalBook, rank: int) -> bool:
    """Whether elements move by updates that are too small to be seen: by chance, or when enough has come together."""
    lucky, elements = signals.series(rank, "roundoff/lucky"), signals.series(rank, "roundoff/elements")
    if lucky is None or elements is None:
        return False
    return float(lucky.values.sum()) > LUCKY * float(elements.values.sum())


def _update(signals: SignalBook, ranks: tuple[int, ...], lost: list[_Lost]) -> Finding:
    still = list(dict.fromkeys(name for one in lost for name in one.still))
    most = list(dict.fromkeys(name for one in lost for name in one.most))
    whole = len(still) >= 0.9 * _last(signals.series(ranks[0], "roundoff/parameters"))
    dtype, since = _facts(signals, ranks[0])
    said = []
    if still:
        count = "all" if whole else str(len(still))
        said.append(f"{count} {dtype} parameters stand still since step {since} ({_some(still)})")
    if most:
        stand = f"most of {len(most)} {dtype} parameters stands still since step {since} ({_some(most)})"
        said.append(f"most elements of {len(most)} more do" if still else stand)
    text = " and ".join(said) + ", though they have gradients and are stepped: their updates round to nothing"
    return _finding(signals, ranks, "precision.underflow", "update", text, (still or most),
                    Severity.CRITICAL if whole else Severity.WARNING)  # fmt: skip


def _adapter(signals: SignalBook, ranks: tuple[int, ...], lost: list[_Lost]) -> Finding:
    names = list(dict.fromkeys(name for one in lost for name in one.adapters))
    dtype, _ = _facts(signals, ranks[0])
    gone = max(_last(signals.series(ranks[0], f"roundoff/lost/{name}")) for name in names)
    text = (
        f"the trained parameters beside a frozen {dtype} model are {dtype} too, with their optimizer's moments"
        f" ({_some(names)}): up to {gone:.0%} of their updates in a step round to nothing"
    )
    return _finding(signals, ranks, "precision.dtype_mismatch", "adapter", text, [*names[:19], dtype], Severity.WARNING)


def _moments(signals: SignalBook, ranks: tuple[int, ...], lost: list[_Lost]) -> Finding:
    names = list(dict.fromkeys(name for one in lost for name in one.flushed))
    dtype, _ = _facts(signals, ranks[0])
    text = (
        f"squares of gradients are 0 in {dtype}: the optimizer's second moment of {_some(names)} is exactly zero"
        f" for most elements that have a gradient"
    )
    return _finding(signals, ranks, "precision.underflow", "moments", text, names, Severity.WARNING)


def _facts(signals: SignalBook, rank: int) -> tuple[str, str]:
    dtype, since = signals.fact(rank, "roundoff/dtype"), signals.fact(rank, "roundoff/since")
    return dtype[1] if dtype else "half precision", since[1] if since else "1"


def _finding(
    signals: SignalBook, ranks: tuple[int, ...], kind: str, key: str, text: str, names: list[str], severity: Severity
) -> Finding:
    shown = [name for name in names if signals.series(ranks[0], f"roundoff/lost/{name}") is not None][:3]
    evidence = tuple(
        Evidence(
            f"{name}: {_still(signals, ranks[0], name):.0%} of the elements with gradients stand still, "
            f"{_last(signals.series(ranks[0], f'roundoff/lost/{name}')):.0%} of the updates are below half the distance"
            " to the next number", "probe", ranks[0], _step(signals, ranks[0]),
        )
        for name in shown
    )  # fmt: skip
    cause = Cause(key, text, 0.9, Basis.OBSERVATION, evidence)
    since = int(_facts(signals, ranks[0])[1])
    return Finding(kind, severity, ranks, words.shortened(f"{words.ranks_text(ranks)}: {text}."), (cause,),
                   names=tuple(names[:20]), step=since, sure=True, goes_on=True, key=f"roundoff {key}")  # fmt: skip


def _step(signals: SignalBook, rank: int) -> int | None:
    lr = signals.series(rank, "roundoff/lr")
    return int(lr.steps[-1]) if lr is not None and len(lr) else None


def _some(names: list[str]) -> str:
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more} more" if more > 0 else "")
