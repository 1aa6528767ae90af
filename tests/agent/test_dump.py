"""A dump of ranks in bad states, and of what never heard of diagd."""

import json
import os
import pickle
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.agent.builders import box, enter_all_reduce, process, stand_ins, until

from diagd.daemon.agent import dump_parts, readers, recorder
from diagd.daemon.agent.dump import (
    DumpSummary,
    RankDump,
    _oddest_first,
    collect_dump,
    targets_of_pids,
    targets_of_run,
    targets_outside,
)
from diagd.daemon.agent.dump_context import Context, Target
from diagd.daemon.agent.procfs import Procfs
from diagd.daemon.state.model import Frame, Stack, Thread
from diagd.probes.box import layout

GLOO = Path(__file__).with_name("fixtures") / "gloo_flight_recorder.json"


def load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_stopped_and_a_gil_holding_rank_are_dumped_with_the_rest(tmp_path: Path) -> None:
    run_dir, folder, said = tmp_path / "run", tmp_path / "dump", list[str]()
    run_dir.mkdir()
    with stand_ins(run_dir, "wait", "gil", "wait") as (_, _, stopped):
        os.kill(stopped.pid, signal.SIGSTOP)
        until(lambda: " (stopped)" in Path(f"/proc/{stopped.pid}/status").read_text(encoding="utf-8"))
        summary = collect_dump(targets_of_run(run_dir), folder, said.append, limit_s=60)
    assert sorted(text.partition(" ")[0] for text in said[:3]) == ["rank0", "rank1", "rank2"]
    assert all(text.startswith("native stacks of rank") for text in said[3:])
    assert [rank.state in "RS" for rank in summary.ranks] == [True, True, False]
    assert summary.ranks[2].missing == {
        "collectives": "the process is stopped",
        "native stacks": "the process is stopped: native frames need it to run",
    }
    assert "hold_the_gil" in (folder / "rank1/stacks.txt").read_text(encoding="utf-8")
    assert "wait_in_all_reduce" in (folder / "rank0/stacks_native.txt").read_text(encoding="utf-8")
    assert load(folder / "rank0/process.json")["threads"][0]["name"]
    assert load(folder / "rank0/memory.json")["smaps_rollup"]["Rss"] > 1_000_000
    assert load(folder / "rank0/box.json")["identity"]["rank"] == 0
    assert "rank 1: match ← hold_the_gil stand_in_rank.py" in summary.groups
    assert summary.text == (folder / "summary.txt").read_text(encoding="utf-8")
    assert len(load(folder / "summary.json")["ranks"]) == 3
    assert not summary.complete


def test_only_the_ranks_that_are_asked_for_are_dumped(tmp_path: Path) -> None:
    for rank in range(3):
        box(tmp_path, rank, pid=4_000_000 + rank, start=5)
    assert [target.label for target in targets_of_run(tmp_path, [0, 2, 9])] == ["rank0", "rank2"]


def test_a_stack_without_any_frame_is_missing_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = Stack(os.getpid(), "rank", "R", (Thread(os.getpid(), "MainThread", (), main=True),), 1.0)
    monkeypatch.setattr(dump_parts, "read_stacks", lambda target, proc: (bare,))
    box(tmp_path, 0, pid=os.getpid())
    summary = collect_dump(targets_of_run(tmp_path), tmp_path / "dump", native=False)
    assert "in no Python code" in summary.ranks[0].missing["stacks"]
    assert not summary.complete


def test_of_a_rank_in_no_process_group_no_collectives_are_missing(tmp_path: Path) -> None:
    box(tmp_path, 0, pid=os.getpid()).set_text(layout.GROUPS, {"groups": []})
    summary = collect_dump(targets_of_run(tmp_path), tmp_path / "dump", native=False, limit_s=60)
    assert summary.ranks[0].absent == ["collectives"]
    assert "collectives" not in summary.ranks[0].missing


def test_a_dead_rank_leaves_its_box_in_the_dump(tmp_path: Path) -> None:
    enter_all_reduce(box(tmp_path, pid=4_000_000, start=5))
    summary = collect_dump(targets_of_run(tmp_path), tmp_path / "dump")
    assert summary.ranks[0].parts == ["box"]
    assert summary.ranks[0].missing["stacks"] == "the process has ended"
    assert [op["name"] for op in load(tmp_path / "dump/rank0/collectives.json")] == ["ALLREDUCE"]


