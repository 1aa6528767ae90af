"""Ledgers side by side: equal contents under other names and forms, and what cannot be compared."""

from collections.abc import Mapping

import pytest

from diagd.daemon.analyze.ledger_tensors import ByStep, Tensor, of_file, tensors_of
from diagd.daemon.analyze.ledgers import Comparison, compare

ALL = "0-3"


def live(name: str, kind: str = "parameter", placement: str = "ddp", **digests: Mapping[str, str]) -> Tensor:
    """A tensor of a running job; `s5={...}` for what ranks held after step 5."""
    told: dict[int | None, Mapping[str, str]] = {int(step[1:]): held for step, held in digests.items()}
    return Tensor(name, kind, "float32", (4, 4), placement, told)


def filed(name: str, digest: str = "aa", dtype: str = "float32") -> Tensor:
    return of_file(name, dtype, (4, 4), digest)


def only(found: Comparison) -> tuple[str, str]:
    """The list that the one pair is in, and why."""
    lists = {name: getattr(found, name) for name in ("equal", "different", "missing", "unknown")}
    ((name, ((_, why),)),) = [(name, listed) for name, listed in lists.items() if listed]
    return name, why


def test_files_with_the_same_content_are_equal_whatever_their_prefixes() -> None:
    left = [filed(f"model.{name}", name) for name in ("a.weight", "a.bias", "b.weight")]
    right = [filed(f"module.net.{name}", name) for name in ("b.weight", "a.weight", "a.bias")]
    found = compare(left, right)
    assert found.same
    assert len(found.equal) == 3


def test_layers_are_not_taken_for_each_other() -> None:
    names = [f"layers.{n}.{leaf}" for n in range(3) for leaf in ("attn.weight", "mlp.weight")]
    found = compare([filed(f"Net.{name}", name) for name in names], [filed(name, name) for name in reversed(names)])
    assert found.same
    assert len(found.equal) == 6
    found = compare([filed("head.weight")], [filed("tail.weight")])
    assert len(found.missing) == 2


@pytest.mark.parametrize(
    ("one", "other", "where", "why"),
    [
        (filed("w"), filed("w", "bb"), "different", "other content"),
        (filed("w"), filed("w", dtype="bfloat16"), "different", "float32[4,4] and bfloat16[4,4]"),
        (live("w", s0={"aa": ALL}, s1={"cc": ALL}), filed("w"), "equal", "as before the first step"),
        (filed("w", "cc"), live("w", s0={"aa": ALL}, s33={"cc": ALL}), "equal", "as after step 33"),
        (live("w", s0={"aa": "0", "bb": "1-3"}), filed("w"), "different", "on ranks 1-3, before the first step"),
        (
            live("w", s0={"bb": ALL}, s1={"cc": ALL}),
            filed("w"),
            "unknown",
            "it was not digested after the step of which the file may be; it is not what was held after steps 0, 1",
        ),
        (live("w", s5={"aa": "0"}), live("w", s5={"aa": ALL}), "equal", "as after step 5"),
        (live("w", s5={"aa": "0"}), live("w", s5={"bb": "0"}), "different", "after step 5"),
        (
            live("w", s5={"aa": "0"}),
            live("w", s6={"aa": "0"}),
            "unknown",
            "the first holds it after step 5, the second after step 6",
        ),
        (live("w", placement="fsdp FULL_SHARD"), filed("w"), "unknown", "split otherwise: fsdp FULL_SHARD and plain"),
        (live("w", placement="dtensor R", s0={"aa": ALL}), filed("w"), "equal", "as before the first step"),
        (live("w"), filed("w"), "unknown", "no digest: it was not sampled yet"),
        (
            live("w", placement="dtensor S(0)", s1={"aa": "0", "bb": "1"}),
            live("w", placement="dtensor S(0)", s1={"aa": "1", "bb": "0"}),
            "different",
            "after step 1",
        ),
    ],
)
def test_each_pair_has_one_verdict(one: Tensor, other: Tensor, where: str, why: str) -> None:
    assert only(compare([one], [other])) == (where, why)


