"""What a dump folder holds of a rank beside its flight recorder."""

from diagd.daemon.analyze.enrich import enrich
from diagd.daemon.analyze.folder import RankFolder
from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Child, Stack


def test_children_are_told_as_the_agent_tells_them_and_what_is_none_is_passed_over() -> None:
    upload = {"pid": 77, "state": "S", "name": "sh", "command": ["sh", "upload.sh"], "cpu_s": 0.5}
    children = [
        upload, {**upload, "pid": 78, "name": "pt_data_worker"}, {**upload, "pid": 79},
        {"pid": 80, "state": "Z", "name": "sh", "command": [], "cpu_s": None}, 5, {"pid": "x"},
    ]  # fmt: skip
    loader = Stack(79, "worker", "S", (), 0.0)
    state = JobState(job_id="dump")
    enrich(state, {1: RankFolder(1, process={"pid": 70, "state": "S", "children": children}, stacks=(loader,))})
    assert state.detail(1).children == (
        Child(77, "child", "S", 0.5, "sh upload.sh"),
        Child(78, "worker", "S", 0.5, "sh upload.sh", in_data_loader=True),
        Child(79, "worker", "S", 0.5, "sh upload.sh", in_data_loader=True),
        Child(80, "child", "Z", 0.0, "sh"),
    )


def test_a_dump_without_children_tells_none() -> None:
    state = JobState(job_id="dump")
    enrich(state, {0: RankFolder(0, process={"pid": 70, "children": "?"})})
    assert state.detail(0).children == ()
