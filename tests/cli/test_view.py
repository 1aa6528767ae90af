"""What a window shows of a job, without a terminal: 1, 8 and 1,024 ranks, missing data, long names, narrow windows."""

from typing import Any

import pytest
from tests.aggregator.fakes import incident
from tests.cli.statuses import NOW_S, rank, status

from diagd.daemon.cli.jobview.cells import METRICS, legend
from diagd.daemon.cli.jobview.frame import frame, plain_lines
from diagd.daemon.cli.jobview.snapshot import Snapshot
from diagd.daemon.cli.jobview.table import row, table_of
from diagd.daemon.cli.jobview.text import cells, clean, clip, fit, plain, size, wrap
from diagd.daemon.cli.jobview.ui import GROUPS, HELP, INCIDENTS, STACKS, Ui
from diagd.daemon.detectors.finding import Severity

WAIT = {"op": "ALLREDUCE", "group": "0", "seconds": 17.0}


def culprit(*ranks: int, waiting: tuple[int, ...] = (), **changes: Any) -> dict[str, Any]:
    return incident(ranks=ranks, waiting_ranks=waiting, **changes).as_json()


def slow(*ranks: int) -> dict[str, Any]:
    return culprit(*ranks, id="2", kind="slow.straggler", severity=Severity.WARNING)


def shown(snapshot: Snapshot | None, width: int = 100, height: int = 24, **ui: Any) -> list[str]:
    return [plain(spans) for spans in frame(snapshot, Ui(**ui), width, height).lines]


def eight() -> Snapshot:
    ranks = [rank(n, state="blocked", wait=WAIT) for n in range(8)]
    ranks[3] = rank(3, step=39)
    return Snapshot.of(status(*ranks, incidents=(culprit(3, waiting=(0, 1, 2, 4, 5, 6, 7)),)))


def thousand(**changes: Any) -> Snapshot:
    ranks = [rank(n) for n in range(1024)]
    ranks[77]["state"], ranks[78]["state"] = "stopped", "lost"
    return Snapshot.of(status(*ranks, incidents=(culprit(513), slow(5, 901)), **changes))


def test_one_rank_has_a_row() -> None:
    lines = shown(Snapshot.of(status(rank(0))))
    assert lines[0] == "job demo, running for 25 s, 1 rank, step 40: torchrun train.py"
    assert lines[1] == "1 running"
    assert lines[4].split() == ["0", "running", "40", "forward", "0", "s", "ago", "-", "1.0", "GiB", "1000", "n0"]


def test_eight_ranks_say_who_is_at_fault_and_who_waits() -> None:
    lines = shown(eight())
    assert lines[:3] == [
        "job demo, running for 25 s, 8 ranks, steps 39-40: torchrun train.py",
        "1 running  7 blocked",
        "critical hang.rank_blocked: rank 1 is blocked in read().",
    ]
    assert len([text for text in lines[5:13] if "ALLREDUCE (0) 17 s" in text]) == 7
    assert lines[8].startswith("!    3  running    39")
    assert "waits in ALLREDUCE (0) 17 s for rank 3" in shown(eight(), selected=2)[-2]
    assert shown(eight(), selected=3)[-3].endswith("; hang.rank_blocked")


def test_a_thousand_ranks_have_a_cell_each_and_fit_an_ordinary_window() -> None:
    lines = shown(thousand(), 80, 24)
    grid = lines[4:20]
    assert len(lines) == 24
    assert [int(text.split()[0]) for text in grid] == list(range(0, 1024, 64))
    assert grid[1] == "  64 ........ .....t?. ........ ........ ........ ........ ........ ........"
    assert "".join(text.split(maxsplit=1)[1].replace(" ", "") for text in grid) == "".join(
        {5: "s", 901: "s", 77: "t", 78: "?", 513: "!"}.get(n, ".") for n in range(1024)
    )
    assert "slow: ranks 5,901" in lines[1]
    assert lines[-4] == "state: . running  t stopped  ? lost  ! culprit  s slow"


@pytest.mark.parametrize(("width", "height"), [(200, 60), (80, 24), (40, 14), (20, 6), (9, 3), (3, 2), (1, 1)])
@pytest.mark.parametrize("table", [True, False])
@pytest.mark.parametrize("page", ["ranks", INCIDENTS, GROUPS, HELP, STACKS])
def test_nothing_is_wider_or_higher_than_the_window(width: int, height: int, table: bool, page: str) -> None:
    for snapshot in (None, Snapshot.of(status()), eight(), thousand()):
        made = frame(snapshot, Ui(page=page, table=table, selected=1023, text=("x" * 300,)), width, height, "reading …")
        assert len(made.lines) <= height
        assert max(sum(cells(span.text) for span in spans) for spans in made.lines) <= width


@pytest.mark.parametrize("height", [8, 12, 24, 60])
@pytest.mark.parametrize("table", [True, False])
@pytest.mark.parametrize("selected", [0, 400, 1023])
def test_the_selected_rank_is_in_the_window(height: int, table: bool, selected: int) -> None:
    for top in (0, 10, 900, 5000):
        made = frame(thousand(), Ui(selected=selected, table=table, top=top), 80, height)
        (chosen,) = [spans for spans in made.lines if any(span.chosen for span in spans)]
        first = int(plain(chosen).replace("!", "").split()[0])
        assert first <= selected < first + made.across


