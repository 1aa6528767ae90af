"""`diagd preflight`."""

import contextlib
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagd.daemon.cli.run import Seconds
from diagd.daemon.errors import DiagdError

if TYPE_CHECKING:
    from diagd.daemon.supervisor import Outcome, Plan

# Equal inputs are believed at the sixth in a row, unequal tensors at the second comparison, that parameters are in no
# optimizer at the third count (after 2, 8 and 16 steps), equal random numbers after 24.
STEPS = 24
FAR_AHEAD = 60  # steps
LOOK_S = 0.25
SETTLE_S = 6.0  # scalars come each second and are judged every other one, and what is not proven must be found again
PATIENCE_S = (10.0, 20.0)  # after SIGTERM, until it is sent again, and until SIGKILL
_NOT_RUN = 2


@click.command(
    "preflight",
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
)
@click.option(
    "--steps",
    type=click.IntRange(1, 10_000),
    default=STEPS,
    show_default=True,
    metavar="N",
    help="End the job some seconds after so many training steps: what they showed is still to be judged. Fewer than"
    " 24 miss some of what is checked.",
)
@click.option(
    "--limit",
    type=Seconds(),
    default=900.0,
    show_default=True,
    metavar="SECONDS",
    help="Give up the steps after so long.",
)
@click.option("--report", type=click.Path(path_type=Path), metavar="DIR", help="Write the report to this folder.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the report, as report.json has it. What the job prints then goes to standard error.",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND…")
def command(words: tuple[str, ...], steps: int, limit: float, report: Path | None, as_json: bool) -> int:
    """Run COMMAND until its first training steps are done, say what is wrong with them, and end it (SIGTERM).

    The job is a real one: what it writes in these steps (checkpoints, logs) is written. For a look before a long run,
    and for CI. What is checked is what `diagd run` checks: whether replicas hold the
    same, see samples of their own and step alike; whether what is trained is in an optimizer; types, autocast, finite
    numbers; deaths and hangs. Only the time is short.

    \b
    Exit code: 0 nothing of severity warning or above; 1 something was found; 2 it could not be run so far
      (it ended in an error, or took longer than the limit).
    """
    from diagd.daemon.cli.reportdir import open_report_dir
    from diagd.daemon.cli.run import plan_job
    from diagd.daemon.supervisor import CannotStart, supervise

    if not words:
        raise click.UsageError("Which command? For example: diagd preflight -- torchrun --nproc-per-node 8 train.py")
    folder = open_report_dir(report) if report is not None else None
    plan = plan_job(
        words, folder, job_id=None, inject=(), hang_after=60.0, on_hang="abort", aggregator=None, record=None
    )
    if plan.place is None:
        raise DiagdError("there is no place for the ranks' boxes", help="see `diagd doctor`", exit_code=_NOT_RUN)
    ending = _Ending(plan.place.path, steps, limit)
    ending.start()
    try:
        with _jobs_output_aside() if as_json else contextlib.nullcontext():
            outcome = supervise(plan, _say)
    except CannotStart as exc:
        plan.place.remove()
        raise DiagdError(exc.message, help=exc.help, exit_code=_NOT_RUN) from exc
    finally:
        ending.stop()
    return _finish(plan, outcome, ending, as_json=as_json)


@contextlib.contextmanager
def _jobs_output_aside() -> Iterator[None]:
    """The job inherits standard error for its standard output, so that a program can read the report there."""
    own = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(own, 1)
        os.close(own)


def _say(line: str) -> None:
    click.echo(f"diagd: {line}", err=True)


class _Ending:
    """Ends the job once all its ranks have made their steps, from a thread of its own."""

    def __init__(self, run_dir: Path, steps: int, limit_s: float) -> None:
        self._run_dir, self._steps, self._limit_s = run_dir, steps, limit_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="diagd-preflight", daemon=True)
        self.reached = False
        self.gave_up = False
        self.ledger: Mapping[str, Any] = {}

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """The job is over."""
        self._over.set()
        self._thread.join(timeout=5.0)

    def _watch(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are the supervisor's
        deadline = time.monotonic() + self._limit_s
        while not self._over.wait(LOOK_S):
            self.reached = self._has_stepped()
            self.gave_up = not self.reached and time.monotonic() > deadline
            if self.reached or self.gave_up:
                self._over.wait(SETTLE_S)
                self._end()
                return

    def _has_stepped(self) -> bool:
        from diagd.daemon.cli.jobs import fetch

        address = self._address()
        try:
            status = fetch(address, "/api/v1/status") if address else {}
            ranks, world = status.get("ranks") or [], (status.get("job") or {}).get("world_size") or 0
            made = sorted(rank.get("step") or 0 for rank in ranks)
            # Who has made so many fewer than another by then will not come to them: that is told.
            return len(ranks) >= max(world, 1) and (made[0] >= self._steps or made[-1] >= self._steps + FAR_AHEAD)
        except (OSError, ValueError, AttributeError):
            return False

    def _address(self) -> str:
        from diagd.daemon.supervisor import read_run_file

        return str(read_run_file(self._run_dir).get("http") or "")

    def _end(self) -> None:
        """As a person would: the supervisor passes the signal on, and what falls after it is no fault."""
        from diagd.daemon.cli.jobs import fetch
        from diagd.daemon.supervisor import read_run_file
        from diagd.daemon.supervisor.tree import processes_of, send

        try:
            self.ledger = fetch(self._address(), "/api/v1/ledger")
        except (OSError, ValueError):
            self.ledger = {}
        facts = read_run_file(self._run_dir)
        pid = facts.get("pid")
        if facts.get("exit_code") is not None or not isinstance(pid, int):
            return
        os.kill(os.getpid(), signal.SIGTERM)
        if self._over.wait(PATIENCE_S[0]):
            return
        send([pid], signal.SIGTERM)
        if not self._over.wait(PATIENCE_S[1]):
            send(processes_of(self._run_dir, pid), signal.SIGKILL)


def _finish(plan: "Plan", outcome: "Outcome", ending: _Ending, *, as_json: bool) -> int:
    from diagd.daemon.cli.jobs import keep_finished, read_report
    from diagd.daemon.report.early import early_end_of
    from diagd.daemon.report.text import summary_lines

    report = read_report(plan.report_dir) if plan.report_dir else None
    keep_finished(plan, report)
    if plan.place is not None:
        plan.place.remove()
    if as_json and report is not None:
        click.echo(json.dumps(report, indent=2))
    if report is None or not report["ranks"]:
        failed = f"; the command ended with exit code {outcome.exit_code}" if outcome.exit_code else ""
        if report is not None and (why := early_end_of(report)) and failed:
            failed += f"; {why}"
        over = "; it was ended as its limit passed (--limit SECONDS gives it more)"
        _say(f"no rank was watched: nothing is known{over if ending.gave_up else failed}")
        return _NOT_RUN
    ended = {**report, "job": {**report["job"], "exit_code": None}} if ending.reached else report  # by preflight itself
    _say(" ".join(summary_lines(ended)))
    for line in facts(ending.ledger, alone=len(report["ranks"]) == 1):
        _say(line)
    found = [one for one in report["incidents"] if one["severity"] != "info" and one["state"] == "open"]
    if not ending.reached and (ending.gave_up or outcome.exit_code != 0):
        if found:
            _say(verdict(found))
        _say(
            f"the steps were not reached: {'the limit passed' if ending.gave_up else f'exit code {outcome.exit_code}'}"
        )
        return _NOT_RUN
    _say(verdict(found))
    return 1 if found else 0


def verdict(found: Sequence[Mapping[str, Any]]) -> str:
    """The last line, by which a person and a log of CI see how it went."""
    if not found:
        return "preflight passed: nothing of severity warning or above"
    kinds = Counter(f"{one['severity']} {one['kind']}" for one in found)
    named = ", ".join(kind if count == 1 else f"{count} x {kind}" for kind, count in kinds.items())
    return f"preflight found {len(found)} fault{'s' * (len(found) != 1)}: {named}"


def facts(ledger: Mapping[str, Any], *, alone: bool = False) -> list[str]:
    """What the tensors are, by kind, placement and type, and whether ranks began with the same."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for tensor in ledger.get("tensors", ()):
        groups.setdefault((tensor["kind"], tensor["placement"], tensor["dtype"]), []).append(tensor)
    lines = []
    for (kind, placement, dtype), tensors in sorted(groups.items()):
        plural = "s" if len(tensors) > 1 and kind != "state" else ""
        lines.append(f"{len(tensors)} {kind}{plural} of {dtype}, {placement}: {_began(tensors, alone)}")
    return lines


def _began(tensors: list[Mapping[str, Any]], alone: bool) -> str:
    first = [min(tensor["digests"].items(), key=lambda told: int(told[0])) for tensor in tensors if tensor["digests"]]
    if not first:
        return "not compared: there is one rank alone" if alone else "not digested"
    apart = sum(len(told) > 1 for _, told in first)
    steps = sorted({int(step) for step, _ in first})
    when = f"at step {steps[0]}" if len(steps) == 1 else f"when first read (steps {steps[0]} to {steps[-1]})"
    text = f"equal on all ranks that hold them {when}" if not apart else f"{apart} differ between ranks {when}"
    return text if len(first) == len(tensors) else f"{text}, {len(tensors) - len(first)} not digested"
