"""What `diagd top` costs with 1,024 ranks that all move: of a core, for each look and each key. Run by itself:

python -m tests.bench.top
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from tests.aggregator.fakes import FakeJudge, incident, rank_facts
from tests.cli.terminal import Terminal

from diagd.daemon.aggregator.hub import Hub
from diagd.daemon.aggregator.loop import JobLoop
from diagd.daemon.aggregator.web import WebServer
from diagd.daemon.detectors.finding import Severity
from diagd.daemon.state.model import Detail, Group, Operation

SIZE = 1024
NODE = 8
SPAN_S = 20.0
KEYS = 200
KEYS_PER_S = 20.0  # as a held key repeats


def groups(rank: int) -> tuple[Group, ...]:
    """Of a job of tensor and data parallelism."""
    node = rank // NODE * NODE
    return (
        Group("0", tuple(range(SIZE)), "default_pg", 40, 39),
        Group(f"tp{rank // NODE}", tuple(range(node, node + NODE)), "tp", 400, 399),
        Group(f"dp{rank % NODE}", tuple(range(rank % NODE, SIZE, NODE)), "dp", 40, 39),
    )


def serve() -> None:
    """A watch's web server over a job in which every rank goes on all the time."""
    hub = Hub(time.time)
    findings = [incident(ranks=(513,), waiting_ranks=tuple(range(512))),
                incident("002", kind="slow.straggler", severity=Severity.WARNING, ranks=(5, 901))]  # fmt: skip
    loop = JobLoop("bench", FakeJudge(findings=findings).make())
    hub.add(loop)
    operation = (Operation("ALLREDUCE", "0", 40, blocking=True, entered_s=time.time()),)
    details = [Detail(n, host=f"node{n // NODE:03}", node=f"node{n // NODE:03}", pid=10**6 + n, operations=operation,
                      groups=groups(n)) for n in range(SIZE)]  # fmt: skip
    print(WebServer(hub, "127.0.0.1", 0).start(), flush=True)
    for step in range(10**9):
        now_s = time.time()
        facts = [rank_facts(n, step=step, phase=("forward", "backward")[(n + step) % 2],
                            wait_s=now_s - n % 30 if n % 3 else 0) for n in range(SIZE)]  # fmt: skip
        with hub.lock:
            loop.state.apply(facts, details if step == 0 else [], now_s)
            hub.tick()
        time.sleep(0.5)


def cpu_s(process: psutil.Process) -> float:
    """User and system time so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    """Measure, and print what was found."""
    server = subprocess.Popen([sys.executable, "-m", "tests.bench.top", "serve"], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    address = server.stdout.readline().strip()
    with tempfile.TemporaryDirectory() as place:
        run_dir = Path(place) / f"diagd-{os.getuid()}/bench"
        run_dir.mkdir(parents=True)
        facts = {"job_id": "bench", "http": address, "supervisor_pid": os.getpid(), "started_s": time.time()}
        (run_dir / "run.json").write_text(json.dumps(facts))
        try:
            measure(psutil.Process(server.pid), place)
        finally:
            server.kill()
            server.wait()


def measure(server: psutil.Process, place: str) -> None:
    """The server alone, then with one who looks on, then with one who presses keys."""
    time.sleep(1.0)
    before = cpu_s(server)
    time.sleep(SPAN_S)
    alone = cpu_s(server) - before
    command = [sys.executable, "-m", "diagd.daemon.cli", "top", "--job", "bench"]
    terminal = Terminal(command, 140, 45, TMPDIR=place)
    try:
        terminal.wait(lambda: "1024 ranks" in terminal.lines[0])
        top = psutil.Process(terminal.process.pid)
        started = cpu_s(top)
        rest(terminal, 1.0)
        before, served, written = cpu_s(top), cpu_s(server), len(terminal.raw)
        rest(terminal, SPAN_S)
        looking, serving = cpu_s(top) - before, cpu_s(server) - served - alone
        print(f"start: {started:.2f} s of CPU")
        print(f"1,024 ranks, 140 x 45, a look a second, {SPAN_S:.0f} s: top {100 * looking / SPAN_S:.2f} % of a core, "
              f"{1000 * looking / SPAN_S:.1f} ms for each look, {(len(terminal.raw) - written) / SPAN_S:.0f} bytes a "
              f"second; the watch {100 * serving / SPAN_S:+.2f} %")  # fmt: skip
        press_keys(terminal, top, looking / SPAN_S)
        terminal.press("mmmt")
        rest(terminal, 1.0)
        before, written = cpu_s(top), len(terminal.raw)
        rest(terminal, SPAN_S)
        looking = cpu_s(top) - before
        print(f"the same in rows, which all change: top {100 * looking / SPAN_S:.2f} % of a core, "
              f"{(len(terminal.raw) - written) / SPAN_S:.0f} bytes a second")  # fmt: skip
        press_keys(terminal, top, looking / SPAN_S)
    finally:
        terminal.close()


def press_keys(terminal: Terminal, top: psutil.Process, at_rest: float) -> None:
    """Walk over the ranks."""
    before, began = cpu_s(top), time.monotonic()
    for _ in range(KEYS):
        terminal.press("l")
        rest(terminal, 1 / KEYS_PER_S)
    took_s = time.monotonic() - began
    used = cpu_s(top) - before
    print(f"{KEYS / took_s:.0f} keys a second: {100 * used / took_s:.1f} % of a core, "
          f"{1000 * (used - at_rest * took_s) / KEYS:.2f} ms for each frame that a key asks for")  # fmt: skip


def rest(terminal: Terminal, seconds: float) -> None:
    """Let time pass, and read what is drawn."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, 0.05))
        terminal.read()


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main()
