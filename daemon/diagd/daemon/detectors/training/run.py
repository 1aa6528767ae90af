"""What kind of training it is, and where its series are: looked up once for each rule."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import Curve, curve_of
from diagd.daemon.state.job import JobState
from diagd.daemon.state.metrics_names import PREFIX, canonical, find, part, resolution

_REINFORCEMENT = frozenset({
    "reward", "reward_std", "advantage", "advantage_std", "advantage_abs", "advantage_max", "advantage_min",
    "importance_ratio", "clip_fraction", "value_clip_fraction", "zero_std_share", "policy_loss",
})  # fmt: skip
_ADVERSARIAL = frozenset({
    "d", "g", "disc", "dis", "discriminator", "gen", "generator", "adv", "adversarial", "fake", "real", "d real",
    "d fake", "gan", "critic",
})  # fmt: skip
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_GRADIENTS = ("grad_norm", *(f"grad_norm@{number}" for number in range(1, 8)))  # an optimizer each
MANY = 64  # ranks beyond which a sample of them is looked at for what all must show alike


@dataclass(frozen=True)
class Metric:
    """One logged scalar of one rank."""

    rank: int
    signal: str
    curve: Curve
    off_by: float  # values are rounded by up to this; 0 where they are exact

    @property
    def name(self) -> str:
        """As the script logs it."""
        return self.signal.removeprefix(PREFIX)

    @property
    def words(self) -> tuple[str, ...]:
        """The words of its name, in lower case."""
        return words_of(self.signal)


@lru_cache(maxsize=4096)
def words_of(name: str) -> tuple[str, ...]:
    """The words of a metric's name, in lower case."""
    return tuple(word.lower() for word in _WORDS.findall(name.removeprefix(PREFIX)))


class Run:
    """The training of one job, as its scalars show it."""

    def __init__(self, scene: Scene) -> None:
        self.state: JobState = scene.state

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """All ranks of the job that are known."""
        return tuple(self.state.ranks()) or self.state.signals.ranks("loss")

    @cached_property
    def known(self) -> frozenset[str]:
        """What is logged, by what it is."""
        own = self.state.metric_names
        names = (canonical(n, own) for n in self._logged)
        return frozenset(name for name in names if name is not None)

    @cached_property
    def _logged(self) -> tuple[str, ...]:
        return tuple(n for rank in self.ranks[:MANY] for n in self.state.signals.names(rank) if n.startswith(PREFIX))

    @property
    def reinforced(self) -> bool:
        """Whether it learns from rewards: its loss says little then."""
        return bool(self.known & _REINFORCEMENT)

    @cached_property
    def adversarial(self) -> bool:
        """Whether models train against each other: no loss of theirs has to fall."""
        parts = {part(name) for name in self._logged}
        return bool(parts & _ADVERSARIAL)

    @cached_property
    def partly_frozen(self) -> bool:
        """Whether a trained model has weights that are not trained: it is adapted, not trained from nothing."""
        return any(
            not info.trainable and info.trained_model and not info.copy
            for entry in self.state.tensors.entries
            if entry.kind == "parameter"
            for info in list(entry.infos.values())[:1]
        )

    def fact(self, name: str) -> str:
        """What the first rank that tells this fact says; empty where none does."""
        told = (self.state.signals.fact(rank, name) for rank in self.ranks[:MANY])
        return next((fact[1] for fact in told if fact is not None), "")

    @property
    def is_loaded(self) -> bool:
        """Whether weights were loaded: the run does not begin at the beginning."""
        return bool(self.fact("checkpoint/loaded"))

    @property
    def casts_are_stale(self) -> bool:
        """Whether the model computes with old copies of its weights, which explains whatever stands still."""
        return any(detail.stale_cast_step for detail in self.state.details.values())

    def metrics(self, wanted: str) -> list[Metric]:
        """The metrics of that meaning, those of the lowest rank first, and of its those with the plainest names."""
        return [m for rank in self.ranks[:MANY] for name in find(self.state, rank, wanted)
                for m in self._metric(rank, name)]  # fmt: skip

    def metric(self, wanted: str) -> Metric | None:
        """The first of them."""
        return next(iter(self.metrics(wanted)), None)

    def named(self, words: frozenset[str]) -> list[Metric]:
        """The metrics with one of these words in their name."""
        return [
            metric
            for rank in self.ranks[:MANY]
            for name in self.state.signals.names(rank)
            if name.startswith(PREFIX) and words & set(words_of(name))
            for metric in self._metric(rank, name)
        ]

    def _metric(self, rank: int, name: str) -> Iterator[Metric]:
        curve = self.curve(rank, name)
        if len(curve.steps):
            yield Metric(rank, name, curve, resolution(self.state, rank, name))

    def curve(self, rank: int, signal: str) -> Curve:
        """Any series."""
        return curve_of(self.state.signals.series(rank, signal))

    def losses(self) -> dict[int, Curve]:
        """Each rank's loss: what its backward was called on, else what it logs itself."""
        found = {rank: self.curve(rank, "loss") for rank in self.state.signals.ranks("loss")}
        found = {rank: curve for rank, curve in found.items() if len(curve.steps)}
        if len(self.ranks) > 1 and found:
            return found  # what is logged is often the mean over the ranks
        for metric in self.metrics("loss")[:1]:
            mine = found.get(metric.rank)
            if mine is None or len(metric.curve.steps) > 2 * len(mine.steps):  # backward passes are sampled
                found[metric.rank] = metric.curve
        return found

    def gradient(self, rank: int) -> Curve:
        """The norm of a rank's gradients, where it is known; of several optimizers the first that still steps."""
        found = [self.curve(rank, name) for name in _GRADIENTS]
        newest = max((curve for curve in found if len(curve.steps) > 1), key=lambda c: c.last_step, default=None)
        if newest is not None:
            apart = int(newest.steps[-1] - newest.steps[-2])
            return next(c for c in found if len(c.steps) and c.last_step >= newest.last_step - 2 * apart)
        for signal in ("grad_norm", "clip_norm", *find(self.state, rank, "grad_norm")[:1]):
            curve = self.curve(rank, signal)
            if len(curve.steps):
                return curve
        return curve_of(None)

    def rates(self, rank: int) -> list[Curve]:
        """The learning rates of all groups."""
        names = [name for name in self.state.signals.names(rank) if name.startswith("lr/") and name[3:].isdigit()]
        names = names or list(find(self.state, rank, "lr"))
        return [curve for name in names if len((curve := self.curve(rank, name)).steps)]

    def is_updated(self, rank: int, since: int) -> bool:
        """Whether the optimizer changed weights in these steps, as far as is known: gradients and a rate above 0."""
        gradient = self.gradient(rank)
        recent = gradient.values[gradient.steps >= since]
        if not len(recent) or not np.median(recent) > 0:
            return False
        rates = [curve.values[-1] for curve in self.rates(rank)]
        return not rates or max(rates) > 0

    def rate_rose(self, rank: int, step: int, times: float = 2.0) -> bool:
        """Whether a learning rate rose by that factor just before a step."""
        for curve in self.rates(rank):
            before = curve.values[curve.steps < step - 12]
            near = curve.values[(curve.steps >= step - 12) & (curve.steps <= step)]
            if len(before) and len(near) and near.max() > times * max(float(before[-1]), 1e-30):
                return True
        return False
