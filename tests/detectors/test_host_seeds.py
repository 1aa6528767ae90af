"""Ranks that draw the same numbers from numpy.random or random; and healthy runs in which both stand alike."""

import pytest
from tests.detectors.test_data import Told, alike, apart, numbers, seen

from diagd.daemon.detectors.finding import Severity


def always(value: float) -> Told:
    return lambda rank, step: value


def read(each: float, by: float = 0, generator: str = "numpy", samples: float = 32, **more: Told) -> dict[str, Told]:
    told = {"read_samples": always(samples), f"read_{generator}": alike}
    told |= {f"read_drawn_{generator}": always(each), f"read_by_{generator}": always(by)}
    return {"input": apart, **told, **more}


def steps(before: float, inside: float = 0, elements: float = 512, **more: Told) -> dict[str, Told]:
    told = {"rng_numpy": alike, "drawn_numpy": always(before), "drawn_inside_numpy": always(inside)}
    return {"input": apart, "elements": always(elements), **told, **more}


@pytest.mark.parametrize(("generator", "module"), [("numpy", "numpy.random"), ("random", "random")])
def test_equal_numbers_for_each_sample_are_named_with_their_generator(generator: str, module: str) -> None:
    found = seen(read(2, generator=generator)).finds()
    assert (found.kind, found.severity, found.ranks) == ("divergence.data", Severity.WARNING, (0, 1))
    assert (found.names, found.causes[0].key) == (("rng", "seed", module), "host_rng")
    assert "while samples are read" in found.summary


@pytest.mark.parametrize(
    ("told", "severity"),
    [
        (read(2, by=1, read_seed=alike), Severity.INFO),  # as torch seeds workers, where all ranks seed torch alike
        (read(2, by=2, read_seed=alike), Severity.WARNING),  # all workers of a rank were seeded alike, too
        (read(2, by=1, read_seed=apart), Severity.WARNING),  # the loaders drew other seeds, and they were overruled
        (read(2, by=1, generator="torch", read_seed=alike), Severity.INFO),
    ],
)
def test_workers_count_where_the_script_has_seeded_them(told: dict[str, Told], severity: Severity) -> None:
    found = seen(told).finds()
    assert found.severity is severity
    assert found.names[-1] == "worker"
    assert "in data workers" in found.summary


@pytest.mark.parametrize(
    "told",
    [
        read(0),  # seeded alike, and nothing is drawn
        read(2, read_numpy=apart),  # seeded by rank
        read(-1),  # seeded by sample
        read(2 / 32),  # one size or mixing weight for the batch, the same on all ranks by intent
        read(1, samples=4),
        read(0.0) | {"read_drawn_numpy": lambda r, s: 2.0 * (s % 4 == 0)},  # now and then
        steps(0),
        steps(4),  # a decision that all ranks take alike
        steps(1024, rng_numpy=apart),
        steps(-1),
        steps(0.0) | {"drawn_numpy": lambda r, s: 2600.0 * (s == 9)},  # the order of an epoch
    ],
)
def test_generators_that_stand_alike_are_no_fault_by_themselves(told: dict[str, Told]) -> None:
    assert not seen(told).find()


@pytest.mark.parametrize(("before", "inside"), [(1024, 0), (1304, 0), (0, 1024)])
def test_as_many_numbers_as_the_input_has_elements_are_noise_for_it(before: float, inside: float) -> None:
    found = seen(steps(before, inside)).finds()
    assert found.severity is Severity.WARNING
    assert "elements" in found.summary


@pytest.mark.parametrize("told", [steps(700), steps(1500), steps(3000), steps(130, elements=50)])
def test_numbers_that_can_be_an_order_shared_by_all_ranks_are_worth_knowing_and_no_more(told: dict[str, Told]) -> None:
    assert seen(told).finds().severity is Severity.INFO


def test_few_looks_prove_nothing() -> None:
    assert not seen(read(2), steps=range(1, 4)).find()


def test_equal_dropout_does_not_hide_equal_augmentation() -> None:
    made = seen({**read(2), **numbers(0, 624)})
    for rank in (0, 1):
        made.state.signals.put_fact(rank, "data/dropout", 1, "drop")
    assert made.finds().names[-1] == "numpy.random"


def test_equal_batches_explain_equal_augmentation() -> None:
    assert seen({**read(2), "input": alike, "loss": alike}).finds().names == ("batch",)
