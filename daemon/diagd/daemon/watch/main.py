"""The process that `diagd run` starts beside the job: the node's agent and, but for --aggregator, the aggregator."""

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from diagd.daemon.agent.introduction import agent_version, make_identity
from diagd.daemon.agent.loop import AgentLoop
from diagd.daemon.agent.stream import Stream
from diagd.daemon.aggregator.hub import Hub
from diagd.daemon.aggregator.loop import JobLoop, restored_incident
from diagd.daemon.aggregator.reporting import write_whole
from diagd.daemon.aggregator.service import GrpcServer
from diagd.daemon.aggregator.web import WebServer
from diagd.daemon.config.settings import Config, load
from diagd.daemon.errors import DiagdError
from diagd.daemon.incidents.incident import Incident
from diagd.daemon.record.record import NotARecord, RecordWriter
from diagd.daemon.store.store import SqliteStore, Store, StoreError
from diagd.daemon.watch.announcer import Announcer
from diagd.daemon.watch.control import Control
from diagd.daemon.watch.options import Options, parse
from diagd.daemon.watch.parts import Parts
from diagd.daemon.watch.policy import Policy
from diagd.daemon.watch.reports import Reports
from diagd.daemon.watch.unjudged import Seen
from diagd.daemon.watch.views import EmbeddedView, LocalUplink, RemoteView, View
from diagd.proto.v1.record_pb2 import RecordEntry

log = logging.getLogger(__name__)

STORE_NAME = "diagd.sqlite"
TARGETS_NAME = "prometheus.json"  # for Prometheus' file_sd
LOOPBACK = "127.0.0.1"
# A process's exit code may be seen only some time after it is gone; without one the observer gives up after 2 s.
LAST_LOOKS_S = 2.5
LAST_LOOK_EVERY_S = 0.2
DUMP_UNDER_WAY_S = 4.0
# Where the ranks use all CPUs, watching waits for the moments in which they wait for each other, and holds none of them
# up; a tenth of a CPU stays its own, which is more than it needs.
NICE = 10


def _shown(path: Path) -> str:
    from diagd.daemon.report.text import shown_path

    return shown_path(path)


