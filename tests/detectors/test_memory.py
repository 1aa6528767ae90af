"""What is said of memory that grows: leaks by name, caches not at all, and when it runs out."""

from typing import Any

import numpy as np
import pytest
from tests.detectors.memories import BASE, GIB, MIB, Run, flat, leak
from tests.detectors.scalars import signals

from diagd.daemon.detectors.finding import Basis, Severity
from diagd.daemon.detectors.growth import Floats
from diagd.daemon.state.model import Facts, Frame, Status


def test_a_rank_that_keeps_its_graphs_is_named_with_the_list_and_the_place() -> None:
    found = Run(1, 100).holds(0, leak(100, 2.7)).holder(graph=True, path="hist.losses").one()
    assert (found.kind, found.severity, found.ranks) == ("memory.host_leak", Severity.WARNING, (0,))
    assert found.names == ("rss", "hist.losses")
    assert found.locations[0].frame == Frame("History.add", "/job/train.py", 12)
    assert found.step is not None
    assert found.step <= 15
    (cause,) = found.causes
    assert (cause.key, cause.basis) == ("graph", Basis.OBSERVATION)
    assert "hist.losses" in found.summary
    assert "memory runs out in about" in found.summary


@pytest.mark.parametrize(("each", "key"), [(2_000_000, "both"), (40_000, "graph")])
def test_what_a_container_keeps_beside_graphs_may_be_the_most_of_it(each: int, key: str) -> None:
    found = Run(1, 100).holds(0, leak(100, 2.7)).holder(graph=True, bytes=each).one()
    assert found.causes[0].key == key


def test_a_graph_that_goes_on_needs_no_container() -> None:
    run = Run(1, 80).holds(0, leak(80, 2.0))
    found = run.holder(graph=True, kind="graph", path="total", owner="", function="main", grew=80).one()
    assert found.causes[0].key == "graph"
    assert "the graph of total in main" in found.summary


def test_what_reading_the_flight_recorder_leaves_in_a_rank_is_no_leak_of_it() -> None:
    left = 0.5 * MIB * np.arange(160, dtype=np.float64)
    assert Run(1, 160).holds(0, flat(160) + left).finds()  # without a word of where it comes from it is
    assert not Run(1, 160).holds(0, flat(160) + left).tells(0, "memory/answers", left[::4], every=4).finds()
    run = Run(1, 160).holds(0, leak(160, 1.0) + left).tells(0, "memory/answers", left[::4], every=4)
    assert run.holder().one().names == ("rss", "hist.store")


def test_only_the_one_rank_that_grows_is_named() -> None:
    run = Run(3, 150).holds(0, flat(150)).holds(1, flat(150, seed=3)).holds(2, leak(150, 1.0)).holder(2)
    assert run.one().ranks == (2,)


def test_ranks_that_leak_alike_are_one_fault() -> None:
    run = Run(3, 150)
    for rank in range(3):
        run.holds(rank, leak(150, 1.0, seed=rank)).holder(rank)
    assert run.one().ranks == (0, 1, 2)


def test_a_rank_of_which_nobody_saw_in_what_it_grows_belongs_to_those_that_grow_alike() -> None:
    run = Run(3, 150).holds(0, leak(150, 1.0)).holds(1, leak(150, 1.0, seed=1)).holds(2, flat(150)).holder(1)
    found = run.one()
    assert (found.ranks, found.names, found.locations[0].rank) == ((0, 1), ("rss", "hist.store"), 1)
    other = Run(3, 150).holds(0, leak(150, 0.4)).holds(1, leak(150, 2.0, seed=1)).holds(2, flat(150)).holder(1)
    assert other.one().ranks == (1,)


def test_a_rank_that_grows_alone_leaks_though_nobody_saw_in_what() -> None:
    run = Run(3, 200).holds(0, flat(200)).holds(1, flat(200, seed=3)).holds(2, leak(200, 1.0))
    found = run.one()
    assert (found.causes[0].key, found.severity, found.ranks) == ("alone", Severity.WARNING, (2,))
    assert found.causes[0].basis is Basis.INFERENCE
    little = Run(3, 400).holds(0, flat(400)).holds(1, flat(400, seed=3)).holds(2, leak(400, 0.15)).one()
    assert (little.causes[0].key, little.severity) == ("alone", Severity.INFO)


