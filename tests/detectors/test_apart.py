"""Ranks that belong together and are at other steps, at other places of a schedule, or step with other settings."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tests.detectors.scalars import signals
from tests.detectors.states import Job
from tests.detectors.tensors import Content, own, same
from tests.detectors.tensors import training as made_of

from diagd.daemon.detectors.finding import Severity
from diagd.daemon.detectors.replicas import side_by_side
from diagd.daemon.state.model import Group
from diagd.daemon.state.tensors import TensorInfo

DDP = TensorInfo("Net.a.weight", shape=(4, 4), placement="ddp", peers=(0, 1, 2))
PLAIN = TensorInfo("Net.a.weight", shape=(4, 4))
SHARD = TensorInfo("Net._flat_param", shape=(16,), placement="fsdp FULL_SHARD", local=True)
LATE: Content = lambda rank, step: own(rank, step) if step > 40 else same(rank, step)  # noqa: E731
STEPS = range(1, 81)


def training(tensors: Mapping[TensorInfo, Content], world: int = 3) -> Job:
    return made_of(tensors, world, (0, 1, 2, 33, 65, 97))


def clocks(made: Job, *offsets: Sequence[int], per_step: int = 3) -> Job:
    """By how many steps each rank is ahead, from step to step."""
    for rank, ahead in enumerate(offsets):
        steps = range(1, len(ahead) + 1)
        signals(
            made.state,
            rank,
            "step/collectives",
            steps,
            [10 + per_step * (s - a) for s, a in zip(steps, ahead, strict=True)],
        )
    return made


def rates(made: Job, *series: Sequence[float], group: int = 0) -> Job:
    for rank, values in enumerate(series):
        signals(made.state, rank, f"lr/{group}", range(1, len(values) + 1), values)
    return made


def test_a_rank_that_has_stepped_once_more_is_named_with_the_step() -> None:
    made = clocks(training({DDP: LATE}), [0] * 80, [0] * 40 + [1] * 40, [0] * 80)
    found = made.finds()
    assert (found.kind, found.ranks, found.step, found.severity) == ("divergence.step", (1,), 41, Severity.CRITICAL)
    assert "1 optimizer steps more" in found.summary


def test_a_rank_that_leaves_steps_out_is_behind() -> None:
    found = clocks(training({DDP: LATE}), [0] * 80, [0] * 80, [0] * 40 + [-2] * 40).finds()
    assert (found.kind, found.ranks) == ("divergence.step", (2,))
    assert "2 optimizer steps fewer" in found.summary


GRADIENT = replace(PLAIN, kind="gradient")


def test_ranks_without_a_wrapper_whose_gradients_were_equal_until_some_left_steps_out() -> None:
    made = clocks(training({PLAIN: LATE, GRADIENT: LATE}), [0] * 80, [0] * 80, [0] * 40 + [-2] * 40)
    found = made.finds()
    assert (found.kind, found.ranks, found.names) == ("divergence.step", (2,), ("optimizer.step", "Net.a.weight"))


def test_ranks_that_train_apart_may_make_other_numbers_of_steps() -> None:
    early: Content = lambda rank, step: own(rank, step) if step > 2 else same(rank, step)  # noqa: E731 - same data at first
    offsets = [0] * 80, [0] * 80, [0] * 40 + [-2] * 40
    assert clocks(training({PLAIN: LATE, GRADIENT: early}), *offsets).find() == ()
    assert clocks(training({PLAIN: early, GRADIENT: LATE}), *offsets).find() == ()


APART: Content = lambda rank, step: own(rank, step) if step else same(rank, step)  # noqa: E731 - from the first step on


def mixing(exchanges: str, per_step: float) -> Job:
    """Each rank's gradients are its own, and so many collectives of all ranks are issued at a step."""
    made = training({PLAIN: APART, GRADIENT: own})
    for rank in range(3):
        made.state.signals.put_fact(rank, "data/exchanges", 9, exchanges)
        signals(made.state, rank, "step/collectives", range(1, 81), [per_step * step for step in range(1, 81)])
    return made


def test_neighbours_that_average_their_weights_are_no_replicas() -> None:
    assert mixing("RECV,SEND", 0.05).find() == ()
    assert mixing("none", 2.0).finds().kind == "divergence.gradient"
    assert mixing("RECV,SEND", 2.0).finds().kind == "divergence.gradient"  # reduces too, as a pipeline's replicas do


def test_until_it_is_known_whether_ranks_are_at_one_step_nothing_is_said_of_their_tensors() -> None:
    made = training({DDP: LATE})
    offsets = [0] * 60, [0] * 60, [0] * 60
    assert clocks(made, *offsets).find() == ()
    for rank in range(3):
        signals(made.state, rank, "step/collectives", range(61, 67), [10 + 3 * step for step in range(61, 67)])
    assert made.finds().kind == "divergence.parameter"