def test_the_view_moves_no_more_than_it_must() -> None:
    assert frame(thousand(), Ui(selected=500, top=498, table=True), 80, 12).top == 498
    assert frame(thousand(), Ui(selected=497, top=498, table=True), 80, 12).top == 497


def test_the_last_line_says_which_part_is_shown() -> None:
    assert shown(thousand(), 80, 10, selected=1023)[-1].startswith("ranks 704-1023 of 1024")
    assert shown(thousand(), 80, 24)[-1].startswith("? help")


def test_ranks_that_have_not_reported_are_not_hidden() -> None:
    snapshot = Snapshot.of(status(rank(0), rank(2), world_size=4))
    lines = shown(snapshot)
    assert lines[0].startswith("job demo, running for 25 s, 2 ranks of 4")
    assert "2 not reported" in lines[1]
    assert [text.split()[:3] for text in lines[5:8:2]] == [["1", "not", "reported"], ["3", "not", "reported"]]
    assert "has not reported yet" in shown(snapshot, selected=1)[-3]
    assert [METRICS[name](snapshot, 1).char for name in METRICS] == ["_"] * len(METRICS)


def test_what_is_not_known_is_a_dash_and_nothing_is_made_up() -> None:
    bare = rank(
        0, step=None, step_seconds=None, seconds_since_progress=None, rss_bytes=None, pid=None, host="", node=""
    )
    snapshot = Snapshot.of(status(bare, started_at=None) | {"now": None, "groups": [], "source": "boxes"})
    assert shown(snapshot)[0] == "job demo, 1 rank, the watch does not answer: nothing is judged: torchrun train.py"
    assert table_of(snapshot).line(0, table_of(snapshot).layout(100))[0].text.split() == [
        "0", "running", "-", "forward", "-", "-", "-", "-", "-",
    ]  # fmt: skip
    assert [METRICS[name](snapshot, 0).char for name in ("step", "wait", "memory")] == ["-", ".", "-"]
    assert "nothing is judged" in shown(snapshot, page=INCIDENTS)[1]
    assert "nothing is judged" in shown(snapshot, page=GROUPS)[1]


def test_a_job_without_ranks_says_so() -> None:
    assert "no rank has reported yet" in shown(Snapshot.of(status()))


def test_before_the_first_answer_there_is_a_line() -> None:
    assert [plain(spans) for spans in frame(None, Ui(), 80, 24, "reading job demo …").lines] == ["reading job demo …"]


@pytest.mark.parametrize(
    ("metric", "chars"),
    [
        ("state", ".b!ke?"),
        ("phase", "fduxxo"),
        ("step", "02+xx0"),
        ("wait", "31.xx."),
        ("memory", "915xx5"),
        ("late", ".5-xx-"),
    ],
)
def test_a_cell_shows_what_is_asked(metric: str, chars: str) -> None:
    ranks = [
        rank(0, wait={**WAIT, "seconds": 29.9}, late_seconds=0.0004),
        rank(1, state="blocked", step=38, phase="data", late_seconds=0.1, rss_bytes=1 << 27,
             wait={**WAIT, "seconds": 1.0}),
        rank(2, step=3, phase="sampling", rss_bytes=1 << 29),
        rank(3, state="killed"), rank(4, state="exited"), rank(5, state="lost", phase="optimizer", rss_bytes=1 << 29),
    ]  # fmt: skip
    snapshot = Snapshot.of(status(*ranks, incidents=(culprit(2),)))
    assert "".join(METRICS[metric](snapshot, n).char for n in range(6)) == chars
    assert METRICS[metric](snapshot, 2).style == "bad"
    assert plain(legend(metric, snapshot))


def test_a_dead_ranks_steps_do_not_hold_the_job_back() -> None:
    assert Snapshot.of(status(rank(0), rank(1, state="exited", step=3))).steps == (40, 40)
    assert Snapshot.of(status(rank(0, state="exited", step=3))).steps == (3, 3)


def test_resolved_incidents_are_told_apart_and_blame_nobody() -> None:
    over = {**culprit(3), "state": "resolved", "resolved_at": NOW_S}
    snapshot = Snapshot.of(status(rank(0), rank(3), incidents=(over,)))
    assert (snapshot.marks, snapshot.open) == ({}, [])
    assert shown(snapshot, page=INCIDENTS)[1].startswith("resolved hang.rank_blocked")


def test_the_worst_incident_names_the_rank_and_comes_first() -> None:
    snapshot = Snapshot.of(status(rank(0), rank(5), incidents=(slow(0, 5), culprit(5))))
    assert {n: mark.kind for n, mark in snapshot.marks.items()} == {0: "slow.straggler", 5: "hang.rank_blocked"}
    assert (snapshot.slow(), snapshot.notable()) == ([0], [5, 0])
    assert shown(snapshot)[2].startswith("critical")


