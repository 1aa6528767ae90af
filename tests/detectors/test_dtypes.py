"""Tensors of another dtype than on other ranks, than before, or than what they hold needs."""

from dataclasses import replace

import pytest
from tests.detectors.states import Job, job

from diagd.daemon.detectors.dtypes import dtype_mismatch
from diagd.daemon.detectors.finding import Finding, Severity
from diagd.daemon.detectors.scene import scene_of
from diagd.daemon.state.tensors import LedgerNews, TensorInfo

WEIGHT = TensorInfo("Net.head.weight", shape=(4, 8), peers=(0, 1, 2))
HALF = replace(WEIGHT, dtype="bfloat16")


def told(*ranks: tuple[TensorInfo, ...]) -> Job:
    """Ranks that hold these tensors."""
    made = job(len(ranks))
    news = [LedgerNews(rank, 100 + rank, 0, tensors) for rank, tensors in enumerate(ranks)]
    made.state.tensors.apply(news, len(ranks))
    return made


def find(made: Job) -> list[Finding]:
    return list(dtype_mismatch(scene_of(made.state)))


def test_the_rank_whose_replica_has_another_dtype_is_named() -> None:
    (found,) = find(told((WEIGHT,), (HALF,), (WEIGHT,)))
    assert (found.kind, found.severity, found.ranks) == ("precision.dtype_mismatch", Severity.CRITICAL, (1,))
    assert found.names == ("Net.head.weight", "bfloat16", "float32")


def test_of_two_ranks_it_is_the_one_whose_tensor_is_unlike_all_others() -> None:
    body = replace(WEIGHT, name="Net.body.weight", peers=(0, 1))
    mine, other = replace(WEIGHT, peers=(0, 1)), replace(HALF, peers=(0, 1))
    assert find(told((body, mine), (body, other)))[0].ranks == (1,)
    assert find(told((mine,), (other,)))[0].ranks == (0, 1)


def test_tensors_that_nothing_says_are_replicas_are_a_warning() -> None:
    plain = replace(WEIGHT, peers=())
    (found,) = find(told((plain,), (plain,), (replace(plain, dtype="float16"),)))
    assert (found.ranks, found.severity) == ((2,), Severity.WARNING)


def test_other_shapes_shards_and_ranks_that_have_not_told_are_no_mismatch() -> None:
    plain = replace(WEIGHT, peers=())
    assert find(told((plain,), (replace(plain, dtype="bfloat16", shape=(2, 2)),))) == []
    assert find(told((replace(plain, local=True),), (replace(plain, dtype="bfloat16", local=True),))) == []
    assert find(told((WEIGHT,), (HALF,), ())) == []
    assert find(told((HALF,), (HALF,), (HALF,))) == []


def test_a_dtype_that_changes_in_the_midst_is_told_with_its_step() -> None:
    made = told((), ())
    made.state.signals.put_fact(1, "dtypes/changed", 48, "float32\tbfloat16\tNet.a,Net.b")
    (found,) = find(made)
    assert (found.ranks, found.step, found.names) == ((1,), 48, ("Net.a", "Net.b", "bfloat16"))


def test_an_optimizers_state_that_was_cast_as_it_was_loaded_is_told_with_what_it_is() -> None:
    made = told((), ())
    for rank in range(2):
        made.state.signals.put_fact(
            rank, "dtypes/state", 101, "float32\tbfloat16\tNet.a.master,Net.a.exp_avg,Net.b.master"
        )
    (found,) = find(made)
    assert (found.ranks, found.step, found.severity) == ((0, 1), 101, Severity.WARNING)
    assert {"Net.a.master", "master", "exp_avg", "optimizer state", "bfloat16"} <= set(found.names)
    assert "master, exp_avg of Net.a, Net.b" in found.summary


def test_buffers_that_half_precision_falsifies_are_one_finding_for_each_kind() -> None:
    made = told((), ())
    for rank in range(2):
        for layer in range(3):
            made.state.signals.put_fact(rank, f"dtypes/buffer/Net.{layer}.inv_freq", 1, "bfloat16\tfrequencies\t64")
        made.state.signals.put_fact(rank, "dtypes/buffer/Net.position", 1, "float16\tpositions\t4096")
    frequencies, positions = find(made)
    assert (frequencies.ranks, frequencies.names[0], frequencies.severity) == (
        (0, 1),
        "Net.0.inv_freq",
        Severity.WARNING,
    )
    assert positions.names == ("Net.position", "float16")
    assert "2048" in positions.summary


@pytest.mark.parametrize(
    ("cast", "counted", "severity"),
    [((2,), (128, 128, 128), Severity.WARNING), ((0, 1, 2), (128, 128, 128), Severity.INFO),
     ((2,), (128, 64, 128), None)],
)  # fmt: skip
def test_frozen_weights_that_some_ranks_have_cast_are_told_once_others_are_known_not_to(
    cast: tuple[int, ...], counted: tuple[int, ...], severity: Severity | None
) -> None:
    made = told((), (), ())
    for rank, step in enumerate(counted):
        made.state.signals.put(rank, "parameters/owned", [step], [4.0])
    for rank in cast:
        made.state.signals.put_fact(rank, "dtypes/frozen", 128, "float32\tbfloat16\tTeacher.embed.weight")
    found = find(made)
    assert [(one.ranks, one.severity, one.names) for one in found] == (
        [] if severity is None else [(cast, severity, ("Teacher.embed.weight", "bfloat16"))]
    )
    assert all(("on ranks 0,1 they still are float32" in one.summary) == (cast == (2,)) for one in found)


def test_a_buffer_that_one_rank_casts_in_the_midst_of_training_is_told_with_the_rank() -> None:
    made = told((), (), ())
    for rank in range(3):
        made.state.signals.put(rank, "parameters/owned", [128], [4.0])
    made.state.signals.put_fact(1, "dtypes/recast", 48, "float32\tbfloat16\tNet.inv_freq")
    (found,) = find(made)
    assert (found.kind, found.ranks, found.causes[0].key) == ("precision.dtype_mismatch", (1,), "recast")
    assert "buffers Net.inv_freq were float32 and are bfloat16" in found.summary
