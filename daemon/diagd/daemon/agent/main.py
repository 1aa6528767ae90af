"""The agent by itself: watches the jobs of a node and reports to an aggregator elsewhere."""

import argparse
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from diagd.daemon.agent import health
from diagd.daemon.agent.introduction import Identity, make_identity
from diagd.daemon.agent.loop import AgentLoop, Dump
from diagd.daemon.agent.parts import Looks
from diagd.daemon.agent.stream import Stream
from diagd.daemon.config.settings import AgentConfig, load
from diagd.daemon.errors import DiagdError

NEW_JOBS_EVERY_S = 1.0


class JobAgent:
    """One job on this node: its observer, its loop and its stream."""

    def __init__(
        self,
        run_dir: Path,
        target: str,
        identity: Identity,
        config: AgentConfig,
        make_observer: Callable[[Path, str], Looks],
        dump: Dump | None = None,
    ) -> None:
        self.run_dir = run_dir
        self.stream = Stream(
            target,
            identity,
            lambda command: self.loop.command(command),
            max_windows=config.buffer_windows,
            max_bytes=config.buffer_bytes,
        )
        self.loop = AgentLoop(make_observer(run_dir, identity.node), self.stream, config=config, dump=dump)

    def start(self) -> None:
        """Begin to look."""
        self.loop.start()

    def finish(self, reason: str, exit_code: int | None) -> bool:
        """Look a last time, say goodbye and stop; whether all arrived."""
        self.loop.stop()
        self.loop.step(everything=True)
        return self.stream.finish(reason, exit_code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="diagd agent", description="Watch the ranks on this node.")
    parser.add_argument("--aggregator", required=True, metavar="HOST:PORT", help="where to report")
    parser.add_argument("--root", type=Path, metavar="DIR", help="the folder that holds the jobs' run directories")
    parser.add_argument("--run-dir", type=Path, action="append", default=[], metavar="DIR", help="watch this job alone")
    parser.add_argument("--node", default=socket.gethostname(), help="this node's name")
    parser.add_argument("--host", metavar="ADDRESS", help="serve /metrics on this address")
    parser.add_argument("--http-port", type=int, metavar="PORT", help="serve /metrics of this agent; 0: do not")
    parser.add_argument("--config", type=Path, action="append", default=[], metavar="FILE", help="diagd.toml")
    return parser


class NodeAgent:
    """All jobs on a node; they come and go."""

    def __init__(
        self, target: str, node: str, config: AgentConfig, make_observer: Callable[[Path, str], Looks]
    ) -> None:
        self._target, self._node, self._config = target, node, config
        self._make_observer = make_observer
        self.jobs: dict[Path, JobAgent] = {}
        self.web = health.server(node, self._watched, config.host, config.http_port) if config.http_port else None

    def _watched(self) -> list[health.Job]:
        return [(job.stream.identity.job_id, job.loop, job.stream) for job in list(self.jobs.values())]

    def update(self, run_dirs: Iterable[Path]) -> None:
        """Watch these and no others."""
        wanted = set(run_dirs)
        for run_dir in sorted(wanted - self.jobs.keys()):
            identity = make_identity(_job_id(run_dir), node=self._node)
            agent = JobAgent(run_dir, self._target, identity, self._config, self._make_observer)
            self.jobs[run_dir] = agent
            agent.start()
        for run_dir in self.jobs.keys() - wanted:
            self.jobs.pop(run_dir).finish("the job's directory is gone", None)

    def close(self) -> None:
        """Stop watching."""
        if self.web is not None:
            self.web.stop()
        self.update([])


def _job_id(run_dir: Path) -> str:
    """As the job's supervisor wrote it down; else the directory's name, which is made from it."""
    try:
        facts = json.loads((run_dir / "run.json").read_text(encoding="utf-8"))
        return str(facts["job_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return run_dir.name


def _make_observer(run_dir: Path, node: str) -> Looks:
    from diagd.daemon.agent.tally import TallyingObserver

    return TallyingObserver(run_dir, node)


def main(argv: Sequence[str] | None = None, make_observer: Callable[[Path, str], Looks] = _make_observer) -> int:
    """Run the agent until SIGTERM or SIGINT."""
    args = _parser().parse_args(argv)
    try:
        config = _with_options(load(os.environ, args.config).agent, args)
        if not (args.root or args.run_dir):
            raise DiagdError("there is nothing to watch", help="Give --run-dir DIR or --root DIR.", exit_code=2)
        agent = NodeAgent(args.aggregator, args.node, config, make_observer)
        if agent.web is not None:
            agent.web.start()
    except DiagdError as exc:
        sys.stderr.write(f"diagd agent: {exc.message}\n{exc.help}\n")
        return exc.exit_code
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    while not stop.is_set():
        agent.update(_run_dirs(args.run_dir, args.root))
        stop.wait(NEW_JOBS_EVERY_S)
    agent.close()
    return 0


def _with_options(config: AgentConfig, args: argparse.Namespace) -> AgentConfig:
    """The settings, with what the command line says over them."""
    said = {"host": args.host, "http_port": args.http_port}
    return replace(config, **{name: value for name, value in said.items() if value is not None})


def _run_dirs(given: Sequence[Path], root: Path | None) -> list[Path]:
    found = [path for path in given if path.is_dir()]
    if root is not None and root.is_dir():
        found += [path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return found


if __name__ == "__main__":
    raise SystemExit(main())