def test_counters_of_ranks_that_are_at_other_steps_say_nothing_of_their_optimizers() -> None:
    counter = replace(DDP, kind="state", name="Net.a.weight.step")
    fewer: Content = lambda rank, step: step - 1 if rank and step else step  # noqa: E731 - rank 0 has stepped something else before
    made = training({DDP: same, counter: fewer})
    assert made.finds().kind == "divergence.optimizer"
    assert clocks(made, [41] * 120, [0] * 120, [0] * 120).find() == ()


def test_without_any_ranks_there_is_nothing_side_by_side() -> None:
    assert side_by_side(training({DDP: same}).state, (), "step/collectives") is None


def test_rates_are_told_as_they_were_at_the_step_that_is_named() -> None:
    warm = [0.001 * step for step in range(1, 81)]
    found = rates(training({DDP: LATE}), warm, warm[:40] + [2 * rate for rate in warm[40:]], warm).finds()
    assert (found.ranks, found.step) == ((1,), 41)
    assert "0.082 on rank 1" in found.summary
    assert "since step 41" in found.summary


def test_rates_that_differed_for_a_while_tell_why_weights_have_parted() -> None:
    own_plateaus = [0.1] * 40 + [0.03] * 40, [0.1] * 56 + [0.03] * 24, [0.1] * 40 + [0.03] * 40
    made = rates(training({DDP: LATE}), *own_plateaus)
    for rank in range(3):
        made.state.signals.put_fact(rank, "lr/scheduler", 1, "ReduceLROnPlateau")
    found = made.finds()
    assert (found.kind, found.ranks, found.names[0]) == ("divergence.optimizer", (1,), "lr")


def test_rates_that_differed_after_weights_had_parted_explain_nothing() -> None:
    later = [0.1] * 60 + [0.03] * 20, [0.1] * 70 + [0.03] * 10, [0.1] * 60 + [0.03] * 20
    early: Content = lambda rank, step: own(rank, step) if step > 2 else same(rank, step)  # noqa: E731
    found = rates(training({DDP: early}), *later).find()
    assert "divergence.optimizer" not in {one.kind for one in found}


def test_weights_that_parted_between_two_told_rates_are_those_rates_doing() -> None:
    made = training({DDP: LATE})
    for rank in range(3):
        values = [0.1, 0.1, 0.03, 0.03, 0.03] if rank == 1 else [0.1] * 5
        signals(made.state, rank, "lr/0", [1, 16, 72, 76, 80], values)
    assert made.finds().kind == "divergence.optimizer"


def test_rates_of_ranks_that_are_at_other_steps_are_those_of_other_steps() -> None:
    falling = [0.2 - 0.001 * step for step in range(1, 82)]
    made = rates(training({DDP: LATE}), falling[:80], falling[:40] + falling[39:79], falling[:80])
    clocks(made, [0] * 80, [0] * 40 + [1] * 40, [0] * 80)
    found = made.finds()
    assert (found.kind, found.causes[0].key) == ("divergence.step", "steps")
    early = rates(training({DDP: LATE}), falling[:44], falling[:40] + falling[39:43], falling[:44])
    assert not clocks(early, [0] * 44, [0] * 40 + [1] * 4, [0] * 44).find()


def test_two_ranks_apart_are_a_tie() -> None:
    made = training({replace(DDP, peers=(0, 1)): LATE}, world=2)
    found = clocks(made, [0] * 80, [0] * 40 + [1] * 40).finds()
    assert (found.kind, found.ranks) == ("divergence.step", (0, 1))


def test_ranks_side_by_side_are_at_one_step() -> None:
    assert clocks(training({DDP: LATE}), [0] * 80, [0] * 80, [0] * 80).finds().kind == "divergence.parameter"


def test_steps_of_ranks_that_share_nothing_may_be_counted_as_they_like() -> None:
    assert not clocks(training({PLAIN: own}), [0] * 80, list(range(80)), [0] * 80).find()


def test_replicas_that_are_equal_are_not_held_to_their_counts() -> None:
    assert not clocks(training({DDP: same}), [0] * 80, [1] * 80, [0] * 80).find()


def test_holders_of_shards_are_held_to_their_counts() -> None:
    found = clocks(training({SHARD: own}), [0] * 80, [0] * 40 + [1] * 40, [0] * 80).finds()
    assert (found.kind, found.ranks) == ("divergence.step", (1,))


