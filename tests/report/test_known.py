"""The facts of a verdict's line: each once, whose it is, and the culprit's among them."""

from typing import Any

from diagd.daemon.report.known import because_text


def cause(*facts: tuple[int | None, str]) -> dict[str, Any]:
    return {"cause": "why", "evidence": [{"what": what, "rank": rank, "source": "stack"} for rank, what in facts]}


def test_a_fact_of_several_ranks_stands_there_once_and_the_culprits_own_beside_it() -> None:
    found = cause((0, "was in a (t.py:1)"), (1, "was in a (t.py:1)"), (3, "in c (t.py:3)"), (2, "was in b (t.py:2)"))
    assert because_text(found, [2]) == ("why [ranks 0,1: was in a (t.py:1) (stack); rank 2: was in b (t.py:2) (stack)]")


def test_ranks_are_not_said_where_all_is_of_one_rank_or_the_fact_says_whose_it_is() -> None:
    assert because_text(cause((1, "asleep"), (1, "no CPU")), [1]) == "why [asleep (stack); no CPU (stack)]"
    found = cause((0, "rank 0 in A"), (1, "rank 1 in B"), (None, "of all"))
    assert because_text(found, [1]) == "why [rank 0 in A (stack); rank 1 in B (stack)]"
    assert because_text(cause((None, "of all"), (1, "late")), [1]) == "why [of all (stack); rank 1: late (stack)]"


def test_what_one_fact_leaves_of_the_line_is_the_others() -> None:
    long = "x " * 100
    assert because_text(cause((None, long), (None, "short")), []) == f"why [{long.strip()} (stack); short (stack)]"
    both = because_text(cause((None, "a " * 400), (None, "b " * 400)), [])
    assert both.count("…") == 2
    assert min(both.count("a "), both.count("b ")) > 90
    assert len(both) < 480
