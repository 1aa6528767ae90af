"""Tensors that should be the same on all ranks and are not; and those that may differ, of which nothing is said."""

import json
from dataclasses import replace

import pytest
from tests.detectors.scalars import signals
from tests.detectors.states import Job, job
from tests.detectors.tensors import STEPS, Content, ledgers, only, own, same, training

from diagd.daemon.detectors.differing import How, Parted
from diagd.daemon.detectors.divergence import _of_one_moment
from diagd.daemon.detectors.finding import Basis, Severity
from diagd.daemon.state.model import Group
from diagd.daemon.state.tensors import LedgerNews, TensorInfo

DDP = TensorInfo("Net.fc.weight", shape=(4, 4), placement="ddp", peers=(0, 1, 2))
PLAIN = TensorInfo("Net.fc.weight", shape=(4, 4))
FROZEN = TensorInfo("Enc.fc.weight", trainable=False, owned=False, trained_model=False)
MEAN = TensorInfo("Net.bn.running_mean", "buffer", placement="ddp", peers=(0, 1, 2), trainable=False, owned=False)
FAR: Content = lambda rank, step: own(rank, step) if step else 0  # noqa: E731 - equal before the first step only


def named(tensor: TensorInfo, *names: str) -> list[TensorInfo]:
    return [replace(tensor, name=name) for name in names]


def test_where_all_hold_the_same_nothing_is_found() -> None:
    assert not training({DDP: same, MEAN: same, FROZEN: lambda rank, step: 7}).find()


def test_one_replica_that_changes_alone_is_named_with_the_step_and_the_tensor() -> None:
    first, second = named(DDP, "Net.fc1.weight", "Net.fc2.weight")
    found = training({first: same, second: only(1, since=30)}).finds()
    assert (found.kind, found.severity, found.ranks) == ("divergence.parameter", Severity.CRITICAL, (1,))
    assert (found.names, found.step, found.goes_on) == (("Net.fc2.weight",), 33, True)
    (cause,) = found.causes
    assert (cause.key, cause.basis) == ("changed", Basis.OBSERVATION)
    assert "since a step from 3 to 33" in found.summary
    assert "rank 1 holds other values than ranks 0,2" in found.summary
    assert "ranks 0,2 | rank 1" in cause.evidence[0].what


def test_one_comparison_proves_nothing() -> None:
    assert not training({DDP: only(1, since=65)}).find()


def dealt(*by_rank: tuple[int, Content]) -> Job:
    """Weights each of which one rank alone steps."""
    made = training({replace(PLAIN, name=f"Net.{n}.weight"): hold for n, (_, hold) in enumerate(by_rank)})
    for number, (owner, _) in enumerate(by_rank):
        (entry,) = (one for one in made.state.tensors.entries if one.name == f"Net.{number}.weight")
        entry.infos = {rank: replace(info, owned=rank == owner) for rank, info in entry.infos.items()}
    return made


def test_of_weights_that_ranks_step_for_each_other_one_that_is_not_sent_is_told() -> None:
    stays: Content = lambda rank, step: same(rank, step) if rank == 1 else 1000  # noqa: E731
    found = dealt((0, same), (2, same), (1, stays)).finds()
    assert (found.kind, found.causes[0].key, found.names) == ("divergence.parameter", "unsent", ("Net.2.weight",))
    assert (found.ranks, found.severity) == ((1,), Severity.WARNING)


@pytest.mark.parametrize("others", [
    [(0, same)],  # a learner that its actors take from
    [(0, own), (2, own)],  # each for itself
    [(0, lambda rank, step: 7), (2, lambda rank, step: 7)],  # nothing is seen to be stepped
])  # fmt: skip
def test_weights_of_ranks_that_do_not_step_for_each_other_may_differ(others: list[tuple[int, Content]]) -> None:
    stays: Content = lambda rank, step: same(rank, step) if rank == 0 else 1000  # noqa: E731
    assert not dealt(*others, (0, stays)).find()


def test_what_has_become_equal_again_is_over() -> None:
    assert not training({DDP: only(1, since=1, until=40)}).find()


@pytest.mark.parametrize(
    ("versions", "steps", "ranks"),
    [
        ((90, 91), (44, 44), (1,)),
        ((90, 90), (44, 44), (0, 1)),
        ((90, 92), (44, 44), (0, 1)),  # as by an average that is swapped in and out again
        ((90, 91), (44, 45), (0, 1)),  # of other steps
        ((90, None), (44, 44), (0, 1)),
    ],
)
def test_on_a_tie_the_rank_that_has_written_once_more_is_the_odd_one(
    versions: tuple[int | None, ...], steps: tuple[int, ...], ranks: tuple[int, ...]
) -> None:
    made = training({replace(PLAIN, placement="ddp", peers=(0, 1)): only(1, since=20)}, 2)
    for rank, (version, step) in enumerate(zip(versions, steps, strict=True)):
        if version is not None:
            told = json.dumps({PLAIN.name: version})
            made.state.signals.put_fact(rank, "tensor/versions", step, told)
    found = made.finds()
    assert (found.kind, found.ranks) == ("divergence.parameter", ranks)
    assert ("once more than on the others" in str(found.causes[0].evidence)) is (ranks == (1,))