def test_more_incidents_than_there_is_room_for_are_counted() -> None:
    many = tuple(culprit(0, id=str(n)) for n in range(5))
    assert "2 more: i" in shown(Snapshot.of(status(rank(0), incidents=many)))


def test_long_names_are_shortened_before_columns_go() -> None:
    table = table_of(Snapshot.of(status(*(rank(n, host="a-long-host-name.in-a-rack.example.org") for n in range(8)))))
    assert table.layout(100).names[-2:] == ("PID", "HOST")
    assert table.layout(60).names == ("RANK", "STATE", "STEP", "PHASE", "WAITS", "HOST")
    assert table.layout(20).names == ("RANK", "STATE")
    assert "…" in table.line(0, table.layout(90))[0].text


def test_how_late_ranks_are_has_a_column_where_it_is_known_of_any() -> None:
    unknown = table_of(Snapshot.of(status(rank(0), rank(1))))
    assert "LATE" not in unknown.layout(120).names
    late = {0: 0.0, 1: 0.0424, 3: 2.5}
    snapshot = Snapshot.of(status(*(rank(n, late_seconds=late.get(n)) for n in range(4))))
    assert "LATE" in table_of(snapshot).layout(120).names
    assert [row(snapshot.ranks[n], {})["LATE"] for n in range(4)] == ["0 ms", "42 ms", "-", "2.5 s"]
    assert "".join(METRICS["late"](snapshot, n).char for n in range(4)) == ".4-7"
    assert "42 ms late to operations" in " ".join(shown(snapshot, selected=1))


def test_a_name_of_the_jobs_cannot_command_the_terminal() -> None:
    evil = "a\x1b]0;pwned\x07\x1b[2Jb\nc"
    hostile = rank(0, host=evil, phase=evil, wait={"op": evil, "group": evil, "seconds": 1.0}, exit=evil)
    snapshot = Snapshot.of(status(hostile, id=evil, command=[evil], incidents=(culprit(0, kind="hang.rank_blocked"),)))
    for page in ("ranks", INCIDENTS, GROUPS, STACKS):
        made = frame(snapshot, Ui(page=page, text=(evil,)), 200, 24)
        assert all(span.text.isprintable() for spans in made.lines for span in spans)
    assert clean(evil) == "a ]0;pwned [2Jb c"


def test_groups_with_waiting_ranks_come_first() -> None:
    found = status(*(rank(n, wait={**WAIT, "group": "tp"} if n in (2, 3) else None) for n in range(4)))
    found["groups"] += [
        {"name": "tp", "description": "", "ranks": [0, 1], "issued_least": 5, "issued_most": 5},
        {"name": "tp", "description": "", "ranks": [2, 3], "issued_least": 4, "issued_most": 5},
    ]
    rows = [text.split() for text in shown(Snapshot.of(found), page=GROUPS)[2:5]]
    assert rows == [["tp", "2", "2", "4-5", "2,3"], ["0", "4", "-", "39-40", "default_pg", "0-3"],
                    ["tp", "2", "-", "5", "0,1"]]  # fmt: skip


def test_a_page_of_text_scrolls_to_its_end_and_no_further() -> None:
    text = tuple(f"line {n}" for n in range(50))
    made = frame(eight(), Ui(page=STACKS, text=text, text_title="stacks", scroll=1 << 40), 80, 12)
    assert [plain(spans) for spans in made.lines[-3:-1]] == ["line 48", "line 49"]
    assert made.top == 40
    assert "lines 41-50 of 50" in plain(made.lines[-1])


def test_one_look_shows_every_rank() -> None:
    lines = [plain(spans) for spans in plain_lines(thousand(world_size=1030), 100)]
    grid = [text.split(maxsplit=1) for text in lines[4:21]]
    assert [int(first) for first, _ in grid] == list(range(0, 1030, 64))
    assert "".join(cells for _, cells in grid).replace(" ", "").endswith("." + "_" * 6)
    assert "6 not reported" in lines[1]
    assert sum("hang." in text or "slow." in text for text in lines) == 2
    rows = [plain(spans) for spans in plain_lines(eight(), 100)]
    assert [text.split()[0] for text in rows[4:]] == ["0", "1", "2", "!", "4", "5", "6", "7"]


def test_an_absurd_world_size_does_not_fill_the_memory() -> None:
    assert list(Snapshot.of(status(rank(0), rank(7), world_size=10**12)).numbers) == [0, 7]


def test_text_is_measured_in_cells() -> None:
    assert (cells("日本"), cells("e\u0301"), clip("日本語", 4), fit("日本", 5)) == (4, 1, "日…", "日本 ")
    assert (clip("abc", 3), clip("abcd", 3), clip("abc", 0)) == ("abc", "ab…", "")
    assert wrap("  do        look at the log", 16, 12) == [
        "  do        look",
        "            at",
        "            the",
        "            log",
    ]
    assert wrap("x" * 7, 3) == ["xxx", "xxx", "x"]
    assert [size(n) for n in (0, 999, 1 << 20, 1 << 40, 5 << 50)] == ["0 B", "999 B", "1.0 MiB", "1.0 TiB", "5120 TiB"]
