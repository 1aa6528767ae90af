"""Planting faults, on a step counter and a torch that are not real."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from diagd.probes import identity, inject, inject_groups
from diagd.probes.box.layout import Live
from diagd.probes.box.writer import BoxWriter
from diagd.probes.guard import Probe
from diagd.probes.state import STATE


class Stuck(BaseException):
    """In place of a sleep that never ends."""


class Clock:
    """Time that passes by sleeping alone, and by `pass_s`."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.slept: list[float] = []

    def monotonic_ns(self) -> int:
        return round(self.now_s * 1e9)

    def sleep(self, seconds: float) -> None:
        if seconds >= inject._FOR_EVER_S:
            raise Stuck
        self.slept.append(round(seconds, 6))
        self.now_s += seconds


class Job:
    """A rank whose optimizer steps; the hook is what the probe has registered with it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.hooks: list[Callable[..., None]] = []
        self.reduced: list[int] = []
        self.over: list[str | None] = []  # the groups
        self.received: list[int] = []
        self.left = 0
        self.asked: list[str] = []
        self.compiling = False
        self.torch = SimpleNamespace(
            compiler=SimpleNamespace(is_compiling=lambda: self.compiling),
            zeros=lambda numel, device: numel,
            device=lambda *words: words,
            distributed=SimpleNamespace(
                is_available=lambda: True,
                is_initialized=lambda: True,
                get_backend=lambda: "gloo",
                all_reduce=self.reduce,
                new_group=lambda: "new",
                get_world_size=lambda: 3,
                recv=lambda numel, src: self.received.append(src),
                destroy_process_group=self.leave,
                distributed_c10d=SimpleNamespace(_get_default_store=lambda: SimpleNamespace(get=self.asked.append)),
            ),
        )

    def reduce(self, numel: int, group: str | None = None) -> None:
        self.reduced.append(numel)
        self.over.append(group)

    def leave(self) -> None:
        self.left += 1

    def plant(self, faults: str, rank: int = 1, attempt: int = 0) -> Probe:
        probe = Probe("inject", 16, always=False)
        STATE.settings.faults = faults
        identity._FACTS.update(rank=rank, attempt=attempt)
        inject.install(probe, SimpleNamespace(__name__="torch.optim.optimizer", register_optimizer_step_post_hook=self))
        return probe

    def __call__(self, hook: Callable[..., None]) -> Any:
        self.hooks.append(hook)
        return SimpleNamespace(remove=lambda: None)

    def step(self, took_s: float = 0.1) -> None:
        self.clock.now_s += took_s
        STATE.live[Live.STEP] = max(STATE.live[Live.STEP], 0) + 1
        for hook in self.hooks:
            hook("optimizer", (), {})

    def steps(self, count: int) -> int:
        """Make so many steps; the last one that was made."""
        for _ in range(count):
            self.step()
        return int(STATE.live[Live.STEP])


@pytest.fixture
def job(recording: BoxWriter, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    clock = Clock()
    made = Job(clock)
    monkeypatch.setattr(inject, "time", clock)
    monkeypatch.setitem(sys.modules, "torch", made.torch)
    monkeypatch.setattr(identity, "_FACTS", {"pid": os.getpid()})
    yield made
    inject.remove()


def test_a_rank_hangs_after_the_step_that_is_named(job: Job, capfd: pytest.CaptureFixture[str]) -> None:
    job.plant("hang:rank=1,step=10")
    assert job.steps(9) == 9
    with pytest.raises(Stuck):
        job.step()
    assert STATE.live[Live.STEP] == 10
    assert capfd.readouterr().err == "diagd: injected hang into rank 1 at step 10, as --inject says\n"


@pytest.mark.parametrize(("rank", "attempt"), [(0, 0), (2, 0), (1, 1)])
def test_other_ranks_and_later_attempts_are_left_alone(
    job: Job, rank: int, attempt: int, capfd: pytest.CaptureFixture[str]
) -> None:
    job.plant("hang:rank=1,step=3 kill:rank=1,step=3", rank, attempt)
    assert job.steps(20) == 20
    assert capfd.readouterr().err == ""


def test_an_optimizers_step_that_completes_no_training_step_is_none(job: Job) -> None:
    job.plant("hang:rank=1,step=2")
    job.step()
    for hook in job.hooks * 5:
        hook("optimizer", (), {})
    with pytest.raises(Stuck):
        job.step()


@pytest.mark.parametrize(
    ("name", "owner", "method"),
    [
        ("torch.autograd", None, "backward"),
        ("deepspeed.runtime.engine", "DeepSpeedEngine", "_take_model_step"),
        ("deepspeed.runtime.engine", "DeepSpeedEngine", "step"),
    ],
)
def test_steps_that_no_optimizer_of_torchs_makes_are_seen_too(
    job: Job, name: str, owner: str | None, method: str
) -> None:  # fmt: skip
    def one_step(*_: Any) -> str:
        STATE.live[Live.STEP] = max(STATE.live[Live.STEP], 0) + 1
        return "its result"

    engine = type("Engine", (), {method: one_step})
    module = SimpleNamespace(__name__=name, backward=one_step, DeepSpeedEngine=engine)
    STATE.settings.faults = "hang:rank=1,step=3"
    identity._FACTS.update(rank=1, attempt=0)
    inject.install(Probe("inject", 16, always=False), module)
    call = getattr(engine(), method) if owner else module.backward
    assert [call(), call()] == ["its result"] * 2
    with pytest.raises(Stuck):
        call()
    inject.remove()
    assert (getattr(engine, method) if owner else module.backward) is one_step


def test_a_compiler_that_traces_meets_nothing(job: Job) -> None:
    job.plant("hang:rank=1,step=2")
    job.compiling = True
    assert job.steps(5) == 5


def test_a_slow_rank_takes_factor_times_its_usual_step(job: Job) -> None:
    job.plant("slow:rank=1,factor=3,step=4-6")
    assert job.steps(8) == 8
    assert job.clock.slept == [0.2, 0.2, 0.2]


def test_waiting_for_others_that_are_slow_too_makes_no_step_longer(job: Job) -> None:
    job.plant("slow:rank=1,factor=2,step=5-9")
    job.steps(4)
    for _ in range(5):
        job.step(took_s=0.5)
    assert job.clock.slept == [0.1] * 5


def test_slow_from_the_first_step_on_goes_by_the_first_that_it_can_measure(job: Job) -> None:
    job.plant("slow:rank=1,factor=2,step=1-")
    job.steps(4)
    assert job.clock.slept == [0.1] * 3


def test_slow_is_said_once(job: Job, capfd: pytest.CaptureFixture[str]) -> None:
    job.plant("slow:rank=1,factor=2,step=2-9")
    job.steps(12)
    assert len(capfd.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(("kind", "number"), [("kill", signal.SIGKILL), ("stop", signal.SIGSTOP)])
def test_signals_go_to_the_rank_itself(
    job: Job, kind: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *words: sent.append(words))
    job.plant(f"{kind}:rank=0-1,step=3")
    job.steps(2)
    assert sent == []
    job.steps(3)
    assert sent == [(os.getpid(), number)]


def test_what_is_raised_reaches_the_script(job: Job) -> None:
    probe = job.plant("raise:rank=1,step=1 exit:rank=1,step=2,code=3")
    with pytest.raises(RuntimeError, match="diagd injected this error at step 1"):
        job.step()
    with pytest.raises(SystemExit) as left:
        job.step()
    assert left.value.code == 3
    assert probe.errors == 0


def test_a_mismatch_is_one_more_all_reduce(job: Job) -> None:
    job.plant("mismatch:rank=1,step=2")
    job.steps(5)
    assert job.reduced == [inject_groups._ODD_NUMEL]


@pytest.mark.parametrize(("rank", "order"), [(0, [None, "new"]), (1, ["new", None]), (2, [None, "new"])])
def test_in_a_cycle_all_ranks_take_part_and_the_faults_own_in_another_order(
    job: Job, rank: int, order: list[str | None], capfd: pytest.CaptureFixture[str]
) -> None:
    job.plant("cycle:rank=1,step=2", rank)
    job.steps(3)
    assert job.over == order
    assert ("injected cycle" in capfd.readouterr().err) == (rank == 1)


@pytest.mark.parametrize(("rank", "received"), [(0, []), (1, []), (2, [1])])
def test_what_is_not_sent_is_waited_for_by_the_rank_after_it(job: Job, rank: int, received: list[int]) -> None:
    job.plant("unsent:rank=1,step=2", rank)
    job.steps(3)
    assert job.received == received


def test_a_rank_that_leaves_destroys_its_groups_and_comes_to_nothing_more(job: Job) -> None:
    job.plant("leave:rank=1,step=2")
    job.step()
    with pytest.raises(Stuck):
        job.step()
    assert job.left == 1


def test_the_store_is_asked_for_a_key_that_nobody_sets(job: Job) -> None:
    job.plant("store:rank=1,step=2")
    job.step()
    assert job.asked == []
    job.steps(4)
    assert job.asked == ["diagd/drill/key-that-nobody-sets"]


def test_after_its_step_no_batch_comes_any_more(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = type("_SingleProcessDataLoaderIter", (), {"_next_data": lambda self: "batch"})
    name = "torch.utils.data.dataloader"
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(_SingleProcessDataLoaderIter=loader))
    job.plant("data:rank=1,step=2")
    job.step()
    assert loader()._next_data() == "batch"
    job.step()
    with pytest.raises(Stuck):
        loader()._next_data()


def test_after_a_restart_it_is_noted_that_nothing_acts_again(job: Job) -> None:
    job.plant("kill:rank=1,step=2", attempt=1)
    assert STATE.notes == ["drill: --inject kill:rank=1,step=2, before a restart: after it a fault does not act again"]


def test_every_kind_has_what_it_does() -> None:
    from diagd.probes.faults import KINDS

    assert set(inject._ACTIONS) == set(KINDS)


def test_every_rank_notes_that_this_is_a_drill_and_the_one_that_is_hit_when(job: Job) -> None:
    job.plant("raise:rank=1,step=2 hang:rank=7,step=9")
    assert STATE.notes == ["drill: --inject raise:rank=1,step=2 hang:rank=7,step=9"]
    job.step()
    with pytest.raises(RuntimeError):
        job.step()
    assert STATE.notes[1:] == ["drill: injected raise at step 2"]


def test_a_forked_child_that_becomes_a_rank_begins_anew(job: Job, recording: BoxWriter) -> None:
    job.plant("hang:rank=1,step=2")
    job.step()
    STATE.record(False)  # as the probes do in a forked child
    STATE.forget()
    STATE.notes.clear()
    STATE.record(False)
    STATE.box, STATE.live, STATE.is_rank = recording, recording.live, True
    STATE.live[Live.STEP] = -1
    STATE.record(True)
    assert STATE.notes == ["drill: --inject hang:rank=1,step=2"]
    job.step()
    with pytest.raises(Stuck):
        job.step()


def test_what_is_no_fault_is_noted_and_plants_nothing(job: Job) -> None:
    probe = job.plant("hang:rnk=1,step=2")
    assert probe.tripped
    assert "hang takes rank, step" in STATE.notes[0]
    assert job.hooks == []


@pytest.mark.parametrize(
    ("environ", "there"),
    [
        ({}, False),
        ({"DIAGD_INJECT": " "}, False),
        ({"DIAGD_INJECT": "hang:rank=1,step=2", "DIAGD_PROBES": "steps"}, True),
    ],
)
def test_it_is_there_only_where_faults_are_to_be_planted(environ: dict[str, str], there: bool) -> None:
    code = f"""
import sys
from diagd.probes import start
start.start({environ!r})
print("inject" in start.SWITCHES, "diagd.probes.inject" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(there), "False"]
