"""Who uses the CPUs of a rank: from a /proc that looks like a real one, and from the real one."""

import multiprocessing
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from diagd.daemon.agent.crowding import Crowding
from diagd.daemon.agent.procfs import TICKS_PER_S, Procfs
from diagd.daemon.state.model import Facts


class Machine:
    """CPUs 0 and 1, ranks and children of theirs, written down."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.crowding = Crowding(Procfs(root))
        self.facts: dict[int, Facts] = {}
        self.now_s = 100.0

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def busy(self, *seconds: float) -> None:
        """What each CPU has worked since the machine was started; the time that it was idle does not count."""
        lines = [f"cpu{number} {s * TICKS_PER_S:.0f} 0 0 777 88 0 0 99 0 0" for number, s in enumerate(seconds)]
        self.write("stat", "\n".join(["cpu  0 0 0 0 0 0 0 0 0 0", *lines, "intr 5"]) + "\n")

    def rank(self, rank: int, main_s: float, other_s: float = 0.0, cpus: str = "0-1", children: str = "") -> None:
        pid = 10 + rank
        self.write(f"{pid}/status", f"Name:\tpython\nCpus_allowed_list:\t{cpus}\n")
        self.write(f"{pid}/task/{pid}/children", children)
        self.facts[rank] = Facts(rank, pid=pid, main_cpu_s=main_s, other_cpu_s=other_s)

    def child(self, pid: int, cpu_s: float, name: str = "pt_data_worker", start: int = 5, state: str = "R") -> None:
        fields = ["0"] * 50
        fields[0], fields[11], fields[19] = state, f"{cpu_s * TICKS_PER_S:.0f}", str(start)
        self.write(f"{pid}/stat", f"{pid} ({name}) {' '.join(fields)}\n")

    def look(self) -> None:
        self.now_s += 0.5
        self.crowding.note(list(self.facts.values()), {}, self.now_s)

    def told(self, rank: int) -> tuple[float, ...]:
        """Others', data workers', helpers', and other ranks' main threads'."""
        return tuple(round(s, 3) for s in self.crowding.told(rank).values())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.busy(50.0, 60.0)
    return machine


def test_what_the_job_has_not_used_of_the_cpus_is_others(machine: Machine) -> None:
    machine.rank(0, main_s=3.0, other_s=1.0, children="20 21")
    machine.rank(1, main_s=5.0)
    machine.child(20, 7.0)
    machine.child(21, 2.0, name="ffmpeg")
    machine.look()
    machine.rank(0, main_s=3.1, other_s=1.05, children="20 21")
    machine.rank(1, main_s=5.2)
    machine.child(20, 7.3)
    machine.child(21, 2.1, name="ffmpeg")
    machine.busy(50.5, 60.4)
    machine.look()
    assert machine.told(0) == (0.15, 0.3, 0.15, 0.2)
    assert machine.told(1) == (0.15, 0.3, 0.15, 0.1)


def test_what_lies_on_cpus_that_a_rank_may_not_use_is_left_out(machine: Machine) -> None:
    for used in (0.0, 0.4):
        machine.rank(0, main_s=used, cpus="0")
        machine.rank(1, main_s=used, cpus="1", children="20")
        machine.child(20, used / 2)
        machine.busy(50.0 + used, 60.0 + 2 * used)
        machine.look()
    assert machine.told(0) == (0.0, 0.0, 0.0, 0.0)
    assert machine.told(1) == (0.2, 0.2, 0.0, 0.0)


def test_a_child_counts_from_when_it_is_first_seen_and_what_it_has_used_stays(machine: Machine) -> None:
    machine.rank(0, main_s=0.0)
    machine.look()
    for cpu_s, busy_s in ((9.0, 50.0), (9.4, 50.4)):
        machine.rank(0, main_s=0.0, children="20")
        machine.child(20, cpu_s)
        machine.busy(busy_s, 60.0)
        machine.look()
    assert machine.told(0) == (0.0, 0.4, 0.0, 0.0)
    machine.child(20, 0.3, start=6)  # another one with its number
    machine.look()
    machine.child(20, 0.9, start=6, state="Z")
    machine.look()
    assert machine.told(0) == (0.0, 0.4, 0.0, 0.0)


def test_nothing_is_told_where_the_kernel_does_not_say_how_busy_its_cpus_are(machine: Machine) -> None:
    machine.write("stat", "intr 5\n")
    machine.rank(0, main_s=1.0)
    machine.look()
    assert machine.told(0) == ()


def _burn(ready: "multiprocessing.synchronize.Event") -> None:
    Path("/proc/self/comm").write_text("pt_data_worker", encoding="ascii")
    ready.set()
    while True:
        pass


@pytest.fixture
def worker() -> Iterator[multiprocessing.context.ForkProcess]:
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    process = context.Process(target=_burn, args=(ready,))
    process.start()
    ready.wait(30)
    yield process
    process.kill()
    process.join()


def test_a_real_data_worker_that_works_is_seen_to(worker: multiprocessing.context.ForkProcess) -> None:
    crowding, fact = Crowding(Procfs()), Facts(0, pid=os.getpid())
    crowding.note([fact], {0: [worker.pid or 0]}, 0.0)
    deadline = time.monotonic() + 30
    for look in range(1, 10_000):
        crowding.note([fact], {0: [worker.pid or 0]}, float(look))
        if crowding.told(0)["cpu_workers_s"] > 0.2 or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    assert crowding.told(0)["cpu_workers_s"] > 0.2