def test_where_python_allocates_what_is_kept_is_said_where_a_person_has_asked_for_it() -> None:
    run = Run(3, 200).holds(0, flat(200)).holds(1, flat(200, seed=3)).holds(2, leak(200, 1.0))
    rows = "20971520\t20\t20\t/job/train.py\t33\tfetch\n1048576\t400\t20\t/job/train.py\t9\tlog"
    run.state.signals.put_fact(2, "memory/allocated", 90, rows)
    found = run.one()
    assert [(place.rank, place.frame.function, place.frame.line) for place in found.locations] == [
        (2, "fetch", 33), (2, "log", 9),
    ]  # fmt: skip
    assert ", allocated at fetch (train.py:33)" in found.summary
    said = "Python allocated and kept in 20 steps: 20 MiB in 20 blocks at fetch (train.py:33), 1.0 MiB in 400 blocks"
    assert any(one.what.startswith(said) and one.step == 90 for one in found.causes[0].evidence)
    assert run.holder(2).one().locations[0].frame.function == "History.add"  # what holds it says more


@pytest.mark.parametrize("text", ["0\t0\t20\t\t0\t", "0\t0"])
def test_where_python_keeps_nothing_that_is_said_and_what_was_cut_off_is_not(text: str) -> None:
    run = Run(3, 200).holds(0, flat(200)).holds(1, flat(200, seed=3)).holds(2, leak(200, 1.0))
    run.state.signals.put_fact(2, "memory/allocated", 90, text)
    found = run.one()
    assert found.locations == ()
    said = any("Python itself kept nothing that it allocated in 20 steps" in e.what for e in found.causes[0].evidence)
    assert said == text.endswith("\t")


def test_all_that_grow_together_may_be_filling_a_cache() -> None:
    run = Run(2, 200).holds(0, leak(200, 1.0)).holds(1, leak(200, 1.0, seed=5))
    assert run.one().severity is Severity.INFO
    assert "a cache" in run.one().summary


def test_what_the_script_empties_is_not_spoken_of() -> None:
    assert Run(1, 400).holds(0, leak(400, 3.2)).holder(verdict="emptied").finds() == []


def test_a_table_that_single_entries_are_taken_out_of_leaks_where_it_outgrows_what_is_under_way() -> None:
    found = Run(1, 400).holds(0, leak(400, 3.2)).holder(verdict="taken").one()
    assert (found.kind, found.severity, found.causes[0].key) == ("memory.host_leak", Severity.WARNING, "left")
    assert Run(1, 80).holds(0, leak(80, 3.2)).holder(verdict="taken").finds() == []  # too soon
    assert Run(1, 400).holds(0, leak(400, 0.2)).holder(verdict="taken").finds() == []  # 80 MiB
    assert Run(1, 400).holds(0, leak(400, 3.2)).holder(verdict="taken", bounded=True).finds() == []


def test_a_cache_is_worth_knowing_once_it_is_large_and_no_epoch_ends_it() -> None:
    run = Run(1, 400).holds(0, leak(400, 3.2)).holder(verdict="cache")
    assert (run.one().kind, run.one().severity) == ("memory.host_leak", Severity.INFO)
    assert "a cache without a bound" in run.one().summary
    assert run.loader(length=500).finds() == []
    assert Run(1, 80).holds(0, leak(80, 3.2)).holder(verdict="cache").finds() == []  # it may well end soon
    assert Run(1, 400).holds(0, leak(400, 0.2)).holder(verdict="cache").finds() == []  # 80 MiB


def test_a_bounded_buffer_is_not_spoken_of() -> None:
    assert Run(1, 400).holds(0, leak(400, 3.2)).holder(bounded=True, kind="deque").finds() == []


def test_a_cache_that_was_freed_leaves_nothing() -> None:
    run = Run(1, 220).holds(0, np.concatenate([leak(110, 3.2), flat(110)])).holder(verdict="kept")
    assert run.finds() == []


