"""Why weights part: the gradients that were applied to them, and gradients of which nothing is said."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from tests.detectors.scalars import signals
from tests.detectors.states import Job
from tests.detectors.tensors import Content, ledgers, only, own, same, training

from diagd.daemon.detectors.finding import Basis, Severity
from diagd.daemon.state.model import Group
from diagd.daemon.state.tensors import TensorInfo

DDP = TensorInfo("Net.a.weight", shape=(4, 4), placement="ddp", peers=(0, 1, 2))
PLAIN = TensorInfo("Net.a.weight", shape=(4, 4))
FAR: Content = lambda rank, step: own(rank, step) if step else 0  # noqa: E731 - equal before the first step only
STEPS = (0, 1, 2, 33, 65, 97)


def gradient(tensor: TensorInfo) -> TensorInfo:
    return replace(tensor, kind="gradient")


def after_the_start(content: Content) -> Content:
    """There is no gradient before the first step."""
    return lambda rank, step: content(rank, step) if step else 0


def at(odd: int, *steps: int) -> Content:
    """On one rank something else in just these steps."""
    return lambda rank, step: own(rank, step) if rank == odd and step in steps else same(rank, step)


def job(pairs: Mapping[TensorInfo, tuple[Content, Content]], world: int = 3, steps: tuple[int, ...] = STEPS) -> Job:
    """Tensors with what they hold, and what their gradients do."""
    tensors = {tensor: held for tensor, (held, _) in pairs.items()}
    given = {gradient(tensor): after_the_start(applied) for tensor, (_, applied) in pairs.items()}
    return training({**tensors, **given}, world, steps)


def test_gradients_that_never_were_equal_are_the_cause_of_weights_that_part() -> None:
    found = job({DDP: (FAR, own)}).finds()
    assert (found.kind, found.ranks, found.step) == ("divergence.gradient", (0, 1, 2), 1)
    assert (found.causes[0].key, found.severity) == ("unreduced", Severity.CRITICAL)
    assert found.causes[0].basis is Basis.OBSERVATION
    assert "the gradients of Net.a.weight" in found.summary


def test_gradients_that_two_of_three_ranks_share_were_reduced_with_something_else() -> None:
    pairs: Content = lambda rank, step: own(rank // 2, step) if step else 0  # noqa: E731 - ranks 0 and 1 alike
    found = job({DDP: (pairs, pairs)}).finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("divergence.gradient", (2,), "mixed")
    assert "same order" in found.causes[0].text
    other = replace(DDP, name="Net.b.weight")
    found_by = {f.names: f.causes[0].key for f in job({DDP: (pairs, pairs), other: (FAR, own)}).find()}
    assert set(found_by.values()) == {"mixed"}


def test_a_gradient_that_is_lost_on_one_rank_is_named_with_the_rank_and_the_step() -> None:
    found = job({DDP: (only(2, 65), at(2, 65))}).finds()
    assert (found.kind, found.ranks, found.step, found.causes[0].key) == ("divergence.gradient", (2,), 65, "lost")


def test_a_gradient_and_its_weight_that_differ_between_the_same_ranks_are_two_comparisons() -> None:
    steps = STEPS[:5]
    assert job({DDP: (only(2, 65), at(2, 65))}, steps=steps).finds().kind == "divergence.gradient"
    assert not job({DDP: (only(2, 65), at(1, 65))}, steps=steps).find()
    assert not job({DDP: (only(2, 65), at(2, 2))}, steps=steps).find()  # before the weight was equal


def test_lost_gradients_tell_that_unwrapped_weights_did_not_part_by_the_scripts_doing() -> None:
    tensors = [replace(PLAIN, name=f"Net.{number}") for number in range(3)]
    pairs = {tensor: (only(1, 34), at(1, 97) if tensor is tensors[0] else same) for tensor in tensors}
    found = job(pairs).finds()
    assert (found.kind, found.ranks, found.step) == ("divergence.gradient", (1,), 65)
    assert "unequal in steps 97" in found.causes[0].evidence[0].what


def test_gradients_that_follow_from_weights_of_other_gradients_are_no_fault_of_their_own() -> None:
    meshed = replace(DDP, name="Net.b.weight", placement="dtensor R", peers=(0, 1))
    after: Content = lambda rank, step: own(rank, step) if step > 1 else same(rank, step)  # noqa: E731
    found = job({PLAIN: (FAR, own), meshed: (after, after)}, world=2).finds()
    assert (found.kind, found.names[0], found.step) == ("divergence.gradient", PLAIN.name, 1)


def test_weights_that_one_rank_updates_for_all_hide_gradients_that_are_not_reduced() -> None:
    moment = replace(DDP, kind="state", name=f"{DDP.name}.exp_avg")
    made = job({DDP: (same, own)}, steps=STEPS[1:])
    assert not made.find()
    only_one = ledgers({DDP: same, gradient(DDP): own, moment: own}, (1,), STEPS[1:])
    made.state.tensors.apply(only_one, 3)
    found = made.finds()
    assert (found.kind, found.ranks, found.severity) == ("divergence.gradient", (0, 1, 2), Severity.WARNING)
    assert "lies on rank 1 alone" in found.causes[0].evidence[-1].what


@pytest.mark.parametrize(("moved", "told"), [("BROADCAST", True), ("BROADCAST,REDUCE", False), ("none", False)])
def test_gradients_that_nothing_adds_up_of_weights_that_are_sent_are_thrown_away(moved: str, told: bool) -> None:
    made = job({PLAIN: (same, own)}, steps=STEPS[1:])
    for rank in made.ranks:
        made.state.signals.put_fact(rank, "data/moved", 9, moved)
    found = [(one.kind, one.ranks, one.causes[0].key) for one in made.passes(1.0).find()]
    assert found == ([("divergence.gradient", (0, 1, 2), "unreduced_by_hand")] if told else [])


def test_a_first_step_with_a_rate_of_zero_leaves_weights_equal_under_gradients_that_are_not_reduced() -> None:
    late: Content = lambda rank, step: own(rank, step) if step > 1 else same(rank, step)  # noqa: E731
    found = job({DDP: (late, own)}).finds()
    assert (found.kind, found.causes[0].key, found.step) == ("divergence.gradient", "unreduced", 2)


def test_weights_that_part_at_once_under_equal_gradients_are_updated_otherwise() -> None:
    found = job({DDP: (FAR, same)}).finds()
    assert (found.kind, found.causes[0].key) == ("divergence.parameter", "updated")


def test_gradients_that_are_no_longer_reduced_are_told_from_a_lost_one() -> None:
    late: Content = lambda rank, step: own(rank, step) if step >= 60 else same(rank, step)  # noqa: E731
    found = job({DDP: (late, late)}).finds()
    assert (found.kind, found.ranks, found.step, found.causes[0].key) == (
        "divergence.gradient",
        (0, 1, 2),
        65,
        "stopped",
    )


@pytest.mark.parametrize(("content", "key"), [(same, "lost_tied"), (lambda rank, step: 7, "stopped")])
def test_of_two_ranks_gradients_that_differ_beside_reduced_ones_were_changed_after_it(
    content: Content, key: str
) -> None:
    late: Content = lambda rank, step: own(rank, step) if step >= 60 else same(rank, step)  # noqa: E731
    pair = replace(DDP, peers=(0, 1))
    found = job({pair: (late, late), replace(pair, name="Net.b.weight"): (same, content)}, world=2).finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("divergence.gradient", (0, 1), key)


def test_gradients_say_nothing_where_the_weights_are_equal() -> None:
    assert not job({DDP: (same, own)}).find()


def test_gradients_that_are_reduced_after_we_look_do_not_explain_a_weight_that_changes_later() -> None:
    found = job({DDP: (only(1, 65), own)}).finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("divergence.parameter", (1,), "changed")


def test_where_gradients_are_equal_a_changed_weight_is_the_fault() -> None:
    assert job({DDP: (only(1, 65), same)}).finds().kind == "divergence.parameter"


def test_unequal_gradients_of_unwrapped_replicas_follow_from_a_weight_that_parted_before_them() -> None:
    other = replace(PLAIN, name="Net.b.weight")
    more = {replace(PLAIN, name=f"Net.{n}"): (same, only(1, 60)) for n in range(4)}
    found = job({PLAIN: (only(1, 30), only(1, 60)), other: (only(1, 64), only(1, 64)), **more}).finds()
    assert (found.kind, found.names[0]) == ("divergence.parameter", PLAIN.name)


def test_weights_loaded_on_a_rank_before_the_first_step_come_before_any_gradient() -> None:
    assert job({DDP: (only(0, 0), own)}).finds().causes[0].key == "loaded"


@pytest.mark.parametrize("factors", [(1.0, 0.5), (1.0, 3.0)])
def test_gradients_that_differ_by_one_factor_were_clipped_by_local_norms(factors: tuple[float, float]) -> None:
    tensors = [replace(PLAIN, name=f"Net.{name}") for name in "abc"]
    made = job(dict.fromkeys(tensors, (FAR, own)), world=2)
    for number, tensor in enumerate(tensors, 1):
        for rank, factor in enumerate(factors):
            signals(made.state, rank, f"grad_norm/{tensor.name}", [1, 2], [factor * number, 7.0 * rank])
    found = made.finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("divergence.gradient", (0, 1), "clipped")
    assert f"{factors[1]:.4g} times" in found.causes[0].evidence[-1].what


def test_norms_that_differ_otherwise_are_no_factor() -> None:
    tensors = [replace(PLAIN, name=f"Net.{name}") for name in "ab"]
    made = job(dict.fromkeys(tensors, (FAR, own)), world=2)
    for number, tensor in enumerate(tensors, 1):
        for rank in range(2):
            signals(made.state, rank, f"grad_norm/{tensor.name}", [1], [1.0 + rank * number])
    assert made.finds().causes[0].key == "unreduced_by_hand"  # there is no wrapper that could


def test_of_two_ranks_the_one_whose_gradient_is_all_zeros_is_the_odd_one() -> None:
    two = replace(DDP, peers=(0, 1))
    made = job({two: (only(1, 65), at(1, 65))}, world=2)
    for rank in range(2):
        signals(made.state, rank, f"grad_norm/{two.name}", [65], [1.0 - rank])
    assert made.finds().ranks == (1,)


def test_moments_remember_lost_gradients_that_no_sample_has_met() -> None:
    tensors = [replace(DDP, name=f"Net.{name}") for name in "abcd"]
    moments = {replace(t, kind="state", name=f"{t.name}.exp_avg"): only(2, 50) for t in tensors[:2]}
    held = {tensor: only(2, 30 + 32 * number) for number, tensor in enumerate(tensors[:2])}
    given = {gradient(tensor): same for tensor in tensors}
    made = training({**held, **given, **moments}, 3, (*STEPS, 129))
    assert made.finds().kind == "divergence.parameter"  # unknown whether decay is a part of what moments remember
    for rank in range(3):
        made.state.signals.put_fact(rank, "optimizer/0", 1, "Adam betas=(0.9,0.99) weight_decay=0")
    found = made.finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("divergence.gradient", (2,), "lost")
    assert found.causes[0].basis is Basis.INFERENCE
    made.state.signals.put_fact(2, "checkpoint/moments", 33, "4 parameters")  # and what a checkpoint held
    assert made.finds().kind == "divergence.parameter"
    assert "exp_avg" in found.causes[0].evidence[-1].what


def test_moments_that_parted_while_others_of_their_bucket_did_not_have_changed_by_themselves() -> None:
    tensors = [replace(DDP, name=f"Net.{name}") for name in "abcd"]
    moments = {replace(t, kind="state", name=f"{t.name}.exp_avg"): only(2, 50) for t in tensors[::2]}
    held = {tensor: only(2, 30 + 32 * number) if number % 2 == 0 else same for number, tensor in enumerate(tensors)}
    given = {gradient(tensor): same for tensor in tensors}
    made = training({**held, **given, **moments}, 3, (*STEPS, 129))
    for rank in range(3):
        made.state.signals.put_fact(rank, "optimizer/0", 1, "Adam betas=(0.9,0.99) weight_decay=0")
    found = made.finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("divergence.optimizer", (2,), "changed")
    assert found.names == ("Net.a.exp_avg", "Net.c.exp_avg")
    assert "one bucket" in found.causes[0].evidence[-1].what
    large = replace(DDP, shape=(600, 600))  # each is a bucket of its own
    apart = {replace(t, shape=large.shape): content for t, content in (held | given | moments).items()}
    made = training(apart, 3, (*STEPS, 129))
    for rank in range(3):
        made.state.signals.put_fact(rank, "optimizer/0", 1, "Adam betas=(0.9,0.99) weight_decay=0")
    assert made.finds().kind == "divergence.gradient"


def bursts(made: Job, counts: list[int]) -> Job:
    for rank in made.ranks:
        total = 0
        for step, count in enumerate(counts, 1):
            total += count
            signals(made.state, rank, "step/collectives", [step], [total])
    return made


def test_weights_that_are_averaged_now_and_then_part_in_between() -> None:
    made = bursts(job({PLAIN: (FAR, own)}), [1, 1, 1, 7, 1, 1, 1, 7])
    assert not made.find()
    assert bursts(job({PLAIN: (FAR, own)}), [7] * 8).finds().kind == "divergence.gradient"


def test_an_outer_optimizers_rounds_are_no_steps_at_which_gradients_should_be_reduced() -> None:
    made = job({PLAIN: (FAR, own)})
    for rank, placed in made.ranks.items():  # twenty steps alone, then each round counts as a step, and averages
        placed.detail = placed.detail.with_(groups=(Group("0", (0, 1, 2), enqueued=10_000),))
        signals(made.state, rank, "step/collectives", range(1, 41), [8.0] * 20 + [8.0 + 7 * n for n in range(20)])
    made.passes(1.0)
    assert not made.find()


def test_unwrapped_weights_that_part_one_after_the_other_are_no_doing_of_the_script() -> None:
    tensors = [replace(PLAIN, name=f"Net.{number}") for number in range(3)]
    gradual = {tensor: only(1, 10 + 32 * number) for number, tensor in enumerate(tensors)}
    assert training(gradual, 3, (*STEPS, 129)).finds().ranks == (1,)
    assert not training(dict.fromkeys(tensors, only(1, 60)), 3, STEPS).find()


@pytest.mark.parametrize(("after", "told"), [(2.0, True), (1.0, False), (0.0, False)])
def test_weights_that_part_all_at_once_are_a_fault_where_ranks_go_on_reducing(after: float, told: bool) -> None:
    late: Content = lambda rank, step: own(rank, step) if step >= 60 else same(rank, step)  # noqa: E731
    made = job({replace(PLAIN, name=f"Net.{number}"): (late, late) for number in range(3)}, steps=(*STEPS, 129))
    for rank in range(3):
        met = [2.0 * min(step, 60) + after * max(step - 60, 0) for step in range(1, 130)]
        signals(made.state, rank, "step/collectives", range(1, 130), met)
    found = [(one.kind, one.causes[0].key) for one in made.passes(1.0).find()]
    assert found == ([("divergence.gradient", "stopped_by_hand")] if told else [])


def test_what_a_late_rank_tells_is_waited_for() -> None:
    made = job({DDP: (same, same)})
    made.state.tensors.apply(ledgers({DDP: only(1, 98), gradient(DDP): only(1, 98)}, (0, 1), (129, 161)), 3)
    assert not made.find()
