"""Lines that are read by a pattern of their shape say what they say without one."""

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagd.daemon.artifacts import shapes
from diagd.daemon.artifacts.columns import Piece
from diagd.daemon.artifacts.text import read_json, read_log

Told = dict[tuple[int, str], tuple[list[int], list[int], list[str], int]]


def told(piece: Piece) -> Told:
    """All that it holds; values as text, since a NaN is not equal to itself."""
    return {
        key: (list(c.lines), list(c.steps), [repr(value) for value in c.values], c.decimals)
        for key, c in piece.columns.items()
    }  # fmt: skip


def read(lines: list[str], monkeypatch: pytest.MonkeyPatch | None = None) -> tuple[Told, dict[str, int], int]:
    piece = Piece()
    if monkeypatch is not None:
        monkeypatch.setattr(shapes, "OFTEN", 10**9)  # none ever has a pattern
    read_log(lines, 0, piece)
    return told(piece), piece.skipped, piece.lines


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many lines each pattern has read, once they are put."""
    counts: list[int] = []
    put = shapes.Shape.put

    def noting(shape: shapes.Shape, piece: Piece) -> None:
        counts.append(len(shape.rows))
        put(shape, piece)

    monkeypatch.setattr(shapes.Shape, "put", noting)
    return counts


NUMBER = st.one_of(
    st.integers(-5, 10**6).map(str),
    st.floats(-1e3, 1e3).map(lambda x: f"{x:.4f}"),
    st.sampled_from(
        ["nan", "NaN", "inf", "-inf", "Infinity", "1e-4", "3.E5", ".5", "+7.", "007", "1_000", "1.2.3", "5a"]
    ),
)
FORM = st.sampled_from([
    "[{}/{}][{}/{}] loss: {}",
    "step {} loss {}", "loss {} step {}", "[{}/{}] loss: {} lr={}", "12:{}:{} INFO grad_norm={} loss {}", "{}{}",
    "none",
    "[rank{}]: step {} loss {}", "[rank {}]: loss {}", "[default {}] loss {}", "rank {} step {} loss {}",
    "{} INFO [Rank {}/8] loss {}", "Rank={}, loss {}", "{{'loss': {}, 'step': {}}}",
    "a.py:{} x {}",
    "\x1b[32mloss\x1b[0m {}", " 50%|###   | {}/{} [00:0{}<00:01, loss={}]", '{{"a": {}, "b": {{"c": {}}}}}',
    "loss {} {} tail {}",
])  # fmt: skip


@st.composite
def logs(draw: st.DrawFn) -> list[str]:
    forms = draw(st.lists(FORM, min_size=1, max_size=4))
    numbers = draw(st.lists(NUMBER, min_size=8, max_size=60))
    lines = draw(
        st.lists(st.tuples(st.sampled_from(forms), st.integers(0, len(numbers) - 1)), min_size=10, max_size=60)
    )
    return [form.format(*(numbers[(at + k) % len(numbers)] for k in range(5))) for form, at in lines]


@given(logs())
@settings(deadline=None, max_examples=300)
def test_a_log_says_the_same_with_and_without_patterns(lines: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patching:
        slowly = read(lines, patching)
    assert read(lines) == slowly


def test_lines_of_a_shape_are_read_by_its_pattern(rows: list[int]) -> None:
    found, _, _ = read([line for n in range(40) for line in (f"step {n} loss {n}.25", f"worker {n} fetched {n}")])
    assert rows == [40 - shapes.OFTEN, 40 - shapes.OFTEN]
    assert found[0, "loss"] == (list(range(1, 81, 2)), list(range(40)), [f"{n}.25" for n in range(40)], 2)


def objects(*said: dict[str, Any] | str) -> tuple[Told, dict[str, int]]:
    piece = Piece()
    read_json([one if isinstance(one, str) else json.dumps(one) for one in said], 0, piece)
    return told(piece), piece.skipped


def test_objects_of_several_shapes_stand_in_the_order_of_their_lines() -> None:
    first, second = {"step": 1, "loss": 2.0}, {"loss": 3.0, "step": 2, "note": "warm"}
    found, skipped = objects(first, second, {"step": 3, "loss": 4.0}, "", "no object", '{"loss": NaN, "step": 4}')
    assert found[0, "loss"] == ([1, 2, 3, 6], [1, 2, 3, 4], ["2.0", "3.0", "4.0", "nan"], -1)
    assert sum(skipped.values()) == 1


def test_numbers_beyond_all_floats_and_steps_that_are_none() -> None:
    found, _ = objects(
        {"global_step": math.nan, "loss": 10**400}, {"global_step": 7.0, "loss": 1}, {"rank": 3, "loss": 2}
    )
    assert found[0, "loss"] == ([1, 2], [-1, 7], ["inf", "1.0"], -1)
    assert found[3, "loss"] == ([3], [-1], ["2.0"], -1)


def test_an_int_that_is_negative_beyond_all_floats_is_so_too() -> None:
    assert objects({"loss": -(10**400)}, {"loss": 1.0})[0][0, "loss"][2] == ["-inf", "1.0"]


def test_each_rank_of_a_log_has_a_pattern_of_its_own(rows: list[int]) -> None:
    found, _, _ = read([f"rank {rank} step {n} loss {n}.{rank}" for n in range(40) for rank in (0, 1)])
    assert rows == [40 - shapes.OFTEN] * 2
    assert [found[rank, "loss"][2][7] for rank in (0, 1)] == ["7.0", "7.1"]