def test_a_buffer_that_was_allocated_at_once_and_fills_is_no_leak() -> None:
    """A replay buffer made of zeros is resident only where it was written."""
    filled, at_once = leak(1500, 1.0), np.full(1500, 40 * GIB)
    assert Run(1, 1500).holds(0, filled, at_once).finds() == []
    assert Run(1, 1500).holds(0, filled).one().causes[0].key == "long"


def test_through_the_data_once_is_no_time_for_a_verdict_and_well_beyond_is() -> None:
    once = Run(1, 500).holds(0, leak(500, 1.0)).loader(length=450)
    beyond = Run(1, 620).holds(0, leak(620, 1.0)).loader(length=450)
    assert once.one().severity is Severity.INFO
    assert (beyond.one().severity, beyond.one().causes[0].key) == (Severity.WARNING, "epoch")


def test_little_growth_is_not_spoken_of() -> None:
    assert Run(1, 200).holds(0, leak(200, 0.1)).holder().finds() == []
    assert Run(1, 200).holds(0, leak(200, 2.0, base=20 * GIB)).holder().finds() == []


def test_a_large_process_need_not_grow_by_a_tenth() -> None:
    assert Run(1, 1000).holds(0, leak(1000, 2.0, base=40 * GIB)).holder().one().severity is Severity.WARNING


def test_what_would_fill_the_memory_in_weeks_is_only_worth_knowing() -> None:
    slow = Run(1, 2000, step_s=20.0, room=900 * GIB).holds(0, leak(2000, 0.06)).holder()
    assert slow.one().severity is Severity.INFO


def test_a_leak_that_ends_the_run_soon_is_critical_with_step_and_time() -> None:
    found = Run(1, 200, room=1 * GIB).holds(0, leak(200, 4.0)).holder().one()
    assert (found.kind, found.severity) == ("memory.host_leak", Severity.CRITICAL)
    assert "near step 46" in found.summary  # 200 and 256
    assert "about 12 s" in found.summary


def test_ranks_of_a_node_fill_its_memory_together() -> None:
    alone = Run(1, 200, room=4 * GIB).holds(0, leak(200, 4.0)).holder().one()
    run = Run(4, 200, room=4 * GIB)
    for rank in range(4):
        run.holds(rank, leak(200, 4.0, seed=rank)).holder(rank)
    assert "about 1000 steps" in alone.summary
    assert "about 260 steps" in run.one().summary


# --- data workers


def kept(where: str = "Captions.__getitem__") -> list[list[object]]:
    return [["Captions.decoded", "kept", [where, "/job/data.py", 30]]]


def test_workers_that_keep_samples_are_named_with_their_dataset() -> None:
    run = Run(1, 200).holds(0, flat(200)).workers(0, leak(20, 10.0, base=600 * MIB)).loader(grown=kept())
    found = run.one()
    assert (found.kind, found.severity, found.ranks) == ("memory.host_leak", Severity.WARNING, (0,))
    assert found.names[:4] == ("worker rss", "DataLoader worker", "Captions", "Captions.decoded")
    assert found.locations[0].frame.line == 30
    assert found.causes[0].key == "worker_kept"


def test_workers_that_cache_what_they_decode_are_not() -> None:
    grown = [["Captions.cache", "cache", ["Captions.__getitem__", "/job/data.py", 30]]]
    run = Run(1, 200).holds(0, flat(200)).workers(0, leak(20, 10.0, base=600 * MIB)).loader(grown=grown)
    assert run.finds() == []


def test_other_child_processes_that_grow_are_worth_knowing() -> None:
    sizes = leak(200, 1.0, base=100 * MIB)
    run = Run(1, 200).holds(0, flat(200)).tells(0, "memory/child_rss", sizes)
    run.tells(0, "memory/child_first", np.full(200, 7.0)).tells(0, "memory/child_count", np.full(200, 1.0))
    found = run.one()
    assert (found.kind, found.severity, found.names[0]) == ("memory.host_leak", Severity.INFO, "child rss")
    assert "the child processes of rank 0 grow" in found.summary
    again = Run(1, 200).holds(0, flat(200)).tells(0, "memory/child_rss", sizes)  # one that was started anew
    again.tells(0, "memory/child_first", np.repeat([7.0, 8.0, 9.0, 10.0], 50))
    assert again.tells(0, "memory/child_count", np.full(200, 1.0)).finds() == []