def test_what_a_file_cannot_hold_by_name_is_not_missing() -> None:
    found = compare([live("Net.w", s0={"aa": ALL}), live("Net.w.exp_avg", kind="state")], [filed("w")])
    assert found.same
    assert [name for name, _ in found.unknown] == ["Net.w.exp_avg"]
    assert not compare([live("Net.w"), live("Net.v")], [filed("w")]).same


def test_a_ledger_is_read_as_it_was_written() -> None:
    one = {"name": "w", "kind": "parameter", "dtype": "float32", "shape": [4, 4], "placement": "ddp"}
    document = {"schema": "diagd.ledger/1", "tensors": [one | {"digests": {"5": {"aa": "0-3"}}}]}
    assert tensors_of(document) == [live("w", s5={"aa": ALL})]


@pytest.mark.parametrize("document", [{}, {"schema": "diagd.ledger/3", "tensors": []},
                                      {"schema": "diagd.ledger/1", "tensors": [{"name": "w"}]}])  # fmt: skip
def test_what_is_no_ledger_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="ledger"):
        tensors_of(document)


def test_what_was_not_digested_after_the_step_that_a_file_is_of_is_not_said_to_differ() -> None:
    """Each tensor is digested after other steps; one that never changes, and another in the file, differs for sure."""
    job = [
        live("there", s0={"a0": ALL}, s151={"aa": ALL}), live("elsewhen", s0={"b0": ALL}, s148={"bb": ALL}),
        live("apart", s0={"c0": ALL}, s151={"cc": ALL}), live("frozen", s0={"dd": ALL}, s140={"dd": ALL}),
    ]  # fmt: skip
    file = [filed("there", "aa"), filed("elsewhen", "b1"), filed("apart", "c1"), filed("frozen", "d1")]
    found = compare(job, file)
    assert found.equal == [("there", "as after step 151")]
    assert [name for name, _ in found.unknown] == ["elsewhen"]
    assert [name for name, _ in found.different] == ["apart", "frozen"]
    assert found.different[0][1] == "after step 151, of which others in the file are"


NAMES = ("Net.a.weight", "Net.a.bias", "Net.b.weight")


def training(moment: str = "m") -> list[Tensor]:
    """A job with the state of an optimizer for each of its parameters."""
    held = [live(name, s0={name: ALL}, s33={f"later {name}": ALL}) for name in NAMES]
    return held + [live(f"{name}.exp_avg", "state", s0={f"{moment} {name}": ALL}, s33={"x": ALL}) for name in NAMES]


def checkpoint(numbers: tuple[int, ...] = (0, 1, 2)) -> list[Tensor]:
    """As {"model": …, "opt": optimizer.state_dict()} is saved."""
    held = [filed(f"model.{name.removeprefix('Net.')}", name) for name in NAMES]
    moments = [filed(f"opt.state.{n}.exp_avg", f"m {name}") for n, name in zip(numbers, NAMES, strict=False)]
    return [*held, *moments, filed("opt.state.0.step", "s")]


def test_an_optimizers_state_by_numbers_is_that_of_the_parameters_in_their_order() -> None:
    for found in (compare(training(), checkpoint()), compare(checkpoint(), training())):
        assert (len(found.equal), found.same) == (6, True)
        assert [name for name, _ in found.unknown] == ["opt.state.0.step"]
    other = [name for name, _ in compare(training("other"), checkpoint()).different]
    assert other == [f"{name}.exp_avg" for name in NAMES]


def test_numbers_that_do_not_fit_are_not_compared() -> None:
    found = compare(training(), checkpoint((0, 1)))
    assert (len(found.equal), len(found.unknown), found.same) == (3, 6, True)


