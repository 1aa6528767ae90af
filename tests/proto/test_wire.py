"""Values survive the way into a message and back, whatever they are."""

import math
import typing
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagd.daemon.agent.wire import detail_message, facts_columns
from diagd.daemon.state import model
from diagd.daemon.state.apply import BadMessage, detail_from_message, facts_from_columns, forms
from diagd.daemon.state.model import Detail, Ending, Exit, Facts, Operation, Status
from diagd.proto.v1 import agent_pb2, rank_pb2

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
INT = st.integers(-(2**63), 2**63 - 1)
FLOAT = st.floats(allow_nan=False)
BY_TYPE: dict[type, st.SearchStrategy[object]] = {
    str: TEXT,
    int: INT,
    float: FLOAT,
    bool: st.booleans(),
}
MODELS = (
    model.Frame,
    model.Thread,
    model.Stack,
    model.Operation,
    model.Group,
    model.Ending,
    model.Exit,
    model.Child,
    model.Detail,
)


def values(hint: typing.Any) -> st.SearchStrategy[typing.Any]:
    if hint in BY_TYPE:
        return BY_TYPE[hint]
    args = typing.get_args(hint)
    if type(None) in args:
        return st.none() | values(next(a for a in args if a is not type(None)))
    if typing.get_origin(hint) is tuple:
        if args[-1] is Ellipsis:
            return st.lists(values(args[0]), max_size=2).map(tuple)
        return st.tuples(*[values(a) for a in args])
    hints = typing.get_type_hints(hint, vars(model))
    return st.builds(hint, **{f.name: values(hints[f.name]) for f in fields(hint)})


DETAILS = values(Detail).map(lambda d: d.with_(rank=abs(d.rank) % 1000))
FACTS = st.builds(
    Facts,
    rank=st.integers(0, 10_000),
    pid=INT,
    status=st.sampled_from(Status),
    main_state=TEXT,
    step=INT,
    phase=TEXT,
    step_s=st.floats(),
    wait_s=FLOAT,
    io_bytes=INT,
    finalizing=st.booleans(),
    extra=st.dictionaries(TEXT, FLOAT, max_size=3),
)


def said(fact: Facts) -> str:
    """All of it as text, since a NaN is not equal to itself."""
    fact.extra = dict(sorted(fact.extra.items()))
    return repr(fact)


@given(DETAILS)
@settings(deadline=None, max_examples=25)
def test_a_detail_comes_back_as_it_was(detail: Detail) -> None:
    packed = detail_message(detail).SerializeToString()
    assert detail_from_message(rank_pb2.Detail.FromString(packed)) == detail


@given(st.lists(FACTS, max_size=5))
@settings(deadline=None)
def test_facts_come_back_as_they_were(facts: list[Facts]) -> None:
    packed = facts_columns(facts).SerializeToString()
    back = facts_from_columns(agent_pb2.FactColumns.FromString(packed))
    assert [said(f) for f in back] == [said(f) for f in facts]


@pytest.mark.parametrize("cls", MODELS)
def test_each_field_of_the_model_has_a_field_in_its_message(cls: type) -> None:
    message = getattr(rank_pb2, cls.__name__)
    assert {f.name for f in forms(cls)} == {f.name for f in message.DESCRIPTOR.fields}


def test_text_that_is_no_utf8_is_sent_with_replacements() -> None:
    detail = Detail(0, debugger="\udcff", notes=("a\udcffb",))
    assert detail_from_message(detail_message(detail)).notes == ("a?b",)


def test_times_are_brought_to_the_other_clock_and_no_time_stays_none() -> None:
    detail = Detail(
        0,
        operations=(Operation("SEND", entered_s=100.0, returned_s=None),),
        looks=((50.0, "x"),),
        ending=Ending("exit", at_s=0.0),
        exit=Exit(at_s=7.0),
    )
    back = detail_from_message(detail_message(detail, shift_s=2.5))
    assert back.operations[0].entered_s == 102.5
    assert back.operations[0].returned_s is None
    assert back.looks == ((52.5, "x"),)
    assert back.ending is not None
    assert back.ending.at_s == 0.0
    assert back.exit is not None
    assert back.exit.at_s == 9.5
    (fact,) = facts_from_columns(facts_columns([Facts(0, wait_s=0.0, step_s=10.0, main_cpu_s=3.0)], shift_s=-1.0))
    assert (fact.wait_s, fact.step_s, fact.main_cpu_s) == (0.0, 9.0, 3.0)


def columns(**changes: object) -> agent_pb2.FactColumns:
    made = facts_columns([Facts(0), Facts(1)])
    for name, value in changes.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (columns(schema=9), "schema 9"),
        (columns(rows=3), "bytes for 3 rows"),
        (columns(step=b"123"), "column step"),
        (columns(status=b"\x00\xee"), "unknown word"),
        (columns(phase=b"\x00\xee"), "unknown word"),
        (columns(rank=b"\xff" * 16), "rank is outside"),
    ],
)
def test_broken_columns_are_refused_with_a_reason(broken: agent_pb2.FactColumns, says: str) -> None:
    with pytest.raises(BadMessage, match=says):
        facts_from_columns(broken)


def test_a_rank_beyond_all_reason_is_refused() -> None:
    with pytest.raises(BadMessage, match="rank"):
        detail_from_message(rank_pb2.Detail(rank=10**12))


def test_infinite_and_missing_numbers_are_kept() -> None:
    (fact,) = facts_from_columns(facts_columns([Facts(3, step_s=math.inf, overhead_s=math.nan)]))
    assert fact.step_s == math.inf
    assert math.isnan(fact.overhead_s)