def test_a_write_that_was_a_load_says_nothing_of_which_side_is_right() -> None:
    made = training({replace(PLAIN, placement="ddp", peers=(0, 1)): only(1, since=20)}, 2)
    for rank, version in enumerate((90, 91)):
        made.state.signals.put_fact(rank, "tensor/versions", 44, json.dumps({PLAIN.name: version}))
        signals(made.state, rank, "checkpoint/loads", [1, 20, 20][: 2 + rank], [1.0, 2.0, 3.0][: 2 + rank])
    found = made.finds()
    assert found.ranks == (0, 1)
    assert "rank 0 1 times, rank 1 2 times" in found.causes[0].evidence[-1].what


@pytest.mark.parametrize(("usual", "named"), [([90, 0], True), ([70, 0], False)])
def test_what_one_rank_has_written_explains_what_else_of_its_model_has_parted(usual: list[int], named: bool) -> None:
    """As where ranks compute the same, and a weight that differs on one makes all else differ within a step."""
    replicas = replace(PLAIN, placement="dtensor R", peers=(0, 1))
    weights = {replace(replicas, name=f"Net.{n}.bias"): only(1, since=20) for n in "abc"}
    gradients = {replace(weight, kind="gradient"): content for weight, content in weights.items()}
    origin = replace(replicas, name="Net.norm.weight")
    made = training({**weights, **gradients, origin: only(1, since=30), replace(origin, kind="gradient"): same}, 2)
    assert "divergence.gradient" in {one.kind for one in made.find()}
    for rank in (0, 1):
        told = {"": usual, "Net.a.bias": usual[0]} | ({origin.name: 91} if rank else {})
        made.state.signals.put_fact(rank, "tensor/versions", 65, json.dumps(told))
    found = made.find()
    assert ([(one.kind, one.ranks, one.names) for one in found] == [
        ("divergence.parameter", (1,), ("Net.norm.weight",))
    ]) is named  # fmt: skip


def test_two_sides_of_one_are_a_tie() -> None:
    found = training({replace(DDP, peers=(0, 1)): only(1, since=30)}, world=2).finds()
    assert found.ranks == (0, 1)
    assert "no side is in the majority" in found.summary


@pytest.mark.parametrize(("jump", "ranks"), [(50.0, (1,)), (0.5, (0, 1))])
def test_on_a_tie_the_rank_whose_norm_moved_by_more_than_its_steps_is_the_odd_one(
    jump: float, ranks: tuple[int, ...]
) -> None:
    made = training({replace(DDP, peers=(0, 1)): only(1, since=30)}, world=2)
    for rank in range(2):
        moved = [10.0, 10.1, 10.2 + jump * rank, 10.3 + jump * rank]
        signals(made.state, rank, f"param_norm/{DDP.name}", [2, 20, 40, 60], moved)
        signals(made.state, rank, f"update_norm/{DDP.name}", [2, 20, 40, 60], [0.1] * 4)
    found = made.finds()
    assert found.ranks == ranks
    assert ("account for" in found.causes[0].evidence[-1].what) == (ranks == (1,))


def test_replicas_unequal_before_the_first_step_have_loaded_after_wrapping() -> None:
    found = training({DDP: only(0, since=0)}).finds()
    assert (found.kind, found.ranks, found.step) == ("divergence.parameter", (0,), 0)
    assert found.causes[0].key == "loaded"
    assert "from before the first step" in found.summary


def test_replicas_that_part_with_the_first_update_are_not_reduced() -> None:
    found = training(dict.fromkeys(named(DDP, "Net.a", "Net.b", "Net.c", "Net.d"), FAR)).finds()
    assert (found.ranks, found.step, found.causes[0].key) == ((0, 1, 2), 1, "unreduced")
    assert found.causes[0].basis is Basis.INFERENCE
    assert len(found.names) == 4
    assert "and 1 more" in found.summary


def test_no_more_than_twenty_names() -> None:
    tensors = named(DDP, *(f"Net.{number}" for number in range(30)))
    assert len(training(dict.fromkeys(tensors, FAR)).finds().names) == 20


def test_of_replica_groups_only_members_are_compared() -> None:
    left, right = replace(DDP, peers=(0, 2)), replace(DDP, peers=(1, 3))
    made = job(4)
    for tensor in (left, right):
        told = ledgers({tensor: lambda rank, step: rank % 2 * 10 + step}, tensor.peers)
        made.state.tensors.apply(told, 4)
    assert not made.find()
    made.state.tensors.apply(ledgers({right: only(3, since=2)}, (1, 3), (2, 97, 129)), 4)
    assert made.finds().ranks == (1, 3)