@pytest.mark.parametrize(("counts", "said"), [
    ([0, 3, 6, 9, 12, 15, 18], True),
    ([0, 3, 6, 9, 9, 9, 9, 9, 9, 9], False),  # they are all there
    ([0, 12, 12, 12, 12, 12, 12], False),
    ([0, 3, 6, 9, 12, 15, 2], False),  # ended
    ([0, 1, 2, 3, 4, 5, 6], False),
    ([9, 2, 5, 8, 11, 14], True),
])  # fmt: skip
def test_processes_that_are_started_again_and_again_and_never_ended(counts: list[int], said: bool) -> None:
    run = Run(1, 200).holds(0, flat(200)).tells(0, "memory/child_count", np.asarray(counts, float), every=20)
    run.tells(0, "memory/child_rss", np.asarray(counts) * 10.0 * MIB, every=20)
    found = run.finds()
    assert [(f.kind, f.severity, f.causes[0].key) for f in found] == (
        [("memory.host_leak", Severity.WARNING, "children")] if said else []
    )
    assert all(f"{counts[-1]} now, {10 * counts[-1]} MB" in f.summary.replace("MiB", "MB") for f in found)


def test_workers_that_were_started_anew_begin_anew() -> None:
    sizes = np.concatenate([leak(20, 10.0, base=600 * MIB), flat(6, base=600 * MIB)])
    first = np.array([7.0] * 20 + [9.0] * 6)
    assert Run(1, 260).holds(0, flat(260)).workers(0, sizes, first).loader(grown=kept()).finds() == []


def test_workers_that_are_gone_hold_nothing() -> None:
    run = Run(1, 220).holds(0, flat(220)).workers(0, leak(20, 10.0, base=600 * MIB)).loader(grown=kept())
    assert run.finds()
    run.state.signals.put(0, "memory/workers", [210], [0.0])
    assert run.finds() == []


# --- running out


def test_growth_without_a_leak_that_fills_the_memory_soon_is_a_risk() -> None:
    run = Run(1, 400, room=0.5 * GIB).holds(0, leak(400, 4.0)).holder(verdict="cache")
    leak_, found = run.finds()
    assert (leak_.kind, leak_.severity) == ("memory.host_leak", Severity.INFO)  # a cache, as far as is known
    assert (found.kind, found.severity, found.ranks) == ("memory.oom_risk", Severity.CRITICAL, (0,))
    assert "near step 530" in found.summary  # 400 and 128


def test_a_cache_that_is_full_before_the_memory_is_no_risk() -> None:
    run = Run(1, 400, room=1.2 * GIB).holds(0, leak(400, 4.0)).holder(verdict="cache").loader(length=500)
    assert run.finds() == []
    assert run.loader(length=5000).one().kind == "memory.oom_risk"


@pytest.mark.parametrize(("most", "said"), [(440, False), (2000, True)])
def test_a_bounded_container_is_a_risk_only_where_its_end_is_behind_the_memorys(most: int, said: bool) -> None:
    run = Run(1, 400, room=1.5 * GIB).holds(0, leak(400, 4.0))
    run.holder(bounded=True, kind="deque", most=most, size=400, grew=20, steps=20)
    assert [f.kind for f in run.finds()] == (["memory.oom_risk"] if said else [])