class Watch:
    """One job, from the first look to the last report."""

    def __init__(self, options: Options, config: Config, parts: Parts | None = None) -> None:
        self._options = options
        self._config = config
        self._parts = parts or Parts()
        self.control = Control(options.control_fd)
        self.announcer = Announcer(self._parts.verdict, self._parts.write or _to_stderr, options.hang_after_s)
        self._reports = Reports(options.run_dir, self._parts.write_html, self.announcer.say)
        self._identity = make_identity(options.job_id, node=options.node, hang_after_s=options.hang_after_s)
        self._store: Store | None = None
        self._record: RecordWriter | None = None
        self._grpc: GrpcServer | None = None
        self._web: WebServer | None = None
        self._stream: Stream | None = None
        self._written = 0
        self._finishing = False
        self._stop = False
        self._wake_r, self._wake_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.agent, self.view = self._connect()
        self.policy = Policy(
            options.on_hang,
            self._dump_folder,
            options.report_dir,
            self.agent,
            self._take_dump,
            self.control.tell,
            self._dumped,
            self.view.stopping,
        )

    def run(self) -> int:
        """Watch until the job ends, the supervisor is gone, or SIGTERM."""
        self._listen()
        self.agent.start()
        exit_code: int | None = None
        ended = False
        while not (ended or self._stop or self.control.closed):
            for message in self.control.wait(self._config.aggregator.tick_s, self._wake_r):
                if isinstance(job := message.get("job"), dict):
                    self._take_job(job)
                if "stopping" in message:
                    self.view.stopping()
                if isinstance(exited := message.get("exited"), dict):
                    exit_code, ended = exited.get("code"), True
            if not ended:
                self._judge()
        self._finish(exit_code, ended)
        return 0

    def stop(self) -> None:
        """End, as at SIGTERM; from a signal's handler or another thread."""
        self._stop = True
        with suppress(OSError):
            os.write(self._wake_w, b"x")

    def close(self) -> None:
        """Let go of everything."""
        self.agent.stop()
        for part in (self._web, self._grpc):
            if part is not None:
                part.stop()
        for closing in (self.policy, self._stream, self.view, self._store, self._record):
            if closing is not None and hasattr(closing, "close"):
                closing.close()
        self.control.close()
        for fd in (self._wake_r, self._wake_w):
            with suppress(OSError):
                os.close(fd)

    def _connect(self) -> tuple[AgentLoop, View]:
        options = self._options
        observer = self._observer = self._parts.make_observer(options.run_dir, options.node)
        if options.aggregator is not None:
            self._stream = Stream(options.aggregator, self._identity, lambda command: self.agent.command(command))
            seen = Seen(self._stream, options.job_id, options.hang_after_s)
            view = RemoteView(options.aggregator, options.job_id, self._stream, seen)
            agent = AgentLoop(observer, seen, config=self._config.agent, dump=self._dump_on_command)
            return agent, view
        hub = Hub(self._parts.clock)
        self._open_store()
        self._open_record()
        loop = JobLoop(
            options.job_id,
            self._parts.make_judge(),
            restored=self._restored(),
            hang_after_s=options.hang_after_s,
            record=self._record_entry if self._record is not None else None,
        )
        loop.state.metric_names = self._config.metrics.names
        hub.add(loop)
        self._restore_run(loop)
        self.announcer.restore(loop.book.incidents)
        uplink = LocalUplink(hub, self._identity)
        agent = AgentLoop(
            observer, uplink, config=self._config.agent, dump=self._dump_on_command, clock=self._parts.clock
        )
        uplink.agent = agent
        self._grpc = GrpcServer(hub, LOOPBACK, 0)
        self._web = WebServer(hub, LOOPBACK, 0)
        return agent, EmbeddedView(hub, loop, self._store, options.hang_after_s)

    def _open_store(self) -> None:
        try:
            self._store = SqliteStore(self._options.run_dir / STORE_NAME)
        except StoreError as exc:
            log.warning("%s: incidents do not outlive this watcher", exc)

    def _restored(self) -> list[Incident]:
        found = self._store.incidents(self._options.job_id) if self._store is not None else []
        return [restored_incident(said) for said in found]

    def _restore_run(self, loop: JobLoop) -> None:
        facts = self._store.run(self._options.job_id) if self._store is not None else None
        if facts is not None:
            loop.state.command, loop.state.started_s = tuple(facts["command"]), facts["started_s"]

    def _open_record(self) -> None:
        if self._options.record is None:
            return
        try:
            self._record = RecordWriter(self._options.record)
        except (OSError, NotARecord) as exc:
            self.announcer.say(f"diagd: the run is not recorded: {exc}")

    def _record_entry(self, entry: RecordEntry) -> None:
        if self._record is None:
            return
        try:
            self._record.write(entry)
        except OSError as exc:
            self.announcer.say(f"diagd: the record ends here: {exc}")
            self._record.close()
            self._record = None

    def _listen(self) -> None:
        grpc_address = self._grpc.start() if self._grpc is not None else self._options.aggregator
        http_address = self._web.start() if self._web is not None else None
        addresses: dict[str, Any] = {"grpc": grpc_address, "http": http_address, "watch_pid": os.getpid()}
        if http_address is not None:
            with suppress(OSError):
                # No labels: the series carry the job's name themselves.
                write_whole(self._options.run_dir / TARGETS_NAME, json.dumps([{"targets": [http_address]}]) + "\n")
        self.control.tell({"ready": {**addresses, "version": agent_version()}})

    def _take_job(self, job: dict[str, Any]) -> None:
        command = [str(word) for word in job.get("command") or []]
        self.view.started(command, float(job.get("started_s") or self._parts.clock()))

    def _judge(self) -> None:
        self.view.poll()
        self.announcer.consider(self.view.incidents, self._parts.clock())
        self.policy.consider(self.view.incidents, self._parts.clock())
        self._write_report()

    def _dumped(self, incident: Incident, folder: str) -> None:
        self.view.dumped(incident, folder)
        self.announcer.say(f"       dump      {_shown((self._options.report_dir or Path()) / folder)}")

    def _dump_folder(self, incident: str) -> Path:
        options = self._options
        return (options.report_dir or options.run_dir) / "dumps" / f"{options.dump_prefix}{incident}"

    def _dump_on_command(self, ranks: Sequence[int], incident: str) -> Path:
        folder = self._dump_folder(Path(incident).name or "asked")
        folder.mkdir(parents=True, exist_ok=True)
        self._take_dump(folder)
        return folder

    def _take_dump(self, folder: Path) -> None:
        with self._observer.undisturbed():
            self._parts.take_dump(self._options.run_dir, folder)
            with suppress(OSError):  # without it `diagd analyze` takes the usual patience for the job's
                write_whole(folder / "job.json", json.dumps({"hang_after_s": self._options.hang_after_s}) + "\n")

    def _write_report(self) -> None:
        folder = self._options.report_dir
        if folder is None or self.view.revision == self._written:
            return
        report = self.view.report()
        if report is None or (self._options.restarts and not report["ranks"] and not self._finishing):
            return  # what the watch before this one wrote stands until this one has seen a rank
        self._written = self.view.revision
        report["notes"] = [*report.get("notes", ()), *self._observer.notes, *self._options.notes]
        self._reports.write(folder, report, final=self._finishing)

    def _finish(self, exit_code: int | None, ended: bool) -> None:
        """The last looks, the last verdict, the last report."""
        deadline = time.monotonic() + DUMP_UNDER_WAY_S
        while self.policy.busy and time.monotonic() < deadline:
            time.sleep(0.05)
            self.policy.consider(self.view.incidents, self._parts.clock())
        self.agent.stop()
        deadline = time.monotonic() + LAST_LOOKS_S
        self.agent.step(everything=True)
        while ended and self.agent.unsettled and time.monotonic() < deadline:
            time.sleep(LAST_LOOK_EVERY_S)
            self.agent.step(everything=True)
        if ended:
            self.view.finish(exit_code)
        self.view.poll()
        self.announcer.consider(self.view.incidents, self._parts.clock())
        self._written, self._finishing = 0, ended
        self._write_report()
        self.control.tell({"done": True})


def _to_stderr(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def main(argv: Sequence[str] | None = None, parts: Parts | None = None) -> int:
    """Watch a job."""
    logging.basicConfig(
        level=os.environ.get("DIAGD_LOG", "warning").upper(), format="diagd: %(message)s", stream=sys.stderr
    )
    options = parse(argv)
    try:
        watch = Watch(options, load(os.environ), parts)
        signal.signal(signal.SIGTERM, lambda *_: watch.stop())
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return watch.run()
        finally:
            watch.close()
    except DiagdError as exc:
        _to_stderr(f"diagd: {exc.message}\n       {exc.help}\n")
        return exc.exit_code


if __name__ == "__main__":
    os.nice(NICE)
    raise SystemExit(main())
