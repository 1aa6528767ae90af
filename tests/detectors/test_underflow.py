"""Updates that half precision swallows; and trainings in half precision that are as they are meant to be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from tests.detectors.scalars import signals
from tests.detectors.states import job
from tests.detectors.tensors import same, training

from diagd.daemon.detectors.finding import Finding, Severity
from diagd.daemon.detectors.scene import scene_of
from diagd.daemon.detectors.underflow import underflow
from diagd.daemon.state.tensors import TensorInfo

STEPS = (1, 9, 25, 33, 49, 65)
OLD = STEPS[2:]  # looks at which something can have stood still for long


@dataclass
class Seen:
    """What the looks at one rank's parameters have shown: (still, lost, size) of each that has something to show."""

    parameters: Mapping[str, tuple[float, float, float]]
    count: int = 10
    lr: Sequence[float] = (1e-4,) * len(STEPS)
    lucky: float = 0.0
    flushed: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    looks: int = len(OLD)


def find(*ranks: Seen) -> list[Finding]:
    made = job(len(ranks))
    for rank, seen in enumerate(ranks):
        signals(made.state, rank, "roundoff/lr", STEPS, seen.lr)
        signals(made.state, rank, "roundoff/parameters", STEPS, [seen.count] * len(STEPS))
        signals(made.state, rank, "roundoff/elements", STEPS, [2000] * len(STEPS))
        signals(made.state, rank, "roundoff/lucky", STEPS, [seen.lucky] * len(STEPS))
        for name, shares in seen.parameters.items():
            for what, value in zip(("still", "lost", "size"), shares, strict=True):
                signals(made.state, rank, f"roundoff/{what}/{name}", OLD[: seen.looks], [value] * seen.looks)
        for name in (*seen.parameters, *seen.flushed):
            signals(made.state, rank, f"roundoff/flushed/{name}", OLD, [seen.flushed.get(name, 0.0)] * len(OLD))
        for name, text in {"dtype": "bfloat16", "since": "1", **seen.facts}.items():
            made.state.signals.put_fact(rank, f"roundoff/{name}", 26, text)
    return list(underflow(scene_of(made.state)))


STILL = (1.0, 1.0, 0.1)
NORMS = {"Net.norm.weight": STILL, "Net.layers.0.norm.weight": STILL}


def test_parameters_that_stand_still_are_named_on_all_ranks_as_one_fault() -> None:
    (found,) = find(Seen(NORMS), Seen(NORMS))
    assert (found.kind, found.severity, found.ranks) == ("precision.underflow", Severity.WARNING, (0, 1))
    assert (found.names, found.step) == (tuple(NORMS), 1)


def test_a_model_that_stands_still_as_a_whole_is_critical() -> None:
    (found,) = find(Seen(NORMS, count=2))
    assert found.severity == Severity.CRITICAL


def test_most_elements_of_most_parameters_are_told_and_those_of_a_few_are_not() -> None:
    most = {f"Net.{n}.weight": (0.8, 0.9, 0.4) for n in range(6)}
    (found,) = find(Seen(most))
    assert found.names == tuple(most)
    assert find(Seen(most, count=30)) == []


def test_an_optimizer_whose_updates_are_not_known_is_judged_by_what_stands_still() -> None:
    (found,) = find(Seen({"Net.norm.weight": (1.0, 0.0, 0.0)}))
    assert found.kind == "precision.underflow"


LORA = {f"Net.{name}.lora_{part}": (0.35, 0.8, 1.4) for name in ("q", "v") for part in "AB"}
ADAPTERS = {"adapters": ",".join(LORA)}


def test_adapters_in_half_precision_that_lose_updates_should_not_be_in_it() -> None:
    (found,) = find(Seen(LORA, count=4, facts=ADAPTERS))
    assert (found.kind, found.causes[0].key) == ("precision.dtype_mismatch", "adapter")
    assert {*LORA, "bfloat16"} == set(found.names)


def test_second_moments_of_zero_are_told() -> None:
    (found,) = find(Seen({}, flushed={"Net.head.weight": 0.9}, facts={"dtype": "float16"}))
    assert (found.names, found.causes[0].key) == (("Net.head.weight",), "moments")


HEALTHY = {
    "warming up": Seen(NORMS, lr=(1e-6, 9e-6, 2.5e-5, 3.3e-5, 4.9e-5, 6.5e-5)),
    "fading out": Seen(NORMS, lr=(1e-4, 1e-4, 8e-5, 5e-5, 2e-5, 1e-6)),
    "rounded stochastically": Seen(NORMS, lucky=40.0),
    "seen once only": Seen(NORMS, looks=1),
    "large updates that something takes back": Seen({"Net.codebook": (1.0, 0.0, 30.0)}),
    "an embedding that is half asleep": Seen({"Net.embed.weight": (0.6, 0.85, 0.5)}),
    "the same as parameters of no adapter": Seen(LORA, count=4),
    "adapters that move": Seen(dict.fromkeys(LORA, (0.02, 0.3, 5.0)), count=4, facts=ADAPTERS),
    "one adapter of four": Seen({next(iter(LORA)): (0.35, 0.8, 1.4)}, count=4, facts=ADAPTERS),
}


@pytest.mark.parametrize("seen", HEALTHY.values(), ids=HEALTHY)
def test_of_other_trainings_nothing_is_said(seen: Seen) -> None:
    assert find(seen) == []


# --- moments in half precision


@pytest.mark.parametrize(("dtype", "betas", "said"), [
    ("bfloat16", "(0.9,0.999)", True),
    ("bfloat16", "(0.9,0.99)", False),  # loses more than half a step
    ("float16", "(0.9,0.999)", False),
    ("float16", "(0.9,0.9999)", True),
    ("float32", "(0.9,0.9999)", False),
])  # fmt: skip
def test_a_decay_below_half_a_step_of_its_dtype_is_worth_knowing(dtype: str, betas: str, said: bool) -> None:
    made = training({TensorInfo("Net.fc.weight.exp_avg_sq", "state", dtype=dtype, shape=(4, 4)): same}, world=2)
    for rank in range(2):
        made.state.signals.put_fact(rank, "optimizer/0", 1, f"AdamW betas={betas} eps=1e-08")
    found = [f for f in made.find() if f.kind == "precision.underflow"]
    assert [(f.severity, f.ranks, f.names[0]) for f in found] == (
        [(Severity.INFO, (0, 1), "Net.fc.weight")] if said else []
    )
    without = training({TensorInfo("Net.fc.weight.exp_avg_sq", "state", dtype=dtype, shape=(4, 4)): same}, world=2)
    assert not without.find()