def test_a_limit_of_the_process_is_room_that_it_shares_with_nobody() -> None:
    run = Run(2, 400).holds(0, leak(400, 4.0)).holds(1, flat(400)).holder(verdict="cache")
    for rank in (0, 1):
        run.tells(rank, "memory/own_limit", np.array([2.5 * GIB])).tells(rank, "memory/own_left", np.array([GIB]))
    (risk,) = [found for found in run.finds() if found.kind == "memory.oom_risk"]
    assert (risk.ranks, risk.severity) == ((0,), Severity.CRITICAL)
    assert "1.0 GiB are left of the 2.5 GiB that a limit of the process (ulimit) allows" in risk.summary
    assert run.tells(0, "memory/own_left", np.array([GIB, 40 * GIB])).alarms() == []


def test_a_leak_is_foretold_to_the_nearer_of_both_limits() -> None:
    run = Run(1, 200, room=8 * GIB).holds(0, leak(200, 4.0)).holder()
    run.tells(0, "memory/own_limit", np.array([4 * GIB])).tells(0, "memory/own_left", np.array([GIB]))
    assert "about 260 steps" in run.one().summary


def test_what_was_seen_briefly_is_not_believed_to_go_on_for_long() -> None:
    assert Run(1, 100, room=8 * GIB).holds(0, leak(100, 4.0)).holder(verdict="cache").finds() == []


def test_almost_nothing_left_is_a_risk_once_it_is_seen_twice() -> None:
    run = Run(2, 50, room=30 * GIB).holds(0, flat(50))
    run.tells(0, "memory/rss", np.array([20 * GIB])).tells(1, "memory/rss", np.array([35 * GIB]))
    run.state.signals.put(0, "memory/available", [40], [100 * MIB])
    assert run.finds() == []
    run.state.signals.put(0, "memory/available", [45], [100 * MIB])
    found = run.one()
    assert (found.kind, found.severity) == ("memory.oom_risk", Severity.WARNING)
    assert "the largest is rank 1" in found.summary


def test_a_rank_that_has_ended_stays_among_those_that_leaked() -> None:
    run = Run(2, 150).holds(0, leak(150, 1.0)).holds(1, leak(150, 1.0, seed=1)).holder(0).holder(1)
    run.state.apply([Facts(1, pid=101, step=150, status=Status.EXITED)], [], 1002.0)
    assert run.one().ranks == (0, 1)


def test_a_job_that_is_over_is_not_spoken_of() -> None:
    run = Run(1, 100).holds(0, leak(100, 2.7)).holder(graph=True)
    run.state.end(0, 2000.0)
    assert run.finds() == []


# --- shared memory


def shm(run: Run, used: Floats, total: float, every: int = 50, workers: float = 2.0) -> Run:
    run.tells(0, "memory/shm_used", used, every).tells(0, "memory/shm_free", total - used, every)
    return run.tells(0, "memory/workers", np.array([workers]), every)


def test_a_small_shared_memory_that_is_nearly_full_is_named() -> None:
    held = [1.0, 60.0, 62.0, 63.0, 62.0, 63.0]
    assert shm(Run(1, 200), np.array(held[:-1]) * MIB, 64 * MIB).finds() == []  # not for long enough
    found = shm(Run(1, 200), np.array(held) * MIB, 64 * MIB).one()
    assert (found.kind, found.names, found.causes[0].key) == ("memory.shm", ("shm",), "small")


def test_what_others_left_there_is_no_fault_of_the_job() -> None:
    assert shm(Run(1, 200), np.full(6, 63.0) * MIB, 64 * MIB).finds() == []
    assert shm(Run(1, 200), np.array([1.0, 20.0, 21.0, 20.0, 21.0, 20.0]) * MIB, 64 * MIB).finds() == []


def test_shared_memory_that_fills_is_named_with_when_it_is_full() -> None:
    found = shm(Run(1, 500), leak(50, 30.0, base=MIB), 64 * GIB, every=10).one()
    assert (found.kind, found.severity, found.causes[0].key) == ("memory.shm", Severity.WARNING, "held")
    assert "/dev/shm is full in about" in found.summary


def test_what_other_programs_fill_it_with_is_no_fault_of_ranks_that_have_no_processes_of_their_own() -> None:
    filled = leak(50, 30.0, base=MIB)
    run = shm(Run(1, 500), filled, 64 * GIB, every=10, workers=0.0)
    assert run.finds() == []
    assert run.tells(0, "memory/rss", filled + GIB, every=10).one().kind == "memory.shm"  # it has mapped it itself


