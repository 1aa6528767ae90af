"""What the supervisor tells the process that watches, on its command line."""

import argparse
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the supervisor asked for."""

    run_dir: Path
    job_id: str
    report_dir: Path | None = None
    dump_prefix: str = ""
    hang_after_s: float = 60.0
    on_hang: str = "dump"
    aggregator: str | None = None
    record: Path | None = None
    restarts: int = 0  # of the watch process, for this job
    control_fd: int | None = None
    node: str = field(default_factory=socket.gethostname)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the report is to know of this."""
        if not self.restarts:
            return ()
        times = "once" if self.restarts == 1 else f"{self.restarts} times"
        return (f"what happened while the watch process ended and was started anew, {times}",)


def parse(argv: Sequence[str] | None) -> Options:
    """The command line."""
    parser = argparse.ArgumentParser(prog="diagd watch", description="Watch a job of `diagd run`.")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--job-id", required=True)
    parser.add_argument("--report", default="none", metavar="DIR|none")
    parser.add_argument("--dump-prefix", default="", help="what this run's dumps begin with, where there are others'")
    parser.add_argument("--hang-after", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--on-hang", choices=("dump", "abort", "restart"), default="dump")
    parser.add_argument("--aggregator", default="none", metavar="HOST:PORT|none")
    parser.add_argument("--record", default="none", metavar="FILE|none")
    parser.add_argument("--restarts", type=int, default=0, help="watch processes before this one")
    parser.add_argument("--control-fd", type=int)
    parser.add_argument("--node", default=socket.gethostname())
    args = parser.parse_args(argv)
    return Options(
        run_dir=args.run_dir,
        job_id=args.job_id,
        report_dir=None if args.report == "none" else Path(args.report).absolute(),
        dump_prefix=args.dump_prefix,
        hang_after_s=args.hang_after,
        on_hang=args.on_hang,
        aggregator=None if args.aggregator == "none" else args.aggregator,
        record=None if args.record == "none" else Path(args.record),
        restarts=args.restarts,
        control_fd=args.control_fd,
        node=args.node,
    )
