"""Ledgers of one step: whole tensors of other numbers of ranks, and against checkpoints."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from diagd.daemon.analyze.ledger_tensors import ByStep, Tensor, of_file, tensors_of
from diagd.daemon.analyze.ledgers import compare
from diagd.daemon.analyze.located import FILE_PARTS, in_which_part, wanted
from diagd.daemon.analyze.pairing import paired

SHAPE = (8, 4)
HALVES = {"0:4,0:4": {"a0": "0"}, "4:8,0:4": {"b0": "1"}}


def live(
    name: str, total: str | Mapping[str, str], step: int = 7, kind: str = "parameter", trained: bool = True,
    parts: Mapping[str, Mapping[str, str]] | None = None, placement: str = "dtensor S(0)", why: str = "",
    digests: ByStep | None = None,
) -> Tensor:  # fmt: skip
    sums: ByStep = {step: {total: "0,1"} if isinstance(total, str) else total} if total else {}
    return Tensor(name, kind, "float32", SHAPE, placement, digests or {}, sums, parts or {}, trained, why)


def filed(name: str, total: str, dtype: str = "float32") -> Tensor:
    return of_file(name, dtype, SHAPE, f"digest of {total}", total)


REST = [(f"Net.{n}", f"t{n}") for n in range(4)]


def job(**more: str) -> list[Tensor]:
    return [live(name, total) for name, total in [*REST, *((f"Net.{k}", v) for k, v in more.items())]]


def checkpoint(**more: str) -> list[Tensor]:
    return [filed(name.removeprefix("Net."), total) for name, total in [*REST, *more.items()]]


def test_a_split_tensor_is_compared_with_a_checkpoint() -> None:
    for left, right in ((job(w="x"), checkpoint(w="x")), (checkpoint(w="x"), job(w="x"))):
        found = compare(left, right)
        assert (found.same, found.kind, {why for _, why in found.equal}) == (True, None, {"as after step 7"})
    found = compare(job(w="x"), checkpoint(w="y"))
    assert (found.different, found.kind) == ([("Net.w", "after step 7")], "divergence.checkpoint")
    assert [(one.name, other.name) for one, other in found.apart] == [("Net.w", "w")]


def test_a_tensor_of_another_number_of_ranks_is_the_same_after_the_same_step() -> None:
    one, other = live("Net.w", "x", placement="plain"), live("_orig_mod.Net.w", "x", parts=HALVES)
    assert compare([one], [other]).equal == [("Net.w", "as after step 7")]
    assert compare([one], [replace(other, sums={7: {"y": "0,1"}})]).different == [("Net.w", "after step 7")]


def test_what_is_of_another_moment_is_not_said_to_differ() -> None:
    """A training that went on changes all that trains; what never changes says nothing of the moment."""
    frozen = live("Net.f", "f", trained=False)
    later = [filed(name.removeprefix("Net."), f"later {total}") for name, total in REST]
    found = compare([*job(), frozen], [*later, filed("f", "f")])
    assert (found.different, len(found.unknown), found.equal) == ([], 4, [("Net.f", "as after step 7")])
    assert "other moments" in found.unknown[0][1]
    resumed = [live(name, f"later {total}", step=3) for name, total in REST]
    assert len(compare(job(), resumed).unknown) == 4
    found = compare(job(), [live(name, total, step=3) for name, total in REST])
    assert {why for _, why in found.equal} == {"as after step 7 and after step 3"}


@pytest.mark.parametrize(("equal", "verdict"), [(1, "different"), (0, "unknown")])
def test_a_quarter_of_what_trains_tells_that_it_is_the_same_moment(equal: int, verdict: str) -> None:
    file = [filed(name.removeprefix("Net."), t if n < equal else f"other {t}") for n, (name, t) in enumerate(REST)]
    assert len(getattr(compare(job(), file), verdict)) == 4 - equal


@pytest.mark.parametrize(("count", "verdict"), [("n7", "different"), ("n8", "unknown")])
def test_how_often_the_optimizer_has_stepped_tells_whether_it_is_the_same_moment(count: str, verdict: str) -> None:
    counter = live("Net.0.step", "n7", kind="state")
    later = [filed(name.removeprefix("Net."), f"other {total}") for name, total in REST]
    found = compare([*job(), counter], [*later, filed("0.step", count)])
    assert [name for name, _ in getattr(found, verdict)[:4]] == [name for name, _ in REST]


def test_a_file_that_is_older_than_the_ledger_is_said_to_be_and_not_to_be_equal() -> None:
    held: ByStep = {0: {"digest of old": "0,1"}, 1: {"other": "0,1"}}
    tensors = [live(f"Net.{n}", f"t{n}", placement="ddp", digests=held) for n in range(3)]
    found = compare(tensors, [filed(str(n), "old") for n in range(3)])
    assert (found.equal, found.different) == ([], [])
    assert {why for _, why in found.unknown} == {
        "the file holds it as it was before the first step, and the ledger is of what was held after step 7"
    }
    assert len(compare(tensors, [filed(str(n), "old") for n in range(3)], step=0).equal) == 3


def test_ranks_that_disagree_are_named() -> None:
    found = compare([*job(), live("Net.w", {"x": "0,1", "y": "2"}, placement="ddp")], checkpoint(w="x"))
    assert found.different == [("Net.w", "on ranks 2, after step 7")]


def test_why_there_is_no_sum_is_said() -> None:
    found = compare([*job(), live("Net.w", "", why="parts of it are missing")], checkpoint(w="x"))
    assert found.unknown == [("Net.w", "parts of it are missing")]


def test_other_types_and_shapes_differ_though_the_parts_have_them_not() -> None:
    found = compare([*job(), live("Net.w", "x")], [*checkpoint(), filed("w", "x", dtype="bfloat16")])
    assert found.different == [("Net.w", "float32[8,4] and bfloat16[8,4]")]


def test_wrappers_in_the_midst_of_a_name_are_none_of_it() -> None:
    names = [
        "Net.a._fsdp_wrapped_module.w",
        "Net.b._orig_mod.w",
        "Net.c._checkpoint_wrapped_module.w",
        "Net.d.module.w",
    ]
    left = [live(name, name) for name in names]
    right = [filed(f"{letter}.w", name) for letter, name in zip("abcd", names, strict=True)]
    pairs, *rest = paired(left, right)
    assert sorted((one.name, other.name[0]) for one, other in pairs) == sorted(zip(names, "abcd", strict=True))
    assert rest == [[], []]


def test_a_module_that_is_called_module_is_taken_for_no_wrapper_where_that_is_ambiguous() -> None:
    left = [live("x.module.w", "1"), live("x.w", "2")]
    pairs, only_left, only_right = paired(left, [filed("y.z.module.module.w", "1")])
    assert len(pairs) + len(only_left) == 2
    assert len(pairs) + len(only_right) == 1


def test_a_saved_ledger_of_one_step_is_read() -> None:
    one = {"name": "w", "kind": "parameter", "dtype": "float32", "shape": [8, 4], "placement": "dtensor S(0)",
           "trained": True, "digests": {"1": {"aa": "0"}}, "sums": {"7": {"x": "0,1"}}, "parts": HALVES}  # fmt: skip
    (read,) = tensors_of({"schema": "diagd.ledger/2", "step": 7, "tensors": [one]})
    assert read == live("w", "x", parts=HALVES, digests={1: {"aa": "0"}})


def test_the_part_that_differs_is_named_with_its_ranks() -> None:
    theirs = {"0:4,0:4": {"a0": ""}, "4:8,0:4": {"b1": ""}}
    assert in_which_part(SHAPE, HALVES, theirs) == "in rows 4 to 7 (rank 1)"
    assert in_which_part(SHAPE, HALVES, {region: {"z": ""} for region in HALVES}) == ""
    assert in_which_part(SHAPE, HALVES, {}) == ""
    rows = {f"{n}:{n + 1},0:4": {str(n): "0"} for n in range(8)}
    odd = {region: {"9": ""} for region in list(rows)[:5]}
    assert in_which_part(SHAPE, rows, rows | odd) == (
        "in row 0 (rank 0), row 1 (rank 0), row 2 (rank 0) and 2 more of 8 parts"
    )


def test_of_a_file_the_parts_are_wanted_that_lie_on_the_ranks_and_of_two_files_some_rows() -> None:
    file = filed("w", "x")
    assert wanted(live("w", "y", parts=HALVES), file) == wanted(file, live("w", "y", parts=HALVES)) == list(HALVES)
    assert wanted(live("w", "y", parts=HALVES), live("w", "y")) == []
    assert wanted(file, file) == [f"{n}:{n + 1},0:4" for n in range(8)]
    large = replace(file, shape=(1000,))
    assert len(wanted(large, large)) == FILE_PARTS
    assert wanted(file, large) == []