def test_files_that_a_rank_writes_there_are_its_own() -> None:
    filled = leak(50, 30.0, base=MIB)
    run = shm(Run(2, 500), filled, 64 * GIB, every=10, workers=0.0)
    run.tells(1, "memory/shm_used", filled, 10).tells(1, "memory/shm_free", 64 * GIB - filled, 10)
    assert run.finds() == []
    found = run.tells(1, "memory/written", 3 * filled, every=10).one()
    assert (found.ranks, found.causes[0].key) == ((1,), "written")


def test_batches_that_are_kept_as_they_come_from_the_workers_are_named_with_what_keeps_them() -> None:
    run = shm(Run(1, 150), leak(15, 30.0, base=MIB), 64 * GIB, every=10)
    assert run.one().severity == Severity.INFO
    found = run.holder(path="batches", owner="", function="main").one()
    assert (found.kind, found.names, found.locations[0].frame.line) == ("memory.shm", ("shm", "batches"), 12)


def test_files_can_run_out_too() -> None:
    run = shm(Run(1, 200), np.array([1.0, 2.0, 2.0, 2.0, 2.0, 2.0]) * GIB, 64 * GIB)
    run.tells(0, "memory/shm_inodes_free", np.array([100_000.0, 12.0]))
    assert "12 more files fit" in run.one().summary


# --- the device, by what torch documents of its allocator


def device(
    run: Run, rank: int, allocated: Floats, reserved: Floats | None = None, retries: Floats | None = None
) -> Run:
    held = allocated + GIB if reserved is None else reserved
    run.tells(rank, "memory/device_allocated", allocated).tells(rank, "memory/device_reserved", held)
    run.tells(rank, "memory/device_active", allocated).tells(rank, "memory/device_total", np.array([80 * GIB]))
    return run.tells(rank, "memory/device_retries", np.zeros(len(allocated)) if retries is None else retries)


def test_a_rank_whose_device_fills_is_named_with_when_it_is_full() -> None:
    run = device(Run(2, 300), 0, leak(300, 10.0, base=20 * GIB))
    found = device(run, 1, flat(300, base=20 * GIB)).holder(0, graph=True, device=True).one()
    assert (found.kind, found.severity, found.ranks) == ("memory.device_leak", Severity.WARNING, (0,))
    assert found.names == ("allocated", "hist.store")
    assert "runs out in about 580" in found.summary


def test_a_device_that_is_full_within_the_hour_is_critical() -> None:
    run = device(Run(1, 300), 0, leak(300, 100.0, base=20 * GIB)).holder(0, graph=True)
    assert run.one().severity is Severity.CRITICAL


def test_lengths_that_vary_are_no_leak_of_a_device() -> None:
    made = 20 * GIB + np.random.default_rng(3).gamma(2.0, 300.0, 800) * MIB
    assert device(Run(1, 800), 0, made).finds() == []


def test_retries_in_the_steady_state_are_fragmentation_and_those_of_the_first_steps_are_not() -> None:
    held = flat(200, base=40 * GIB)
    early, late = np.full(200, 2.0), np.where(np.arange(200) > 150, 5.0, 2.0)
    early[0] = 0.0
    assert device(Run(1, 200), 0, held, retries=early).finds() == []
    found = device(Run(1, 200), 0, held, retries=late).one()
    assert (found.kind, found.severity, found.names) == ("memory.fragmentation", Severity.WARNING, ("reserved",))
    assert "3 times" in found.summary


def test_a_reserve_that_grows_and_is_of_no_use_is_fragmentation() -> None:
    held = flat(200, base=30 * GIB)
    assert device(Run(1, 200), 0, held, leak(200, 200.0, base=35 * GIB)).one().kind == "memory.fragmentation"
    assert device(Run(1, 200), 0, held, flat(200, base=75 * GIB)).finds() == []  # a peak long ago