def test_a_plain_part_of_a_trained_model_that_parts_at_once_is_only_likely_wrong() -> None:
    sharded = TensorInfo("Net.body", placement="dtensor Shard(0)", local=True)
    found = training({sharded: own, replace(PLAIN, name="Net.head"): FAR}).finds()
    assert (found.kind, found.severity, found.names) == ("divergence.parameter", Severity.WARNING, ("Net.head",))
    assert found.causes[0].confidence <= 0.7


def test_shards_of_replicas_that_are_averaged_by_hand_are_compared_between_those_that_hold_the_same() -> None:
    """Two replicas, split over a slice of a mesh of two dimensions: ranks 0 and 2 hold one half, 1 and 3 the other."""
    shard = TensorInfo("Net.body", shape=(2, 4), placement="dtensor Shard(0)")

    def apart(rank: int, step: int) -> int:
        return own(rank, step) if step else 7 + rank % 2

    made = training({shard: lambda rank, step: same(rank % 2, step)}, 4)
    tensors = {half: {replace(one, beside=half): apart for one in (shard, replace(shard, kind="gradient"))}
               for half in ((0, 2), (1, 3))}  # fmt: skip
    for half, told in tensors.items():
        made.state.tensors.apply(ledgers(told, half), 4)
    assert not made.find()  # the parts of an ensemble may lie so, too
    for rank in range(4):
        made.state.signals.put_fact(rank, "data/averages", 9, "0:2:2" if rank in (0, 2) else "1:3:2")
    found = made.finds()
    assert (found.kind, found.ranks, found.names) == ("divergence.gradient", (0, 1, 2, 3), ("Net.body",))
    assert found.causes[0].key == "unreduced_by_hand"
    assert "the same shard, of different replicas" in found.causes[0].text


@pytest.mark.parametrize(("rest", "found"), [(same, True), (own, False)])
def test_copies_of_experts_that_agreed_at_first_and_have_parted_are_told(rest: Content, found: bool) -> None:
    def in_pairs(rank: int, step: int) -> int:
        return own(rank, step) if step else 7 + rank % 2

    def kept(rank: int, step: int) -> int:
        return same(rank % 2, step) + rank % 2 * 10**6

    experts = named(PLAIN, "Net.expert.0.weight", "Net.expert.2.weight")
    made = training({**dict.fromkeys(experts, in_pairs), replace(PLAIN, name="Net.gate.weight"): rest}, 4)
    told = [one for one in made.find() if one.kind.startswith("divergence")]
    assert [(one.kind, one.ranks, one.names) for one in told] == [
        ("divergence.parameter", (0, 1, 2, 3), ("Net.expert.0.weight", "Net.expert.2.weight"))
    ] * found
    healthy = training({**dict.fromkeys(experts, kept), replace(PLAIN, name="Net.gate.weight"): rest}, 4)
    assert not [one for one in healthy.find() if one.kind.startswith("divergence")]


def test_ranks_that_do_not_communicate_train_models_of_their_own() -> None:
    made = training({PLAIN: FAR})
    for placed in made.ranks.values():
        placed.facts.operations = 2
    assert not made.train(*made.ranks).passes(1.0).find()


def test_a_single_plain_parameter_that_changes_later_is_named() -> None:
    tensors = dict.fromkeys(named(PLAIN, "Net.a", "Net.b", "Net.c"), same)
    found = training({**tensors, PLAIN: only(2, since=20)}).finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("divergence.parameter", (2,), "changed")


def test_weights_that_never_were_equal_and_get_equal_gradients_were_never_made_equal() -> None:
    """As where gradients are reduced by hand, and each rank builds its model from a seed of its own."""
    found = training({PLAIN: own, replace(PLAIN, kind="gradient"): same}).finds()
    assert (found.kind, found.severity, found.causes[0].key) == ("divergence.parameter", Severity.WARNING, "never")
    assert not training({PLAIN: own, replace(PLAIN, kind="gradient"): own}).find()
    shared = dict.fromkeys(named(replace(PLAIN, kind="gradient"), "Net.a", "Net.b", "Net.c"), same)
    expert = {PLAIN: own, replace(PLAIN, kind="gradient"): own}
    assert not training({**shared, **dict.fromkeys(named(PLAIN, "Net.a", "Net.b", "Net.c"), same), **expert}).find()
    idle = training({PLAIN: own, replace(PLAIN, kind="gradient"): same})
    for rank in range(3):
        signals(idle.state, rank, f"grad_norm/{PLAIN.name}", [2, 20, 40], [0.0] * 3)
    assert not idle.find()


def test_a_frozen_model_that_differs_from_the_start_was_never_made_equal() -> None:
    found = training({FROZEN: lambda rank, step: int(rank == 0), DDP: same}).finds()
    assert (found.kind, found.severity, found.ranks) == ("divergence.frozen", Severity.WARNING, (0,))
    assert found.causes[0].key == "never"


