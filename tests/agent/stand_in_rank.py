"""A rank without torch: writes a box, arms faulthandler, says "ready", and at a line on stdin does what it is told."""

import faulthandler
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import IO

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "probes"))

from diagd.probes.box import layout
from diagd.probes.box.layout import Dtype, Live, Op, Reduce
from diagd.probes.box.writer import BoxWriter

RUN_DIR, RANK, DOES = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

STACKS: list[IO[bytes]] = []  # open for good: faulthandler writes to the bare descriptor


def open_box() -> BoxWriter:
    start = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    box = BoxWriter(RUN_DIR / f"{os.getpid()}-{start}.box")
    box.set_text(layout.IDENTITY, {"job": "j", "rank": RANK, "local_rank": RANK, "pid": os.getpid(), "attempt": 0})
    box.set_text(layout.GROUPS, {"groups": [{"index": 0, "name": "0", "ranks": "0-7"}]})
    box.live[Live.IS_RANK] = 1
    box.live[Live.MAIN_THREAD] = os.getpid()
    if DOES != "unarmed":
        number = signal.SIGRTMIN + 5
        STACKS.append((RUN_DIR / f"{os.getpid()}.stacks").open("ab", 0))
        faulthandler.register(number, STACKS[0], all_threads=True)
        box.live[Live.STACK_SIGNAL] = number
    return box


def beat(box: BoxWriter) -> None:
    while True:
        box.live[Live.HEARTBEAT_NS] = time.monotonic_ns()
        time.sleep(0.1)


def wait_in_all_reduce(box: BoxWriter) -> None:
    ring = box.ring()
    assert ring is not None
    ring.begin(
        Op.ALLREDUCE, 0, 0, Dtype.FLOAT32, Reduce.SUM, -1, 0, box.intern(1, f"{__file__}\t1\tf"), 0, 4, 1, (4,), 7
    )
    threading.Event().wait()


def hold_the_gil() -> None:
    re.match(r"(a+)+$", "a" * 64 + "b")


def open_fifo() -> None:
    path = RUN_DIR / "fifo"
    os.mkfifo(path)
    path.open(encoding="utf-8").close()


def work_in_fork() -> None:
    if os.fork() == 0:
        time.sleep(1000)
    os.wait()


def wait_for_data() -> None:
    from torch.utils.data import DataLoader, Dataset

    class Data(Dataset[int]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, place: int) -> int:
            open_fifo()
            return place

    next(iter(DataLoader(Data(), num_workers=1)))


def main() -> None:
    box = open_box()
    threading.Thread(target=beat, args=(box,), name="diagd", daemon=True).start()
    os.write(1, b"ready\n")  # in one piece: several of them share one pipe
    sys.stdin.readline()
    match DOES.split(":"):
        case ["gil"]:
            hold_the_gil()
        case ["fifo"]:
            open_fifo()
        case ["prompt"]:
            input()
        case ["pdb"]:
            breakpoint()
        case ["loader"]:
            wait_for_data()
        case ["fork"]:
            work_in_fork()
        case ["exit", code]:
            os._exit(int(code))
        case ["say", what]:
            box.set_text(
                layout.ENDING, {"what": what, "type": "ValueError", "message": "bad", "at_ns": time.monotonic_ns()}
            )
            os._exit(1)
        case ["spin"]:
            while True:
                pass
        case _:
            wait_in_all_reduce(box)


main()
