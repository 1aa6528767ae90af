"""What each key does to the view."""

from typing import Any

import pytest
from tests.cli.statuses import rank, status
from tests.cli.test_view import eight, thousand

from diagd.daemon.cli.jobview.frame import frame
from diagd.daemon.cli.jobview.snapshot import Snapshot
from diagd.daemon.cli.jobview.ui import Action, Ui, press


def after(keys: str | list[str], snapshot: Snapshot | None = None, **ui: Any) -> Ui:
    view, snapshot = Ui(**ui), snapshot or thousand()
    for key in keys:
        press(key, view, snapshot, frame(snapshot, view, 80, 24))
    return view


@pytest.mark.parametrize(
    ("keys", "selected"),
    [
        (["right"], 1), ("lll", 3), (["down"], 64), ("jjk", 64), (["up"], 0), (["left"], 0), ("h", 0),
        (["end"], 1023), ("Gh", 1022), (["end", "home"], 0), (["end", "down"], 1023), (["pgdn"], 1023),
        (["pgdn", "pgup"], 0),
    ],
)  # fmt: skip
def test_keys_move_over_the_grid_and_stop_at_its_ends(keys: list[str], selected: int) -> None:
    assert after(keys).selected == selected


def test_in_rows_down_is_the_next_rank() -> None:
    assert after("jj", eight()).selected == 2
    assert after(["t", "down"]).selected == 1
    assert after(["t", "pgdn"]).selected == 16


def test_a_rank_is_jumped_to_by_its_number() -> None:
    assert after(["/", "1", "0", "9", "backspace", "0", "enter"]).selected == 100
    assert after(["/", "7", "esc"]).typed is None
    assert after(["/", "7", "esc"]).selected == 0
    assert after(["/", "backspace"]).typed is None
    missing = after([*"/5000", "enter"])
    assert (missing.selected, missing.said) == (0, "there is no rank 5000")
    assert after(["/", *"1" * 50]).typed == "1" * 9
    assert after(["/", "x", "q", "²", "enter"]).selected == 0


def test_n_goes_round_the_ranks_that_stand_out() -> None:
    assert [after("n" * presses).selected for presses in range(1, 7)] == [513, 5, 901, 77, 78, 513]
    assert after("N").selected == 78
    assert after("n", Snapshot.of(status(rank(0)))).said == "no rank stands out"


def test_m_shows_one_thing_after_another() -> None:
    assert [after("m" * presses).metric for presses in range(7)] == [
        "state",
        "phase",
        "step",
        "wait",
        "memory",
        "late",
        "state",
    ]


@pytest.mark.parametrize(("key", "page"), [("i", "incidents"), ("o", "groups"), ("?", "help")])
def test_a_page_opens_and_closes_and_q_goes_back_first(key: str, page: str) -> None:
    assert after(key, scroll=5).page == page
    assert after(key, scroll=5).scroll == 0
    for back in (key, "esc", "q", "backspace"):
        assert after([key, back]).page == "ranks"
    snapshot = eight()
    assert press("q", Ui(), snapshot, frame(snapshot, Ui(), 80, 24)) is Action.QUIT


@pytest.mark.parametrize(
    ("key", "action"), [("enter", Action.STACKS), ("s", Action.STACKS), ("d", Action.DUMP), ("x", None), ("esc", None)]
)
def test_some_keys_ask_for_something_outside(key: str, action: Action | None) -> None:
    snapshot = eight()
    assert press(key, Ui(), snapshot, frame(snapshot, Ui(), 80, 24)) is action


def test_a_page_of_text_scrolls() -> None:
    text = tuple(str(n) for n in range(100))
    assert after(["down", "j", "up"], page="stacks", text=text).scroll == 1
    assert after(["pgdn"], page="stacks", text=text).scroll == 22
    assert after(["end", "up"], page="stacks", text=text).scroll == 77
    assert after(["end", "g"], page="stacks", text=text).scroll == 0


def test_before_the_first_answer_one_can_only_leave_or_ask_for_help() -> None:
    view, empty = Ui(), frame(None, Ui(), 80, 24)
    for key in ("s", "d", "/", "j", "i", "enter"):
        assert press(key, view, None, empty) is None
    assert press("?", view, None, empty) is None
    assert view.page == "help"
    press("q", view, None, empty)
    assert press("q", view, None, empty) is Action.QUIT


def test_without_ranks_no_key_does_harm() -> None:
    snapshot = Snapshot.of(status())
    for key in ("down", "end", "s", "enter", "n", "m", "t", "pgdn"):
        assert press(key, Ui(), snapshot, frame(snapshot, Ui(), 80, 24)) is None


def test_the_selection_stays_on_its_rank_when_ranks_go() -> None:
    view = after(["end"])
    press("left", view, eight(), frame(eight(), view, 80, 24))
    assert view.selected == 6