def test_what_was_held_before_is_told() -> None:
    found = Run(1, 200).holds(0, leak(200, 2.0)).holder().one()
    assert "it held 32" in found.causes[0].evidence[0].what  # 300 MiB, and ten steps of 2 MiB


def pins(run: Run, values: Floats) -> Run:
    return run.tells(0, "memory/pinned", values)


def test_pinned_memory_that_grows_steadily_is_a_leak_by_that_name() -> None:
    found = pins(Run(steps=200), GIB + 4 * MIB * np.arange(200, dtype=np.float64)).one()
    assert (found.kind, found.severity, found.names, found.causes[0].key) == (
        "memory.host_leak", "warning", ("pinned",), "pinned",
    )  # fmt: skip


@pytest.mark.parametrize(
    "values",
    [
        np.full(200, GIB),
        GIB + np.minimum(np.arange(200), 60) * 4 * MIB,  # the cache has met all sizes by then
        GIB + np.floor(np.arange(200) / 90) * 64 * MIB,  # a longer batch now and then
        GIB + np.arange(80) * 4 * MIB,  # too early to say
    ],
)
def test_a_pinned_cache_that_fills_is_none(values: Floats) -> None:
    assert pins(Run(steps=200), values).finds() == []


def before_first_step(ahead: float, room: float, world: int = 2) -> Run:
    run = Run(world, steps=0, room=room)
    for rank in range(world):
        signals(run.state, rank, "memory/state_ahead", [1], [ahead])
    return run


def test_optimizer_state_for_which_there_is_no_room_is_foretold_before_the_step() -> None:
    found = before_first_step(5 * GIB, room=8 * GIB).one()
    assert (found.kind, found.severity, found.ranks, found.causes[0].key) == (
        "memory.oom_risk", "critical", (0, 1), "state",
    )  # fmt: skip


def test_optimizer_state_that_fits_or_is_made_is_none() -> None:
    assert before_first_step(5 * GIB, room=11 * GIB).finds() == []
    run = before_first_step(5 * GIB, room=8 * GIB)
    run.state.apply([Facts(r, pid=100 + r, step=1, step_s=1002.0) for r in range(2)], [], 1002.0)
    assert run.finds() == []


def test_a_devices_room_is_what_neither_the_rank_nor_others_hold() -> None:
    run = Run(1, steps=0)
    for name, value in (("device_total", 80), ("device_allocated", 40), ("device_others", 10)):
        signals(run.state, 0, f"memory/{name}", [1], [value * GIB])
    signals(run.state, 0, "memory/device_state_ahead", [1, 1], [20 * GIB, 9 * GIB])  # of two optimizers
    assert run.finds() == []
    signals(run.state, 0, "memory/device_state_ahead", [1], [2 * GIB])
    assert run.one().names == ("allocated",)


# --- open files


def opens(counts: Any, *, limit: float = 1024.0, every: int = 20, rank: int = 0, world: int = 1) -> Run:
    run = Run(world, len(counts) * every)
    run.tells(rank, "memory/fds", np.asarray(counts, float), every).tells(rank, "memory/fd_limit", np.array([limit]))
    return run.tells(rank, "memory/fd_files", np.array([120.0])).tells(rank, "memory/fd_sockets", np.array([8.0]))


def test_files_that_are_opened_and_never_closed_are_told_with_when_the_limit_is_reached() -> None:
    found = opens(40 + np.arange(20) * 20.0, rank=1, world=2).one()
    assert (found.kind, found.severity, found.ranks) == ("memory.host_leak", Severity.CRITICAL, (1,))
    assert (found.causes[0].key, found.names[0]) == ("descriptors", "fds")
    assert found.summary.startswith("rank 1 opens ever more files and closes none: ")
    assert "420 now, 1 a step; at this pace the limit of 1024 (RLIMIT_NOFILE) is reached in about 600 steps" in (
        found.summary
    )


@pytest.mark.parametrize("counts", [
    np.minimum(40 + np.arange(40) * 20.0, 300.0),  # all of a cache's or a data set's are open
    40 + 60.0 * (np.arange(40) % 8),  # closed again and again
    40 + np.arange(40) * 1.0,  # loggers and checkpoints
    np.full(40, 900.0),
])  # fmt: skip
def test_files_that_are_closed_again_or_are_all_open_are_no_leak(counts: Floats) -> None:
    assert opens(counts).finds() == []


