"""`diagd aggregator`: takes the reports of many nodes and many jobs on fixed ports."""

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from diagd.daemon.aggregator.hub import Hub
from diagd.daemon.aggregator.judging import Judge, default_judge
from diagd.daemon.aggregator.loop import JobLoop, restored_incident, stored_form
from diagd.daemon.aggregator.reporting import write_report
from diagd.daemon.aggregator.service import COULD_NOT_START, GrpcServer
from diagd.daemon.aggregator.web import WebServer
from diagd.daemon.config.settings import AggregatorConfig, load
from diagd.daemon.errors import DiagdError
from diagd.daemon.store.store import SqliteStore, Store, StoreError

log = logging.getLogger(__name__)


class Aggregator:
    """The hub with its servers, its store and its loop."""

    def __init__(
        self,
        config: AggregatorConfig,
        *,
        make_judge: Callable[[], Judge] = default_judge,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Open the store; nothing listens yet.

        Raises:
            DiagdError: The store cannot be used.
        """
        self._config = config
        self._judge = make_judge()
        try:
            self._store: Store = SqliteStore(config.store)
        except StoreError as exc:
            help = "Choose another file with store = … below [aggregator] in diagd.toml."
            raise DiagdError(str(exc), help=help, exit_code=COULD_NOT_START) from exc
        self.hub = Hub(clock, self._open_job)
        self.grpc = GrpcServer(self.hub, config.host, config.grpc_port)
        self.web = WebServer(self.hub, config.host, config.http_port)
        self.metric_names: dict[str, str] = {}  # as users log them -> what they are
        self._written: dict[str, int] = {}

    def start(self) -> None:
        """Listen.

        Raises:
            DiagdError: An address is in use.
        """
        self.grpc.start()
        try:
            self.web.start()
        except DiagdError:
            self.grpc.stop()
            raise

    def tick(self) -> None:
        """Judge all jobs and keep what changed."""
        for loop, incidents in self.hub.tick():
            job_id = loop.state.job_id
            with self.hub.lock:
                forms = [stored_form(i) for i in incidents]
            try:
                self._store.save_incidents(job_id, forms)
            except StoreError as exc:
                log.warning("%s", exc)
            for incident in incidents:
                log.info("job %s: %s %s: %s", job_id, incident.severity.value, incident.kind, incident.summary)
        self._write_reports()
        self._forget()

    def run(self, stop: threading.Event) -> None:
        """Judge until told to stop."""
        while not stop.wait(self._config.tick_s):
            self.tick()

    def close(self) -> None:
        """Stop listening and let go of the store."""
        self.web.stop()
        self.grpc.stop()
        self._store.close()

    def _open_job(self, job_id: str) -> JobLoop:
        restored = [restored_incident(said) for said in self._store.incidents(job_id)]
        loop = JobLoop(job_id, self._judge, restored=restored)
        loop.state.metric_names = self.metric_names
        return loop

    def _write_reports(self) -> None:
        if not self._config.report_dir:
            return
        with self.hub.lock:
            due = [loop for loop in self.hub.loops() if loop.revision != self._written.get(loop.state.job_id)]
            reports = [(loop.state.job_id, loop.revision, loop.report()) for loop in due]
        for job_id, revision, report in reports:
            self._written[job_id] = revision
            folder = job_id.replace("/", "_").lstrip(".") or "_"  # a name from outside
            try:
                write_report(Path(self._config.report_dir) / folder, report)
            except OSError as exc:
                log.warning("the report of job %s cannot be written: %s", job_id, exc)

    def _forget(self) -> None:
        with self.hub.lock:
            for loop in self.hub.loops():
                ended_s = loop.state.ended_s
                if ended_s is not None and loop.state.now_s - ended_s > self._config.forget_after_s:
                    self.hub.remove(loop.state.job_id)
                    self._written.pop(loop.state.job_id, None)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="diagd aggregator", description="Take agents' reports and judge them.")
    parser.add_argument("--host", help="address to listen on; 0.0.0.0 for all")
    parser.add_argument("--grpc-port", type=int, help="for agents (9473)")
    parser.add_argument("--http-port", type=int, help="for /metrics and the web (9472)")
    parser.add_argument("--store", help="the SQLite file that keeps incidents")
    parser.add_argument("--report-dir", help="write each job's report below this folder")
    parser.add_argument("--config", type=Path, action="append", default=[], metavar="FILE", help="diagd.toml")
    return parser


def main(argv: Sequence[str] | None = None, make_judge: Callable[[], Judge] = default_judge) -> int:
    """Run the aggregator until SIGTERM or SIGINT."""
    logging.basicConfig(
        level=os.environ.get("DIAGD_LOG", "info").upper(), format="diagd: %(message)s", stream=sys.stderr
    )
    args = vars(_parser().parse_args(argv))
    stop = threading.Event()
    try:
        settings = load(os.environ, args.pop("config"))
        config = replace(settings.aggregator, **{name: value for name, value in args.items() if value is not None})
        aggregator = Aggregator(config, make_judge=make_judge)
        aggregator.metric_names = settings.metrics.names
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: stop.set())
            aggregator.start()
            log.info("agents: %s; metrics and web: http://%s", aggregator.grpc.address, aggregator.web.address)
            aggregator.run(stop)
        finally:
            aggregator.close()
    except DiagdError as exc:
        with suppress(OSError):
            sys.stderr.write(f"diagd: {exc.message}\n       {exc.help}\n")
        return exc.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