def test_one_frozen_tensor_that_changes_on_a_rank_is_named() -> None:
    tensors = dict.fromkeys(named(FROZEN, "Enc.a", "Enc.b", "Enc.c"), lambda rank, step: 5)
    found = training({**tensors, FROZEN: only(1, since=20)}).finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("divergence.frozen", (1,), "changed")


def test_a_frozen_part_below_the_wrapper_goes_with_the_parameters_that_were_loaded_with_it() -> None:
    frozen = replace(DDP, name="Net.emb", trainable=False, owned=False)
    assert training({DDP: only(0, since=0), frozen: only(0, since=0)}).finds().kind == "divergence.parameter"
    assert training({DDP: same, frozen: only(0, since=0)}).finds().kind == "divergence.frozen"


def test_buffers_that_no_wrapper_broadcasts_drift() -> None:
    found = training({DDP: same, MEAN: own}).finds()
    assert (found.kind, found.ranks, found.names) == ("divergence.buffer", (0, 1, 2), ("Net.bn.running_mean",))
    assert found.severity is Severity.WARNING
    assert found.causes[0].key == "never"


def test_what_is_not_saved_with_the_model_is_a_meter_of_each_ranks_own_most_often() -> None:
    found = training({DDP: same, replace(MEAN, transient=True): own}).finds()
    assert (found.kind, found.severity) == ("divergence.buffer", Severity.INFO)


@pytest.mark.parametrize(
    ("written", "severity"),
    [
        ("32\t32\t0\t2500", Severity.INFO),
        ("32\t32\t3\t2500", Severity.INFO),  # samples are drawn anew for each batch
        ("32\t32\t20\t2500", Severity.WARNING),  # the same rows again, as of a codebook's
        ("2500\t2500\t2500\t2500", Severity.WARNING),  # all of a statistic
        ("400\t400\t0\t2500", Severity.WARNING),
    ],
)
def test_a_table_of_which_each_rank_writes_the_rows_of_its_own_samples_is_worth_knowing(
    written: str, severity: Severity
) -> None:
    made = training({DDP: same, replace(MEAN, name="Net.history"): own})
    for rank in range(3):
        made.state.signals.put_fact(rank, "buffers/rows", 8, f"Net.other\t9\t9\t9\t900\nNet.history\t{written}")
    found = made.finds()
    assert (found.kind, found.severity) == ("divergence.buffer", severity)
    assert any("rows of this rank's own samples" in e.what for e in found.causes[0].evidence) is (
        severity is Severity.INFO
    )


def test_a_table_that_not_all_ranks_are_known_to_write_so_is_told_as_any_buffer() -> None:
    made = training({DDP: same, replace(MEAN, name="Net.history"): own})
    for rank in range(2):
        made.state.signals.put_fact(rank, "buffers/rows", 8, "Net.history\t32\t32\t0\t2500")
    assert made.finds().severity is Severity.WARNING


def test_buffers_that_differ_because_the_weights_do_are_no_fault_of_their_own() -> None:
    assert training({DDP: own, MEAN: own}).finds().kind == "divergence.parameter"


def test_weights_that_part_all_at_once_are_a_fault_where_all_are_given_the_same_gradients() -> None:
    """As where one rank goes on with other moments; a script that gives ranks other weights does not reduce them."""
    tensors = dict.fromkeys(named(PLAIN, "Net.a", "Net.b", "Net.c"), only(2, since=30))
    assert not training(tensors).find()
    gradients = dict.fromkeys(named(replace(PLAIN, kind="gradient"), "Net.a", "Net.b", "Net.c"), same)
    found = training({**tensors, **gradients}).finds()
    assert (found.kind, found.ranks, found.severity) == ("divergence.parameter", (2,), Severity.WARNING)
    parted = dict.fromkeys(gradients, lambda rank, step: own(rank, step) if step > 30 else same(rank, step))
    assert not training({**tensors, **parted}).find()


def test_a_head_that_is_added_to_a_sharded_model_and_never_reduced_is_told() -> None:
    shard = TensorInfo("Net.a.weight", shape=(4, 4), placement="fsdp2 Shard(0)", local=True)
    head = TensorInfo("Net.heads.new.weight", shape=(4, 4))
    made = training({shard: own}, 3, range(0, 200, 50))
    late: dict[TensorInfo, Content] = {
        head: lambda rank, step: own(rank, step) if step > 150 else same(rank, step),
        replace(head, kind="gradient"): own,
    }
    told = ledgers(late, range(3), (150, 151, 152, 170))
    samples = zip(told[0].rows, told[0].steps, strict=True)
    kept = [place for place, (row, step) in enumerate(samples) if row == 0 or step > 150]
    news = [
        LedgerNews(one.rank, one.pid, 1, one.tensors, [one.rows[k] + 1 for k in kept], [one.steps[k] for k in kept],
                   [one.digests[k] for k in kept])
        for one in told
    ]  # fmt: skip
    made.state.tensors.apply(news, 3)
    found = made.finds()
    assert (found.kind, found.causes[0].key) == ("divergence.gradient", "unreduced")
    assert found.names == ("Net.heads.new.weight",)