def saved(step: int | None, **held: str) -> list[Tensor]:
    """A ledger of one tensor, saved for that step (None: sampled alone): each holds all that its job has sampled."""
    digests: dict[int | None, Mapping[str, str]] = {int(at[1:]): {told: ALL} for at, told in held.items()}
    sums: ByStep = {step: {f"sum of {held[f's{step}']}": ALL}} if step is not None else {}
    return [Tensor("w", "parameter", "float32", (4, 4), "ddp", digests, sums, trained=step is not None)]


RUN = {"s0": "aa", "s1": "bb", "s400": "cc"}


def test_a_ledger_is_judged_by_the_step_that_it_was_saved_for_and_not_by_another_that_both_hold() -> None:
    found = compare(saved(0, **RUN), saved(400, **RUN))
    assert (found.equal, found.different, found.other_moments, found.shared) == ([], [], True, [0, 1, 400])
    assert "the first tells what was held before the first step, the second after step 400" in found.unknown[0][1]
    for step, when in ((0, "before the first step"), (400, "after step 400")):
        for sides in ((saved(step, **RUN), saved(None, **RUN)), (saved(None, **RUN), saved(step, **RUN))):
            assert compare(*sides).equal == [("w", f"as {when}")]
    other = RUN | {"s400": "odd"}
    assert compare(saved(400, **RUN), saved(None, **other)).different == [("w", "after step 400")]
    assert compare(saved(0, **RUN), saved(None, **other)).same


def test_a_step_that_the_other_does_not_hold_is_said_and_nothing_is_called_equal() -> None:
    found = compare(saved(400, **RUN), saved(None, s0="aa", s1="bb"))
    assert (found.equal, found.unknown) == (
        [], [("w", "the first holds it after step 400, the second after steps 0, 1")],
    )  # fmt: skip
    found = compare(saved(0, **RUN), saved(400, **RUN), step=7)
    assert found.unknown == [("w", "the first does not tell what it held after step 7, but after steps 0, 1, 400")]


def test_a_named_step_is_the_one_that_both_are_judged_by() -> None:
    assert compare(saved(0, **RUN), saved(400, **RUN), step=1).equal == [("w", "as after step 1")]
    odd = saved(400, **RUN | {"s1": "odd"})
    assert compare(saved(0, **RUN), odd, step=1).different == [("w", "after step 1")]
    assert compare(saved(400, **RUN), [filed("w", "bb")], step=1).equal == [("w", "as after step 1")]


def test_where_no_step_is_known_all_that_both_sampled_is_compared_and_said() -> None:
    assert compare(saved(None, **RUN), saved(None, **RUN)).equal == [
        ("w", "as at all that both sampled, from before the first step to after step 400")
    ]


@pytest.mark.parametrize("summed", [True, False])
@pytest.mark.parametrize(("kind", "placement", "held", "where"), [
    ("buffer", "ddp, broadcast", {"aa": "0", "bb": "1-3"}, "equal"),
    ("buffer", "ddp, broadcast", {"bb": "1", "cc": "2-3", "aa": "0"}, "equal"),
    ("buffer", "ddp, broadcast", {"bb": "0", "aa": "1-3"}, "different"),  # not what is given to all
    ("buffer", "ddp", {"aa": "0", "bb": "1-3"}, "different"),
    ("parameter", "ddp", {"aa": "0", "bb": "1-3"}, "different"),
    ("buffer", "ddp, broadcast", {"bb": "1-3,10", "aa": "10"}, "different"),  # rank 0 has not told
])  # fmt: skip
def test_buffers_that_rank_0_gives_to_all_are_judged_by_its_own(
    summed: bool, kind: str, placement: str, held: Mapping[str, str], where: str
) -> None:
    told: ByStep = {5: held}
    job = Tensor("bn.mean", kind, "float32", (4, 4), placement, {} if summed else told, told if summed else {})
    file = of_file("bn.mean", "float32", (4, 4), "aa", "aa" if summed else "")
    verdict, why = only(compare([job], [file]))
    assert verdict == where
    assert ("as rank 0 holds it after step 5" in why) == (where == "equal")
    assert only(compare([file], [job]))[0] == where