def test_files_of_a_data_set_that_is_in_its_first_epoch_still_may_be_opened_once_each() -> None:
    counts = 40 + np.arange(20) * 20.0
    assert opens(counts).loader(length=5000).one().severity == Severity.WARNING
    assert opens(counts).loader(length=200).one().severity == Severity.CRITICAL


def test_where_the_limit_is_far_or_not_known_open_files_are_worth_knowing() -> None:
    counts = 40 + np.arange(20) * 5.0
    assert opens(counts, limit=1e9).one().severity == Severity.INFO
    run = Run(1, 400).tells(0, "memory/fds", np.asarray(counts, float), 20)
    assert (run.one().severity, "RLIMIT_NOFILE" in run.one().summary) == (Severity.INFO, False)


def test_growth_that_slows_down_is_no_leak_and_has_no_forecast() -> None:
    filled = np.asarray(BASE + 2000 * MIB * (1 - np.exp(-np.arange(300) / 220)), np.float64)
    found = Run(1, 300, room=8 * GIB).holds(0, filled).holder().one()
    assert found.severity == Severity.INFO
    assert found.summary.endswith("ever more slowly")
    assert Run(1, 300, room=8 * GIB).holds(0, leak(300, 4.0)).holder().one().severity == Severity.WARNING


def test_a_pool_that_is_filled_up_to_a_number_is_no_leak() -> None:
    assert Run(1, 200).holds(0, leak(200, 4.0)).holder(verdict="limited").alarms() == []
    assert Run(1, 200).holds(0, leak(200, 4.0)).holder(verdict="kept").alarms()


def test_a_forecast_is_as_wide_as_it_reaches_far() -> None:
    steady = np.asarray(BASE + np.arange(200) * 4.0 * MIB, np.float64)
    near = Run(1, 200, room=1 * GIB).holds(0, steady).holder().one().summary
    assert "in about 260 steps (230 to 280," in near
    far = Run(1, 200, room=60 * GIB).holds(0, steady).holder().one().summary
    assert "in about 15000 steps (7700 to 23000," in far


def test_all_ranks_that_fill_shared_memory_are_named_and_not_those_that_do_not() -> None:
    filled = leak(50, 40.0, base=MIB)
    run = shm(Run(4, 500), filled, 64 * GIB, every=10, workers=0.0)
    for rank in (1, 2, 3):
        run.tells(rank, "memory/shm_used", filled, 10).tells(rank, "memory/shm_free", 64 * GIB - filled, 10)
    for rank, part in enumerate((0.3, 0.03, 0.4, 0.27)):
        run.tells(rank, "memory/written", part * filled, 10)
    found = run.one()
    assert (found.kind, found.ranks, found.causes[0].key) == ("memory.shm", (0, 2, 3), "written")


def test_shared_tensors_that_are_kept_are_one_fault_though_each_is_an_open_file() -> None:
    for limit, kinds in ((100_000.0, {"memory.shm"}), (600.0, {"memory.shm", "memory.host_leak"})):
        run = shm(Run(1, 500), leak(50, 30.0, base=MIB), 64 * GIB, every=10)
        run.tells(0, "memory/fds", np.asarray(40 + np.arange(50) * 10.0, np.float64), 10).tells(
            0, "memory/fd_limit", np.array([limit])
        )
        assert {one.kind for one in run.finds()} == kinds


def test_what_is_kept_of_shared_memory_comes_of_the_workers_only_where_there_are_some() -> None:
    for workers, said in ((2.0, "what comes from the workers is kept"), (0.0, "what is shared is kept")):
        filled = leak(15, 30.0, base=MIB)
        run = shm(Run(1, 150), filled, 64 * GIB, every=10, workers=workers)
        run.tells(0, "memory/rss", filled + GIB, 10).holder(path="batches")
        assert said in next(one for one in run.finds() if one.kind == "memory.shm").summary
