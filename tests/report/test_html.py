"""The page: whole, safe, and in need of nothing else."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.report.reports import incident, report

from diagd.daemon.report.early import EARLY
from diagd.daemon.report.html import page, write_html

EVIL = "<script>alert('x')</script>&\"'{{ 7 * 7 }}"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def tags(text: str) -> set[str]:
    parser = Tags()
    parser.feed(text)
    assert parser.open == []
    return parser.seen


def test_the_page_holds_what_the_report_does() -> None:
    text = page(report(incident(), notes=["no ptrace"]))
    for expected in (
        "hang.data_starved", "rank 1", "ranks 0,2", "train.py:32", "ALLREDUCE #51", "Check the file server",
        "the same stack in 4 looks", "90 % sure", "dumps/i1", "no ptrace", "ended it",
    ):  # fmt: skip
        assert expected in text
    tags(text)


def test_whatever_comes_from_the_job_is_escaped() -> None:
    evil = incident(summary=EVIL, names=[EVIL], group=EVIL, dump=EVIL, id='"><script>')
    evil["locations"][0].update(function=EVIL, file=EVIL)
    evil["causes"][0]["cause"] = EVIL
    evil["causes"][0]["evidence"][0].update(what=EVIL, source=EVIL)
    evil["causes"][0]["fix"] = dict.fromkeys(("action", "expected", "verify", "if_not"), EVIL)
    made = report(evil, notes=[EVIL])
    made["job"].update(id=EVIL, command=[EVIL])
    made["ranks"][0].update(host=EVIL, exit=EVIL, phase=EVIL)
    text = page(made)
    assert "script" not in tags(text)
    assert "{{ 7 * 7 }}" in text  # not evaluated


def test_the_page_needs_no_network() -> None:
    text = page(report(incident()))
    assert not re.search(r"https?://|src=|@import|url\(", text)
    assert "default-src 'none'" in text


def test_a_job_without_ranks_or_end_has_a_page_too() -> None:
    made = report(ranks=0)
    made["job"].update(ended_at=None, exit_code=None, command=[])
    text = page(made)
    assert "No rank was seen" in text
    assert "No incident so far" in text
    tags(text)


def test_a_command_that_failed_before_any_rank_is_headed_by_what_ended_it() -> None:
    made = report(ranks=0, notes=[f"{EARLY}rank 0 failed with SyntaxError: <no>"])
    made["job"].update(exit_code=1)
    text = page(made)
    tags(text)
    assert "before the command ended with exit code 1; rank 0 failed with SyntaxError: &lt;no&gt;" in text
    assert "Not watched" not in text


def test_a_page_that_finds_no_room_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    (tmp_path / "page/x").write_text("")
    with pytest.raises(OSError, match="directory"):
        write_html(report(), tmp_path / "page")
    assert [path.name for path in tmp_path.iterdir()] == ["page"]


def test_a_job_that_nobody_judged_is_not_said_to_be_without_incident() -> None:
    text = page(report(judged=False, notes=["the aggregator was never reached"]))
    tags(text)
    assert "Not judged" in text
    assert "No incident" not in text


def test_a_page_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    write_html(report(incident()), path)
    assert path.read_text().rstrip().endswith("</html>")
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_a_drill_is_said_before_what_it_led_to() -> None:
    text = page(
        report(incident(), notes=["drill: --inject hang:rank=1,step=2", "drill: injected hang at step 2 (rank 1)"])
    )
    assert text.index("Drill, no real fault: --inject hang:rank=1,step=2") < text.index("hang.data_starved")
    assert "Not watched" not in text