def test_what_ranks_send_before_they_train_is_no_communication_of_theirs() -> None:
    """As where weights are broadcast at first and averaged after each ten steps."""
    made = training({PLAIN: lambda rank, step: own(rank, step) if step else 5})
    assert made.finds().kind == "divergence.parameter"
    for placed in made.ranks.values():
        placed.facts.operations = 8
        signals(made.state, placed.facts.rank, "step/collectives", [1, 2, 3], [8.0] * 3)
        detail = placed.detail
        placed.detail = detail.with_(groups=(Group("0", (0, 1, 2), enqueued=80),))  # the first average, just begun
    made.passes(1.0)
    assert not made.find()
    for placed in made.ranks.values():
        placed.facts.operations = 200  # of which no group counts any: send and recv, until more is known
    made.passes(1.0)
    assert not made.find()
    for rank in range(3):
        made.state.signals.put_fact(rank, "data/exchanges", 9, "none")
    assert made.finds().kind == "divergence.parameter"


@pytest.mark.parametrize(
    ("part", "step", "operations", "told"),
    [
        ("of 3", 40, 3, True),  # a pass is over, and nothing was exchanged in it
        ("of 3", 1, 3, False),  # they may average their weights at its end
        ("of 3", 40, 9, False),  # as they do here
        ("of 3 accelerate", 1, 3, True),
        ("of 1", 40, 3, False),  # each has a dataset of its own
    ],
)
def test_ranks_that_share_a_dataset_and_exchange_nothing_train_models_of_their_own_unasked(
    part: str, step: int, operations: int, told: bool
) -> None:
    made = training({PLAIN: lambda rank, step: own(rank, step) if step else 5, replace(PLAIN, kind="gradient"): own})
    for rank, placed in made.ranks.items():
        placed.facts.operations = operations
        made.state.signals.put_fact(rank, "data/exchanges", 9, "none")
        signals(made.state, rank, "step/collectives", [1, 2, 3], [1.0] * 3)
        which = rank if "3" in part else 0
        made.state.signals.put_fact(rank, "data/part", step, f"{which} {part}")
    made.passes(1.0)
    assert [one.kind for one in made.find()] == (["divergence.gradient"] if told else [])


def test_replicas_whose_wrapper_has_a_rank_alone_are_told_so_where_they_share_no_sample() -> None:
    alone = replace(PLAIN, placement="ddp of one rank")
    gradient = replace(alone, kind="gradient")
    made = training({alone: lambda rank, step: own(rank, step) if step else 5, gradient: own})
    assert not made.find()  # they may be parts of a model that is split, each with a wrapper of its own
    for rank in range(3):
        made.state.signals.put_fact(rank, "data/exchanges", 9, "none")
    found = made.finds()
    assert (found.kind, found.ranks) == ("divergence.gradient", (0, 1, 2))
    assert "a process group of one rank" in found.causes[0].text


@pytest.mark.parametrize(("cast", "told"), [((1,), False), ((0, 1, 2), True), ((), True)])
def test_what_parts_between_ranks_of_another_dtype_is_told_by_that_alone(cast: tuple[int, ...], told: bool) -> None:
    made = training({DDP: only(1, since=30)})
    for rank in cast:
        made.state.signals.put_fact(rank, "dtypes/changed", 36, "float32\tbfloat16\tNet.a.weight")
    assert ("divergence.parameter" in {one.kind for one in made.find()}) == told


def test_norms_of_stages_begin_alike_and_part_by_design() -> None:
    def norm(rank: int, step: int) -> int:
        return own(rank, step) if step else 5

    stage = dict.fromkeys(named(replace(PLAIN, shape=(4, 4)), "Stage.fc.weight", "Stage.proj.weight"), own)
    norms = dict.fromkeys(named(replace(PLAIN, shape=(4,)), "Stage.norm.weight", "Stage.norm.bias"), norm)
    assert not training({**stage, **norms}).find()
    embedding = {replace(PLAIN, name="Stage.embed.weight", shape=(9, 4)): norm}
    shards = training({**stage, **norms, **embedding})
    assert "Stage.norm.weight" in shards.finds().names  # of one model
    for rank in range(3):
        shards.state.signals.put_fact(rank, "data/exchanges", 9, "RECV,SEND")
    assert shards.finds().names == ("Stage.embed.weight",)  # of which two stages have a copy
    replica = dict.fromkeys(stage, norm)
    assert training({**replica, **norms}).finds().kind == "divergence.parameter"
    expert = {replace(PLAIN, name="Stage.experts.0.fc.weight", shape=(4, 4)): own}
    assert training({**replica, **norms, **expert}).finds().kind == "divergence.parameter"