def test_a_scheduler_stepped_twice_on_one_rank_is_at_another_place_of_the_schedule() -> None:
    usual = [0.2 - 0.001 * step for step in STEPS]
    twice = [0.2 - 0.001 * (2 * step - 1) for step in STEPS]
    far: Content = lambda rank, step: own(rank, step) if step > 1 and rank == 1 else same(rank, step)  # noqa: E731
    found = rates(training({DDP: far}), usual, twice, usual).finds()
    assert (found.kind, found.ranks, found.step, found.causes[0].key) == ("divergence.step", (1,), 2, "schedule")
    assert found.names[:2] == ("lr", "param_groups[0]")


def test_a_scheduler_that_one_rank_alone_steps_is_told_with_the_ranks_that_stay() -> None:
    stepped = [0.1 * 0.5 ** (step // 20) for step in STEPS]
    far: Content = lambda rank, step: own(rank, step) if step > 20 and rank == 0 else same(rank, step)  # noqa: E731
    made = rates(training({DDP: far}), stepped, [0.1] * 80, [0.1] * 80)
    found = made.finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("divergence.step", (0,), "schedule")
    assert "ranks 1,2 keep the rate of before" in found.causes[0].text
    for rank in range(3):
        made.state.signals.put_fact(rank, "lr/scheduler", 1, "ReduceLROnPlateau")
    assert made.finds().kind == "divergence.optimizer"


def test_a_rate_of_a_ranks_own_is_a_setting_of_its_optimizer() -> None:
    far: Content = lambda rank, step: own(rank, step) if step and rank == 0 else same(rank, step)  # noqa: E731
    found = rates(training({DDP: far}), [0.3] * 40, [0.1] * 40, [0.1] * 40).finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("divergence.optimizer", (0,), "settings")
    assert "0.3 on rank 0" in found.summary


def test_a_rate_that_one_rank_lowers_by_its_own_metric_is_a_setting() -> None:
    lower = [0.1] * 40 + [0.05] * 40
    only_one: Content = lambda rank, step: own(rank, step) if step > 40 and rank == 2 else same(rank, step)  # noqa: E731
    found = rates(training({DDP: only_one}), [0.1] * 80, [0.1] * 80, lower).finds()
    assert (found.kind, found.ranks, found.step) == ("divergence.optimizer", (2,), 41)


def test_a_rate_that_is_set_once_the_warm_up_is_over_is_no_place_of_a_schedule() -> None:
    warm = [0.1 * step for step in range(1, 11)]
    found = rates(training({SHARD: own}), warm + [1.0] * 70, warm + [1.0] * 70, warm + [1.0] * 30 + [5.0] * 40).finds()
    assert (found.kind, found.ranks) == ("divergence.optimizer", (2,))


def test_other_settings_are_compared_by_name() -> None:
    far: Content = lambda rank, step: own(rank, step) if step else 0  # noqa: E731
    made = rates(training({DDP: far}), *[[0.1] * 40] * 3)
    for rank, decay in enumerate((0.01, 0.01, 0.1)):
        made.state.signals.put_fact(rank, "optimizer/0", 1, f"AdamW betas=(0.9,0.99) weight_decay={decay}")
    found = made.finds()
    assert (found.kind, found.ranks, found.names[0]) == ("divergence.optimizer", (2,), "weight_decay")


def test_shards_that_learn_at_other_rates_are_told_without_any_comparison_of_them() -> None:
    assert rates(training({SHARD: own}), [0.3] * 40, [0.1] * 40, [0.1] * 40).finds().kind == "divergence.optimizer"


def test_replicas_that_update_parts_for_each_other_stay_equal_at_rates_that_differ() -> None:
    moments = replace(DDP, name="Net.a.weight.exp_avg", kind="state")
    made = training({DDP: same, moments: same})
    for entry in made.state.tensors.entries:
        if entry.kind == "state":
            entry.infos = {1: entry.infos[1]}  # the others keep none
    found = rates(made, [0.3] * 40, [0.1] * 40, [0.1] * 40).finds()
    assert (found.kind, found.ranks) == ("divergence.optimizer", (0,))


def test_the_ranks_of_an_engine_step_alike_whatever_of_their_tensors_is_seen() -> None:
    made = rates(training({PLAIN: same}), [0.3] * 40, [0.1] * 40, [0.1] * 40)
    assert made.find() == ()
    for rank in range(3):
        made.state.signals.put_fact(rank, "data/replicas", 1, "engine 0:2:1")
    found = made.finds()
    assert (found.kind, found.ranks) == ("divergence.optimizer", (0,))


def test_stages_and_experts_may_have_rates_of_their_own() -> None:
    assert not rates(training({PLAIN: own}), [0.3] * 40, [0.1] * 40, [0.1] * 40).find()
    assert not rates(training({DDP: same}), [0.3] * 40, [0.1] * 40, [0.1] * 40).find()  # the weights are equal


def test_a_rank_that_reports_later_is_compared_as_far_as_it_has_told() -> None:
    falling = [0.1 - 0.001 * step for step in STEPS]
    made = training({SHARD: own}, world=2)
    assert not rates(made, falling, falling[:40]).find()


def test_rates_that_cross_are_different_all_the_same_and_those_that_have_met_are_not() -> None:
    falling, rising = [0.10 - 0.001 * step for step in range(80)], [0.022 + 0.001 * step for step in range(80)]
    crossing = rates(training({SHARD: own}, world=2), falling[:40], rising[:40])
    assert crossing.finds().step == 1
    assert not rates(training({SHARD: own}, world=2), [0.1] * 2 + falling[2:], [0.2] * 2 + falling[2:]).find()


def test_rates_of_which_some_did_not_come_are_compared_where_all_have_told() -> None:
    made = training({SHARD: own}, world=2)
    for rank in range(2):
        steps = [step for step in STEPS if step % 3 or rank]
        signals(made.state, rank, "lr/0", steps, [0.1 - 0.001 * step for step in steps])
    assert not made.find()


def test_unwrapped_replicas_count_where_their_gradients_stay_equal() -> None:
    late: Content = lambda rank, step: own(rank, step) if step > 40 and rank == 1 else same(rank, step)  # noqa: E731
    given = replace(PLAIN, kind="gradient")
    lower = [0.1] * 40 + [0.05] * 60
    found = rates(training({PLAIN: late, given: same}), [0.1] * 100, lower, [0.1] * 100).finds()
    assert (found.kind, found.ranks) == ("divergence.optimizer", (1,))
    apart = training({replace(PLAIN, name=f"Net.{n}"): late for n in range(3)})
    assert not rates(apart, [0.1] * 100, lower, [0.1] * 100).find()  # models of their own, for all that is known


def test_models_that_only_began_alike_are_no_replicas_though_their_first_gradients_were_equal() -> None:
    """A sweep: each rank trains for itself, from the same weights and on the same samples, at a rate of its own."""
    gradient = replace(PLAIN, kind="gradient")
    apart: Content = lambda rank, step: own(rank, step) if step > 0 else same(rank, step)  # noqa: E731
    after_first: Content = lambda rank, step: own(rank, step) if step > 1 else same(rank, step)  # noqa: E731
    made = training({PLAIN: apart, gradient: after_first})
    assert all(f.kind != "divergence.optimizer" for f in rates(made, [0.1] * 80, [0.01] * 80, [0.001] * 80).find())


def test_ranks_that_take_turns_in_groups_without_one_of_them_are_not_compared() -> None:
    ahead = [0] * 40 + [40] * 40
    made = clocks(training({DDP: LATE}), ahead, ahead, [0] * 80)
    (told,) = [f for f in made.find() if f.kind.startswith("divergence.")]
    assert (told.kind, told.ranks, told.severity) == ("divergence.step", (2,), Severity.CRITICAL)
    for rank in (0, 1):
        groups = made.ranks[rank].detail.groups
        made._detail(rank, groups=(*groups, Group("without 2", (0, 1), enqueued=120)))
    (told,) = [f for f in made.report().find() if f.kind.startswith("divergence.")]
    assert (told.kind, told.severity) == ("divergence.step", Severity.INFO)


def test_a_mesh_leaves_nobody_out_and_a_group_of_some_excuses_no_one_at_the_same_step() -> None:
    four = replace(DDP, peers=(0, 1, 2, 3))
    made = clocks(training({four: LATE}, 4), [0] * 80, [0] * 80, [0] * 80, [0] * 40 + [40] * 40)
    for rank in range(4):
        pair = (0, 1) if rank < 2 else (2, 3)
        made._detail(rank, groups=(*made.ranks[rank].detail.groups, Group("pair", pair, enqueued=120)))
    (told,) = [f for f in made.report().find() if f.kind.startswith("divergence.")]
    assert (told.ranks, told.severity) == ((3,), Severity.CRITICAL)
    same_steps = clocks(training({DDP: LATE}), [0] * 80, [0] * 80, [0] * 80)
    for rank in (0, 1):
        groups = (*same_steps.ranks[rank].detail.groups, Group("without 2", (0, 1), enqueued=120))
        same_steps._detail(rank, groups=groups)
    (told,) = [f for f in same_steps.report().find() if f.kind.startswith("divergence.")]
    assert told.kind == "divergence.parameter"