def test_a_process_that_knows_nothing_of_diagd_is_dumped_from_outside(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    with stand_ins(run_dir, "unarmed") as (rank,):
        summary = collect_dump(targets_of_pids([rank.pid]), tmp_path / "dump", limit_s=60)
    (found,) = summary.ranks
    assert found.rank is None
    assert f"pid {rank.pid}: " in summary.groups
    assert f"  pid {rank.pid} (state " in summary.text
    assert {"process", "stacks", "native stacks", "memory"} <= set(found.parts)
    assert "started under diagd" in found.missing["box"]
    assert "stand_in_rank.py" in (tmp_path / f"dump/pid{rank.pid}/stacks.txt").read_text(encoding="utf-8")


def test_two_dumps_of_the_same_process_at_once_are_both_whole(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    found: list[DumpSummary] = []
    with stand_ins(run_dir, "wait"):
        targets = targets_of_run(run_dir)
        at_once = [
            threading.Thread(target=lambda n=n: found.append(collect_dump(targets, tmp_path / f"dump{n}", limit_s=60)))
            for n in range(3)
        ]
        for thread in at_once:
            thread.start()
        for thread in at_once:
            thread.join(120)
    assert [rank.state for summary in found for rank in summary.ranks] == ["S"] * 3
    assert all("native stacks" in summary.ranks[0].parts for summary in found), [s.text for s in found]


def test_a_process_that_a_stack_reader_holds_is_waited_for(tmp_path: Path) -> None:
    process(tmp_path, 10, state="t", tracer=11)
    process(tmp_path, 11, name="pystack")
    proc, began = Procfs(tmp_path), time.monotonic()
    assert readers.is_read(proc, 10)
    readers.wait_for(proc, 10, 0.3)
    assert time.monotonic() - began >= 0.3
    process(tmp_path, 11, name="gdb")
    assert not readers.is_read(proc, 10)
    assert readers.foreign_tracer(proc, 10) == 11


@pytest.mark.parametrize(("tracers", "state"), [([0, 11, 0], "S"), ([0, 0], "S"), ([0, 12], "t"), ([], "t")])
def test_a_reader_that_comes_or_goes_between_two_looks_makes_no_process_stopped(
    tmp_path: Path, tracers: list[int], state: str
) -> None:
    process(tmp_path, 10, state="t")
    process(tmp_path, 11, name="py-spy")
    process(tmp_path, 12, name="gdb")

    class Between(Procfs):
        def tracer(self, pid: int) -> int:
            found = tracers.pop(0) if tracers else 0
            if not tracers and state == "S":
                process(tmp_path, 10, state="S")  # the reader has let it go
            return found

    stat = readers.undisturbed_stat(Between(tmp_path), 10, 0.3)
    assert stat is not None
    assert stat.state == state


def test_a_part_that_breaks_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(context: Context) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(dump_parts, "PARTS", None)
    monkeypatch.setattr("diagd.daemon.agent.dump.PARTS", (("memory", broken), ("box", dump_parts.write_box)))
    box(tmp_path, pid=4_000_000, start=5)
    summary = collect_dump(targets_of_run(tmp_path), tmp_path / "dump", native=False)
    assert (summary.ranks[0].parts, summary.ranks[0].missing) == (["box"], {"memory": "OSError: no space left"})


def test_torchs_own_analyzer_reads_the_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed.flight_recorder import fr_trace  # 3 s of import: only here

    monkeypatch.setattr(recorder, "fetch", lambda path, timeout_s: GLOO.read_bytes())
    run_dir, folder = tmp_path / "run", tmp_path / "dump"
    run_dir.mkdir()
    with stand_ins(run_dir, "wait", "wait"):
        targets = targets_of_run(run_dir)
        for target in targets:
            assert target.box is not None
            until(target.box.reader.history)
        members = {"groups": [{"index": n, "name": str(n), "ranks": "0,1"} for n in (0, 1)]}
        monkeypatch.setattr("diagd.probes.box.reader.BoxReader.text", lambda self, section: members)
        summary = collect_dump(targets, folder, limit_s=60)
    assert "collectives" in summary.ranks[0].parts
    assert (folder / "fr_trace_1.json").read_bytes() == GLOO.read_bytes()
    dump = pickle.loads((folder / "flight_recorder/rank_0").read_bytes())
    assert dump["pg_config"]["1"] == {"name": "1", "desc": "undefined", "ranks": "[0, 1]"}
    assert [e["frames"][0]["name"] for e in dump["entries"] if e["frames"]] == ["f"]  # the call with that number
    fr_trace.main([str(folder / "flight_recorder"), "--prefix", "rank_", "-o", str(tmp_path / "db")])
    assert (tmp_path / "db").stat().st_size > 0


def test_what_there_is_no_time_for_is_named(tmp_path: Path) -> None:
    box(tmp_path, pid=4_000_000, start=5)
    summary = collect_dump(targets_of_run(tmp_path), tmp_path / "dump", limit_s=0)
    assert summary.ranks[0].parts == []
    assert set(summary.ranks[0].missing.values()) == {"there was no time for it: after 0 s a dump is closed"}


def test_on_a_busy_machine_it_waits_for_what_is_at_its_heart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(context: Context) -> None:
        time.sleep(1.2)
        context.write_json("late.json", 1)

    parts = (("stacks", slow), ("box", dump_parts.write_box))
    monkeypatch.setattr("diagd.daemon.agent.dump.PARTS", parts)
    box(tmp_path, pid=4_000_000, start=5)
    summary = collect_dump(targets_of_run(tmp_path), tmp_path / "dump", limit_s=1)
    assert summary.ranks[0].parts == ["stacks", "box"]
    assert summary.ranks[0].missing == {"native stacks": "there was no time for it: after 1 s a dump is closed"}


def test_what_comes_after_the_summary_is_not_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summarised, came = threading.Event(), threading.Event()

    def late(context: Context) -> None:
        summarised.wait(60)
        try:
            context.write_json("late.json", 1)
        finally:
            came.set()

    monkeypatch.setattr("diagd.daemon.agent.dump.PARTS", (("memory", late),))
    box(tmp_path, pid=4_000_000, start=5)
    summary = collect_dump(targets_of_run(tmp_path), tmp_path / "dump", native=False, limit_s=0.1)
    summarised.set()
    assert came.wait(60)
    assert list(summary.ranks[0].missing) == ["memory"]
    assert not (tmp_path / "dump/rank0/late.json").exists()


def test_the_odd_rank_is_looked_at_first(tmp_path: Path) -> None:
    ranks = []
    for rank, function in enumerate(("all_reduce", "all_reduce", "match", "")):
        frames = (Frame(function, "train.py", 1),) if function else ()
        stack = Stack(rank, "rank", "S", (Thread(rank, "MainThread", frames, main=True),), 0.0)
        target = Target(rank, rank, f"rank{rank}")
        stacks = (stack,) if function else ()
        ranks.append((Context(target, Procfs(tmp_path), tmp_path, 0.0, stacks), RankDump(rank, rank, f"rank{rank}")))
    assert [dump.rank for _, dump in _oddest_first(ranks)] == [2, 0, 1, 3]


def test_processes_of_the_same_rank_get_folders_of_their_own(tmp_path: Path) -> None:
    from diagd.daemon.agent.outside import OutsideRank

    targets = targets_outside([OutsideRank(0, 10), OutsideRank(0, 11), OutsideRank(1, 12)])
    assert [target.label for target in targets] == ["rank0-pid10", "rank0-pid11", "rank1"]


def test_processes_that_are_named_by_pid_keep_the_ranks_that_they_have(tmp_path: Path) -> None:
    process(tmp_path / "proc", 10, env={"RANK": "3", "WORLD_SIZE": "4"})
    process(tmp_path / "proc", 11)
    box(tmp_path, 2, pid=4_000_000, start=5)
    watched = targets_of_run(tmp_path)
    targets = targets_of_pids([11, 4_000_000, 10, 11], watched, Procfs(tmp_path / "proc"))
    assert [(target.rank, target.label) for target in targets] == [(None, "pid11"), (2, "rank2"), (3, "rank3")]
    assert targets[1].box is watched[0].box


def test_bytes_are_bytes(tmp_path: Path) -> None:
    assert dump_parts._bytes({"VmRSS": "   12 kB", "Threads": "3", "Name": "x"}) == {"VmRSS": 12288, "Threads": 3}
    assert Procfs(tmp_path).pids() == []