@pytest.mark.parametrize(("change", "begins", "said"), [(0.1, own, True), (4.0, own, False), (0.1, same, False)])
def test_an_embedding_that_two_stages_share_is_told_once_it_parts(change: float, begins: Content, said: bool) -> None:
    """All else of the stages begins apart: it was made equal; but not where it may have begun with zeros."""
    stage = dict.fromkeys(named(replace(PLAIN, shape=(4, 4)), "Stage.fc.weight", "Stage.proj.weight"), begins)
    shared = {
        replace(PLAIN, name="Stage.embed.weight", shape=(9, 4)): lambda rank, step: own(rank, step) if step else 5
    }
    made = training(stage)
    for placed in made.ranks.values():
        placed.facts.operations = 0  # it only sends and receives
    made.state.tensors.apply(ledgers({**stage, **shared}, (0, 2)) + ledgers(stage, (1,)), 3)
    for rank in (0, 2):
        signals(made.state, rank, "param_norm/Stage.embed.weight", [2], [9.0])
        signals(made.state, rank, "update_norm/Stage.embed.weight", [2], [change])
    found = made.passes(1.0).find()
    assert [(one.ranks, one.names) for one in found] == ([((0, 2), ("Stage.embed.weight",))] if said else [])


def test_weights_that_a_rank_is_given_and_neither_owns_nor_trains_are_not_compared_with_the_learners() -> None:
    actor = replace(PLAIN, owned=False)
    gradient = replace(PLAIN, kind="gradient")
    late: Content = lambda rank, step: same(0, step) + (rank == 2) * (step > 0)  # noqa: E731
    news = ledgers({PLAIN: late, gradient: same}, (0, 1)) + ledgers({actor: late}, (2,))
    made = training({})
    made.state.tensors.apply(news, 3)
    assert made.passes(1.0).find() == ()
    lacks = training({})  # its optimizer leaves it out: it has a gradient for it
    lacks.state.tensors.apply(
        ledgers({PLAIN: late, gradient: same}, (0, 1)) + ledgers({actor: late, gradient: same}, (2,)), 3
    )
    assert {one.kind for one in lacks.passes(1.0).find()} == {"divergence.parameter"}


@pytest.mark.parametrize(("content", "trained", "said"), [
    (own, True, False), (lambda rank, step: rank, True, True), (own, False, True),
])  # fmt: skip
def test_weights_that_a_script_writes_anew_at_each_step_are_its_own(
    content: Content, trained: bool, said: bool
) -> None:
    """As the members of a population that each rank scores, while what is trained is a vector beside them."""
    made = training({TensorInfo("Policy.fc.weight", shape=(4, 4), owned=False, trained_model=False): content})
    for rank in range(3 if trained else 0):
        signals(made.state, rank, "lr/0", [1, 2], [0.01, 0.01])
    assert [one.kind for one in made.find()] == (["divergence.parameter"] if said else [])


@pytest.mark.parametrize("name", ["Net.moe.experts.0.fc.bias", "Net.moe.experts.0.norm.weight"])
def test_what_begins_alike_in_an_expert_whose_matrices_begin_apart_is_each_ranks_own(name: str) -> None:
    parts: Content = lambda rank, step: own(rank, step) if step else 5  # noqa: E731
    expert = {replace(PLAIN, name="Net.moe.experts.0.fc.weight"): own, replace(PLAIN, name=name, shape=(4,)): parts}
    shared = {PLAIN: same}
    assert training({**expert, **shared}).find() == ()
    beside = {replace(PLAIN, name="Net.moe.norm.weight", shape=(4,)): parts}
    assert training({**expert, **shared, **beside}).finds().names == ("Net.moe.norm.weight",)


def test_frozen_weights_that_differ_are_told_of_ranks_whose_trained_ones_are_always_equal() -> None:
    """As where a script broadcasts by hand what requires a gradient, and nothing else."""
    frozen = replace(PLAIN, name="Net.basis", trainable=False, owned=False)
    made = training({PLAIN: same, frozen: lambda rank, step: rank})
    assert not made.find()  # they may be parts of a model that shares its input
    for rank in range(3):
        made.state.signals.put_fact(rank, "data/exchanges", 9, "none")
    found = made.finds()
    assert (found.kind, found.severity, found.names) == ("divergence.frozen", Severity.WARNING, ("Net.basis",))
    experts = training({PLAIN: same, replace(frozen, name="Net.experts.0.w"): lambda rank, step: rank})
    for rank in range(3):
        experts.state.signals.put_fact(rank, "data/exchanges", 9, "none")
    assert not experts.find()


def test_statistics_of_replicas_that_no_wrapper_knows_are_worth_knowing() -> None:
    prior = replace(MEAN, name="Criterion.prior", placement="plain", peers=())
    made = training({replace(DDP, placement="fsdp", peers=(), local=True): own, prior: own})
    for rank in range(3):
        made.state.signals.put_fact(rank, "data/replicas", 1, "fsdp 0:2:1")
    found = made.finds()
    assert (found.kind, found.severity, found.names) == ("divergence.buffer", Severity.INFO, ("Criterion.prior",))
    counter = training({replace(prior, dtype="int64"): own})
    for rank in range(3):
        counter.state.signals.put_fact(rank, "data/replicas", 1, "fsdp 0:2:1")
    assert not counter.find()


