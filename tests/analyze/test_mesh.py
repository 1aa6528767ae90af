"""A mesh of which only flight recorders are left: the order of all that ranks issued tells who left the way."""

from pathlib import Path

from tests.analyze.written import Entry, call, faults, judged, save, world

MESH = {"10": (0, 2), "11": (1, 3), "20": (0, 1), "21": (2, 3)}  # two of data parallel, two of tensor parallel


def program(rank: int, *dimensions: str, ends_in: str) -> list[Entry]:
    """A rank's operations, by the dimension of the mesh, and the one that it waits in."""
    names = {"dp": f"1{rank % 2}", "tp": f"2{rank // 2}", "world": "0"}
    entries = [call("all_reduce", dimensions[: n + 1].count(one), group=names[one]) for n, one in enumerate(dimensions)]
    last = call("all_reduce", dimensions.count(ends_in) + 1, group=names[ends_in], state="started")
    return [*entries, last]


def test_who_called_too_much_many_steps_ago_is_named_from_dumps_too(tmp_path: Path) -> None:
    step = ("tp", "dp")
    early, late = step * 10, step * 5
    ranks = [
        program(0, *early, *late, *step, ends_in="world"),
        program(1, *early, *late, "tp", ends_in="dp"),
        program(2, *early, *late, *step, ends_in="world"),
        program(3, *early, "tp", *late, ends_in="tp"),
    ]
    found = judged(save(tmp_path / "d", world(*ranks, groups=MESH)))
    assert faults(found) == [("hang.group_cycle", [3])]
    assert (
        "1 more operation of group 21 (sub_pg: ranks 2,3) than the others, since #11 of group 11 (sub_pg: "
        in found.report["incidents"][0]["summary"]
    )
