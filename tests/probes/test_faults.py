"""The grammar of injected faults."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagd.probes import faults
from diagd.probes.faults import KINDS, Fault, FaultError, parse, parse_all


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_parses_its_own_example(kind: str) -> None:
    assert parse(KINDS[kind].example).kind == kind


def test_a_list_of_ranks_is_no_end_of_the_value() -> None:
    fault = parse("slow:rank=0,2-3,factor=2.5,step=20-60")
    assert fault == Fault("slow", ((0, 0), (2, 3)), (20, 60), 2.5)
    assert [rank for rank in range(6) if fault.hits(rank)] == [0, 2, 3]


def test_what_lasts_may_last_to_the_end() -> None:
    first, last = parse("slow:rank=1,factor=2,step=20-").steps
    assert first == 20
    assert last > 10**6


def test_an_exit_is_one_without_an_error_unless_it_says_so() -> None:
    assert parse("exit:rank=1,step=9").code == 0
    assert parse("exit:rank=1,step=9,code=3").code == 3


def test_several_stand_between_blanks() -> None:
    assert [fault.kind for fault in parse_all(" hang:rank=0,step=1  kill:rank=1,step=2 ")] == ["hang", "kill"]
    assert parse_all("") == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hang:rnk=3", "'rnk' is not known, hang takes rank, step; expected e.g. hang:rank=3,step=10"),
        ("hang", "rank missing"),
        ("hagn:rank=3,step=1", "did you mean hang?"),
        ("freeze:rank=3,step=1", "known are hang, gil"),
        ("", "there is no fault ''"),
        ("hang:3,step=1", "'3' is not of the form key=value"),
        ("hang:rank=3,rank=4,step=1", "rank stands there twice"),
        ("hang:rank=-1,step=1", "rank=-1 is neither"),
        ("hang:rank=3-1,step=1", "a range goes upwards"),
        ("hang:rank=0-,step=1", "rank=0- is neither"),
        ("hang:rank=0,,1,step=1", "rank= is neither"),
        ("hang:rank=0-9999999,step=1", "rank=0-9999999"),
        ("hang:rank=0,step=0", "steps count from 1"),
        ("hang:rank=0,step=1,2", "step=1,2 is neither"),
        ("hang:rank=0,step=10-20", "acts once"),
        ("hang:rank=0,step=10-", "step=10- is neither"),
        ("hang:rank=0,step=1,factor=2", "'factor' is not known"),
        ("hang:rank=0,step=1,code=3", "'code' is not known"),
        ("slow:rank=0,step=1-2", "factor missing"),
        ("slow:rank=0,step=1-2,factor=1", "no number above 1"),
        ("slow:rank=0,step=1-2,factor=nan", "no number above 1"),
        ("slow:rank=0,step=1-2,factor=inf", "no number above 1"),
        ("exit:rank=0,step=1,code=256", "no exit code"),
        ("exit:rank=0,step=1,code=-1", "no exit code"),
        ("kill:rank=٣,step=1", "rank=٣ is neither"),
    ],
)
def test_what_is_no_fault_is_told_what_is_wrong_and_what_is_right(text: str, reason: str) -> None:
    with pytest.raises(FaultError) as caught:
        parse(text)
    assert str(caught.value).startswith(f"fault {text!r}: ")
    assert reason in str(caught.value)
    assert "expected e.g. " in str(caught.value)


spans = st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)).map(lambda pair: (min(pair), max(pair)))


@st.composite
def faults_of_all_kinds(draw: st.DrawFn) -> Fault:
    kind = draw(st.sampled_from(sorted(KINDS)))
    ranks = tuple(draw(st.lists(spans, min_size=1, max_size=4)))
    first = draw(st.integers(1, 10**6))
    if not KINDS[kind].factor:
        return Fault(kind, ranks, (first, first), 1.0, draw(st.integers(0, 255)) if kind == "exit" else 0)
    last = draw(st.one_of(st.integers(first, 10**7), st.just(faults._FOREVER)))
    return Fault(kind, ranks, (first, last), draw(st.floats(1.0, 1000.0, exclude_min=True)))


@given(faults_of_all_kinds())
def test_a_fault_is_told_so_that_it_parses_to_itself(fault: Fault) -> None:
    assert parse(str(fault)) == fault
    assert " " not in str(fault)


@given(st.text(max_size=30) | st.text(alphabet="rankstep=,-:0123456789hlowfcd", max_size=40))
def test_no_text_makes_anything_but_a_fault_or_the_error(text: str) -> None:
    try:
        fault = parse(text)
    except FaultError:
        return
    assert parse(str(fault)) == fault


@pytest.mark.parametrize(("text", "steps"), [("hang:rank=3", (10, 10)), ("slow:rank=1,factor=2", (10, 10**9))])
def test_without_a_step_it_comes_once_the_job_is_on_its_way(text: str, steps: tuple[int, int]) -> None:
    assert parse(text).steps == steps
