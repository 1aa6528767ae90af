"""Stands in for the watch process: writes what it hears to a file, and does what FAKE_WATCH says."""

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path


def main(arguments: list[str]) -> None:
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    plan = json.loads(os.environ["FAKE_WATCH"])
    log = Path(plan["log"])
    channel = socket.socket(fileno=int(options["--control-fd"]))
    lines = channel.makefile("rb")

    def note(**facts: object) -> None:
        with log.open("a") as file:
            file.write(json.dumps({"pid": os.getpid(), **facts}) + "\n")

    def say(message: dict[str, object]) -> None:
        channel.sendall(json.dumps(message).encode() + b"\n")

    note(options=options, session=os.getsid(0), fds=sorted(int(p.name) for p in Path("/proc/self/fd").iterdir()))
    if plan.get("die"):
        os.kill(os.getpid(), signal.SIGKILL)
    say({"ready": {"grpc": "127.0.0.1:1", "http": "127.0.0.1:2"}})
    while line := lines.readline():
        message = json.loads(line)
        note(heard=message)
        if "job" in message:
            for instruction in plan.get("say", []):
                if marker := instruction.pop("after", None):
                    while not Path(marker).exists():
                        time.sleep(0.02)
                if "restart" in instruction:
                    instruction["restart"]["pid"] = int(Path(marker).read_text())
                say(instruction)
        if "job" in message:
            job = Path(f"/proc/{message['job']['pid']}/stat")
        if "exited" in message:
            note(left=job.read_text().rpartition(")")[2].split()[0] if job.exists() else "reaped")
            if report := plan.get("report"):
                (Path(options["--report"]) / "report.json").write_text(json.dumps(report))
            if plan.get("silent"):
                time.sleep(60)
            say({"done": True})
            return


if __name__ == "__main__":
    main(sys.argv[1:])