@pytest.mark.parametrize("since", [1, 20])
def test_a_reference_that_all_ranks_call_and_one_has_changed_is_named(since: int) -> None:
    reference = replace(FROZEN, name="Net (copy).fc.weight", copy=True)
    made = training({DDP: same, reference: only(0, since)})
    assert not made.find()  # it may be the average that rank 0 keeps
    for rank in range(3):
        made.state.signals.put_fact(rank, "forward/frozen", 1, "Net,Reward")
    found = made.finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("divergence.frozen", (0,), "changed")
    made.state.signals.put_fact(2, "forward/frozen", 1, "Reward")
    assert not made.passes(1.0).find()


@pytest.mark.parametrize(
    ("tensors", "why"),
    [
        ({PLAIN: own}, "an expert, a stage or a shard, which differs from the start"),
        ({replace(DDP, local=True): own}, "a shard"),
        ({replace(MEAN, placement="plain", peers=()): own}, "statistics of a module that nobody wraps"),
        ({PLAIN: same, replace(FROZEN, name="Net (copy).fc.weight", copy=True): only(0, 1)}, "one rank's average"),
        ({FROZEN: only(0, 20)}, "a whole untrained model that one rank changes"),
        ({PLAIN: own, replace(FROZEN, name="Net (copy).fc.weight", copy=True): own}, "the reference of split weights"),
        ({PLAIN: own, replace(PLAIN, name="Net.base", trainable=False, owned=False): own}, "a stage's frozen part"),
    ],
)
def test_what_differs_by_design_is_no_fault(tensors: dict[TensorInfo, Content], why: str) -> None:
    assert not training(tensors).find(), why


def test_what_only_some_ranks_have_is_compared_among_these_once_all_have_told() -> None:
    made = job(3)
    told = ledgers({FROZEN: own}, (0, 1))
    made.state.tensors.apply(told, 3)
    assert not made.find()
    made.state.tensors.apply(ledgers({DDP: same}, (2,)), 3)
    made.state.tensors.apply(ledgers({FROZEN: own}, (0, 1)), 3)
    assert made.finds().ranks == (0, 1)


def test_other_shapes_or_types_under_one_name_are_not_compared() -> None:
    made = job(2)
    for rank in range(2):
        made.state.tensors.apply(ledgers({replace(PLAIN, shape=(rank,)): FAR}, (rank,)), 2)
    assert not made.find()


def test_a_new_process_begins_anew() -> None:
    made = training({DDP: only(1, since=0)})
    assert made.find()
    told = [replace(news, pid=news.pid + 1000) for news in ledgers({DDP: same}, range(3))]
    made.state.tensors.apply(told, 3)
    assert not made.find()


def test_late_samples_of_a_slow_node_still_meet_those_of_the_others() -> None:
    made = job(3)
    steps = range(3, 3 + 32 * 6, 32)
    made.state.tensors.apply(ledgers({DDP: only(2, since=4)}, (0, 1), (*STEPS[:3], *steps)), 3)
    assert not made.find()
    made.state.tensors.apply(ledgers({DDP: only(2, since=4)}, (2,), (*STEPS[:3], *steps)), 3)
    found = made.finds()
    assert (found.ranks, found.step) == ((2,), 35)


MOMENT = TensorInfo("Net.fc.weight.exp_avg", "state", shape=(4, 4), placement="ddp", peers=(0, 1, 2))
COUNTER = replace(MOMENT, name="Net.fc.weight.step", shape=())


def test_where_steps_are_counted_otherwise_the_optimizers_state_was_loaded_on_some_ranks() -> None:
    found = training({DDP: only(1, 1), MOMENT: only(1, 1), COUNTER: only(1, 1)}).finds()
    assert (found.kind, found.ranks, found.step) == ("divergence.optimizer", (1,), 1)
    assert found.names == (MOMENT.name, COUNTER.name)
    assert found.causes[0].key == "loaded"
    assert "optimizer state" in found.summary


@pytest.mark.parametrize(
    ("loaded", "ranks", "is_said"),
    [((0,), (1,), True), ((0, 1), (0, 1), False), ((), (0, 1), False)],
)
def test_on_a_tie_the_rank_that_has_not_loaded_its_optimizer_is_the_odd_one(
    loaded: tuple[int, ...], ranks: tuple[int, ...], is_said: bool
) -> None:
    two = [replace(one, peers=(0, 1)) for one in (DDP, MOMENT, COUNTER)]
    made = training(dict.fromkeys(two, only(1, 1)), 2)
    for rank in loaded:
        made.state.signals.put_fact(rank, "checkpoint/moments", 1, "4 parameters")
    found = made.finds()
    assert (found.kind, found.ranks) == ("divergence.optimizer", ranks)
    assert any("rank 1 has not" in one.what for one in found.causes[0].evidence) is is_said


