"""Ranks and workers that see the same samples or random numbers; and healthy runs that look like it."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from tests.detectors.scalars import signals
from tests.detectors.states import Job, job
from tests.detectors.tensors import own, same, training

from diagd.daemon.detectors.finding import Basis, Severity
from diagd.daemon.state.model import Group
from diagd.daemon.state.tensors import TensorInfo

STEPS = range(1, 21)
WEIGHT = TensorInfo("Net.fc.weight", shape=(4, 4))
SHARD = TensorInfo("Net.w_in", shape=(2, 4))
Told = Callable[[int, int], float]  # what a rank tells at a step


def alike(rank: int, step: int) -> float:
    """On all ranks the same, and another one at each step."""
    return 1000.0 + step


def apart(rank: int, step: int) -> float:
    """Another one at each step and rank."""
    return 1000.0 * (rank + 2) + step


def constant(rank: int, step: int) -> float:
    """Always the same."""
    return 7.0


def only_below(limit: int) -> Told:
    return lambda rank, step: alike(rank, step) if rank < limit else apart(rank, step)


def seen(told: dict[str, Told], world: int = 2, wrapper: str = "ddp", steps: Sequence[int] = STEPS) -> Job:
    """Ranks that train under a wrapper (none: their weights are always equal) and tell these scalars."""
    made = job(world).train(*range(world)) if wrapper else training({WEIGHT: same}, world)
    made.passes(1.0)
    tell(made, world, told, steps)
    for rank in range(world):
        name, text = ("replicas", f"{wrapper} 0:{world - 1}:1") if wrapper else ("exchanges", "none")
        made.state.signals.put_fact(rank, f"data/{name}", 1, text)
    return made


def tell(made: Job, world: int, told: dict[str, Told], steps: Sequence[int] = STEPS) -> None:
    for name, what in told.items():
        for rank in range(world):
            full = name if name == "loss" else f"data/{name}"
            signals(made.state, rank, full, steps, [what(rank, step) for step in steps])


def test_replicas_with_equal_inputs_and_losses_are_proved_to_share_their_batches() -> None:
    made = seen({"input": alike, "loaded": alike, "loss": alike}, 3)
    for rank in range(3):
        made.state.signals.put_fact(rank, "data/sampler", 2, "RandomSampler")
    found = made.finds()
    assert (found.kind, found.severity, found.ranks) == ("divergence.data", Severity.WARNING, (0, 1, 2))
    assert (found.names, found.step, found.goes_on) == (("batch", "sampler"), 1, True)
    assert "3 ranks do the work of one" in found.summary
    assert "RandomSampler" in found.summary
    (cause,) = found.causes
    assert (cause.key, cause.basis) == ("sampler", Basis.OBSERVATION)
    assert "bit for bit" in cause.evidence[1].what


def test_some_of_the_replicas_may_share_their_batches_where_they_have_no_group_of_their_own() -> None:
    made = seen({"input": only_below(2), "loss": only_below(2)}, 3)
    found = made.finds()
    assert (found.kind, found.severity, found.ranks) == ("divergence.data", Severity.WARNING, (0, 1))
    for rank in range(2):
        detail = made.ranks[rank].detail
        made.ranks[rank].detail = detail.with_(groups=(*detail.groups, Group("pair", (0, 1))))
    assert made.passes(1).find() == ()
    for rank in range(2):  # the wrapper's own, replicas of one shard: nothing that shares a sample
        made.state.signals.put_fact(rank, "data/replica_groups", 1, f"0:1:1 {rank}:2:{2 - rank}")
    assert made.passes(1).finds().ranks == (0, 1)


def test_some_whose_loaders_give_the_same_are_told_though_noise_in_the_model_makes_their_losses_differ() -> None:
    made = seen({"input": only_below(2), "loaded": only_below(2), "loss": apart}, 3)
    for rank, given in enumerate((0, 0, 1)):  # by the number of the device in its node
        made.state.signals.put_fact(rank, "data/sampler", 2, f"DistributedSampler rank {given} of 3")
    found = made.passes(1).finds()
    assert (found.kind, found.severity, found.ranks) == ("divergence.data", Severity.WARNING, (0, 1))
    assert "all made as rank 0 of 3" in found.causes[0].text


def test_it_is_said_since_when_the_batches_are_equal() -> None:
    assert seen({"input": lambda r, s: alike(r, s) if s >= 9 else apart(r, s), "loss": alike}).finds().step == 9


def test_equal_inputs_with_unknown_losses_are_likely_a_fault() -> None:
    found = seen({"input": alike}).finds()
    assert (found.severity, found.causes[0].basis) == (Severity.WARNING, Basis.INFERENCE)


def test_equal_batches_under_random_numbers_of_their_own_are_a_fault_too() -> None:
    found = seen({"input": alike, "loaded": alike, "loss": apart}).finds()
    assert found.severity is Severity.WARNING
    assert "losses differ" in found.causes[0].evidence[1].what


@pytest.mark.parametrize(
    "told",
    [
        {"input": apart, "loaded": apart, "loss": apart},
        {"input": apart, "loaded": alike, "loss": apart},  # the loader's batch is split by rank, or noise is added
        {"input": apart, "loss": alike},  # the loss is reduced before backward
        {"input": constant, "loss": alike},  # a fixed grid, or one batch that is fitted on purpose
        {"input": alike, "loaded": apart, "loss": apart},  # a shared query; what differs is the target
        {"loaded": alike, "loss": apart},  # the wrapped model was not seen, and what goes into it may differ
        {"loaded": alike},
        {"input": only_below(2), "loss": apart},  # some share a sample: no fault that is proved
        {"input": lambda r, s: alike(r, s) if s % 5 else apart(r, s), "loss": alike},  # small data repeat at times
        {"input": lambda r, s: alike(r, s // 8), "loss": alike},
    ],
)  # fmt: skip
def test_of_what_can_be_so_by_design_nothing_is_said(told: dict[str, Told]) -> None:
    assert not seen(told, 3).find()


def test_where_the_models_input_was_not_seen_the_loaders_batches_and_the_losses_tell() -> None:
    found = seen({"loaded": alike, "loss": alike}).finds()
    assert (found.severity, found.names) == (Severity.WARNING, ("batch", "sampler"))


def test_few_steps_prove_nothing() -> None:
    assert not seen({"input": alike, "loss": alike}, steps=range(1, 6)).find()


def test_ranks_that_share_a_group_may_share_their_samples() -> None:
    made = seen({"input": alike, "loss": alike}, 4)
    for rank, placed in made.ranks.items():
        pair = (0, 1) if rank < 2 else (2, 3)
        placed.detail = replace(placed.detail, groups=(Group("0", (0, 1, 2, 3)), Group("1", pair)))
    made.passes(1.0)
    assert made.finds().severity is Severity.INFO


def test_ranks_of_which_one_has_told_another_wrapper_are_no_replicas() -> None:
    made = seen({"input": alike, "loss": alike})
    made.state.signals.put_fact(1, "data/replicas", 1, "ddp 1:3:1")
    assert not made.find()


def test_replicas_without_a_wrapper_are_known_by_their_equal_weights_and_losses() -> None:
    found = seen({"input": alike, "loss": alike}, 2, "").finds()
    assert (found.severity, found.ranks) == (Severity.WARNING, (0, 1))
    assert seen({"loaded": alike, "loss": alike}, 2, "").finds().names == ("batch", "sampler")
    assert not seen({"loaded": alike, "loss": apart}, 2, "").find()
    assert not seen({"input": alike}, 2, "").find()
    assert not seen({"loaded": alike}, 2, "").find()
    assert not seen({"loss": alike}, 2, "").find()


@pytest.mark.parametrize("wrapper", ["", "ddp"])
def test_equal_inputs_with_other_losses_are_worth_knowing_as_what_differs_may_be_added_behind(wrapper: str) -> None:
    found = seen({"input": alike, "loss": apart}, 2, wrapper).finds()
    assert (found.severity, found.ranks, found.names) == (Severity.INFO, (0, 1), ("batch",))


@pytest.mark.parametrize("told", [{}, {0: "none"}, {0: "none", 1: "ALLGATHER"}])
def test_ranks_that_may_exchange_what_they_compute_may_share_their_samples(told: dict[int, str]) -> None:
    made = seen({"input": alike, "loss": alike}, 2, "")
    for rank in (0, 1):
        made.state.signals._facts[rank].pop("data/exchanges")
    for rank, text in told.items():
        made.state.signals.put_fact(rank, "data/exchanges", 9, text)
    assert not made.find()


@pytest.mark.parametrize("shard", [own, lambda rank, step: own(rank, step) if rank else same(rank, step)])
def test_ranks_that_hold_parts_of_a_model_read_the_same_batch_by_design(shard: Callable[[int, int], int]) -> None:
    made = training({WEIGHT: same, SHARD: shard}, 2)
    for rank in (0, 1):
        made.state.signals.put_fact(rank, "data/exchanges", 9, "none")
    tell(made, 2, {"input": alike, "loss": alike, **numbers(624, 0)})
    assert not made.find()


def numbers(loop: float, inside: float, **more: Told) -> dict[str, Told]:
    return {"rng": alike, "drawn": lambda r, s: loop, "drawn_inside": lambda r, s: inside, **more}


@pytest.mark.parametrize(("loop", "inside"), [(624, 0), (128, 0), (0, 624)])
def test_equal_generators_of_which_each_step_draws_are_named(loop: float, inside: float) -> None:
    found = seen({"input": apart, "loss": apart, **numbers(loop, inside)}).finds()
    assert (found.severity, found.names, found.ranks) == (Severity.WARNING, ("rng", "seed"), (0, 1))
    assert "random numbers" in found.summary


def by_pairs(rank: int, step: int) -> float:
    return 1000.0 * (rank // 2) + step


def test_generators_that_stand_alike_on_a_part_of_the_replicas_are_named_where_each_sees_samples_of_its_own() -> None:
    one = {"input": apart, "loss": apart, **numbers(624, 0, rng=lambda r, s: alike(r, s) if r < 2 else apart(r, s))}
    assert seen(one, 4).finds().ranks == (0, 1)
    both = seen({"input": apart, "loss": apart, **numbers(624, 0, rng=by_pairs)}, 4).finds()
    assert (both.ranks, both.names) == ((0, 1, 2, 3), ("rng", "seed"))
    assert "ranks 0,1 draw the same" in both.summary
    assert "so do ranks 2,3" in both.summary
    shared = {"input": by_pairs, "loaded": by_pairs, "loss": apart}  # a sample that two ranks share, as under TP
    made = seen({**shared, **numbers(624, 0, rng=by_pairs)}, 4)
    assert [one for one in made.find() if "rng" in one.names] == []


def test_numbers_drawn_where_no_forward_pass_was_seen_are_worth_knowing_and_no_more() -> None:
    assert seen({"loaded": apart, **numbers(0, 624)}).finds().severity is Severity.INFO


def test_equal_dropout_masks_are_worth_knowing_and_no_more() -> None:
    made = seen({"input": apart, **numbers(0, 624)})
    for rank in (0, 1):
        made.state.signals.put_fact(rank, "data/dropout", 1, "enc.drop,dec.drop")
    found = made.finds()
    assert (found.severity, found.names) == (Severity.INFO, ("rng", "dropout", "enc.drop", "dec.drop"))
    assert "drop the same elements" in found.summary
    assert found.summary.endswith("(with accelerate: set_seed(seed, device_specific=True))")
    tell(made, 2, numbers(200, 624), range(21, 41))
    assert made.finds().severity is Severity.WARNING


@pytest.mark.parametrize(
    "told",
    [
        numbers(0, 0),  # the usual seed on all ranks, and nothing drawn
        numbers(1, 0),  # a decision that all take alike: which resolution, which layers
        numbers(0, 3),
        numbers(100, 0),  # a permutation of the batch
        numbers(-1, 624),  # seeded anew at each step: the script knows
        numbers(624, 624, rng=apart),  # seeded by rank
        numbers(624, 0) | {"drawn": lambda r, s: 624.0 * (s == 9)},  # one epoch's beginning
    ],
)  # fmt: skip
def test_equal_seeds_are_no_fault_where_nothing_follows_from_them(told: dict[str, Told]) -> None:
    assert not seen({"input": apart, **told}).find()


def test_equal_batches_explain_equal_numbers() -> None:
    assert seen({"input": alike, "loss": alike, **numbers(624, 624)}).finds().names == ("batch",)


def test_generators_of_devices_are_compared_by_seed_and_offset() -> None:
    made = seen({"input": apart, "rng_cuda": alike, "drawn_cuda": lambda r, s: 8.0})
    assert "CUDA" in made.finds().causes[0].evidence[0].what
    assert not seen({"input": apart, "rng_cuda": alike, "drawn_cuda": lambda r, s: 4.0}).find()


def test_workers_that_give_the_same_batches_are_named() -> None:
    made = job(1).train(0).passes(1.0)
    tell(made, 1, {"worker_groups": lambda r, s: s, "worker_repeats": lambda r, s: s}, range(1, 7))
    found = made.finds()
    assert (found.kind, found.severity, found.ranks) == ("divergence.data", Severity.WARNING, (0,))
    assert (found.names, found.causes[0].key) == (("worker", "batch"), "worker")


def test_workers_that_now_and_then_give_the_same_batch_are_not() -> None:
    made = job(1).train(0).passes(1.0)
    tell(made, 1, {"worker_groups": lambda r, s: s, "worker_repeats": lambda r, s: s // 2}, range(1, 13))
    assert not made.find()


def test_a_sampler_that_is_never_told_of_an_epoch_is_worth_knowing() -> None:
    made = seen({"input": apart, "loss": apart})
    for rank in (0, 1):
        made.state.signals.put_fact(rank, "data/same_order", 40, "DistributedSampler, 2 passes with epoch 0")
    found = made.finds()
    assert (found.severity, found.names[0], found.step) == (Severity.INFO, "sampler", 40)
    assert found.causes[0].key == "order"