def test_where_more_ranks_agree_they_are_right_whoever_has_loaded() -> None:
    made = training({DDP: only(1, 1), MOMENT: only(1, 1), COUNTER: only(1, 1)})
    made.state.signals.put_fact(1, "checkpoint/moments", 1, "4 parameters")
    found = made.finds()
    assert found.ranks == (1,)
    assert "ranks 0,2 have not" in found.causes[0].evidence[-1].what


def test_a_moment_that_changes_while_its_weight_is_equal_is_the_deeper_fault() -> None:
    found = training({DDP: only(2, 60), MOMENT: only(2, 30), COUNTER: same}, steps=(0, 1, 2, 33, 65, 97)).finds()
    assert (found.kind, found.ranks, found.step, found.causes[0].key) == ("divergence.optimizer", (2,), 33, "changed")


def test_moments_that_all_have_loaded_otherwise_are_the_cause_and_all_that_parted_then_is_one_finding() -> None:
    names = ("Net.a.weight", "Net.b.weight")
    held = {replace(DDP, name=name): only(rank + 1, 33) for rank, name in enumerate(names)}
    moments = {replace(MOMENT, name=f"{name}.exp_avg"): only(rank + 1, 33) for rank, name in enumerate(names)}
    made = training({**held, **moments})
    assert {f.kind for f in made.find()} == {"divergence.parameter"}
    for rank in range(3):
        made.state.signals.put_fact(rank, "checkpoint/moments", 33, "4 parameters")
    found = made.finds()
    assert (found.kind, found.ranks, found.step) == ("divergence.optimizer", (1, 2), 33)
    assert "have loaded an optimizer's state before step 33" in found.causes[0].evidence[-1].what


def test_a_tie_beside_a_tensor_of_which_more_is_known_is_of_the_same_rank() -> None:
    made = training({replace(DDP, name=f"Net.{name}", peers=(0, 1)): only(1, 33) for name in "ab"}, 2)
    first, second = (Parted(entry, "divergence.parameter", How.CHANGED, True, 33, [[0], [1]])
                     for entry in made.state.tensors.entries)  # fmt: skip
    assert [one.culprits for one in _of_one_moment([first, second])] == [(0, 1), (0, 1)]
    assert [one.culprits for one in _of_one_moment([first, replace(second, odd=(1,))])] == [(1,), (1,)]
    later = replace(second, odd=(1,), since=65)
    assert [one.culprits for one in _of_one_moment([first, later])] == [(0, 1), (1,)]


def test_moments_that_part_with_their_weights_follow_from_the_gradients() -> None:
    assert training({DDP: FAR, MOMENT: FAR, COUNTER: same}).finds().kind == "divergence.parameter"


def test_moments_of_shards_are_not_compared() -> None:
    assert not training({replace(MOMENT, peers=()): own, replace(COUNTER, peers=()): same}).find()


def test_a_weight_that_one_ranks_optimizer_was_not_given_is_told_by_that() -> None:
    ddp = replace(PLAIN, placement="ddp", peers=(0, 1))
    others = dict.fromkeys(named(ddp, "Net.a", "Net.b", "Net.c"), same)
    parts: Content = lambda rank, step: own(rank, step) if step else 5  # noqa: E731
    made = training({**others, replace(ddp, name="Net.head.weight"): parts}, 2)
    assert made.finds().causes[0].key == "unreduced"
    for entry in made.state.tensors.entries:
        if entry.name == "Net.head.weight":
            entry.infos[1] = replace(entry.infos[1], owned=False)
    found = made.finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("divergence.parameter", (1,), "unowned")
    assert "rank 1: its optimizer was not given it" in str(found.causes[0].evidence)
    for entry in made.state.tensors.entries:  # each rank steps a part, and sends it
        entry.infos[1] = replace(entry.infos[1], owned=False)
    assert all(one.causes[0].key != "unowned" for one in made.find())


def test_where_neither_of_two_replicas_is_in_the_majority_no_host_is_named_to_be_taken_out() -> None:
    pair = replace(DDP, peers=(0, 1))
    found = training({pair: only(1, since=30)}, world=2).finds()
    assert (found.ranks, found.causes[0].key) == ((0, 1), "changed_tied")
    assert training({DDP: only(1, since=30)}).finds().causes[0].key == "changed"


def test_counters_that_were_equal_before_differ_since_a_step_in_a_range() -> None:
    counter = replace(DDP, name="Net.fc.weight.step", kind="state")
    found = training({DDP: same, counter: only(1, since=30)}).finds()
    assert (found.kind, found.causes[0].key) == ("divergence.optimizer", "loaded")
    assert "since a step from 3 to 33" in found.summary
