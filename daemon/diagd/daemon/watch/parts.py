"""What a watch is made of, each imported when it is first needed; tests put in others."""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagd.daemon.agent.parts import Looks
from diagd.daemon.aggregator.judging import Judge, default_judge
from diagd.daemon.incidents.incident import Incident
from diagd.daemon.watch.announcer import Verdict


def _default_verdict(incident: Incident) -> list[str]:
    from diagd.daemon.report.text import verdict_lines

    return verdict_lines(incident, colour=sys.stderr.isatty() and "NO_COLOR" not in os.environ)


def _default_html(report: dict[str, Any], path: Path) -> None:
    from diagd.daemon.report.html import write_html

    write_html(report, path)


def _default_observer(run_dir: Path, node: str) -> Looks:
    from diagd.daemon.agent.tally import TallyingObserver

    return TallyingObserver(run_dir, node)


def _default_dump(run_dir: Path, folder: Path) -> object:
    from diagd.daemon.agent.dump import collect_dump, targets_of_run

    return collect_dump(targets_of_run(run_dir), folder)


@dataclass(slots=True, kw_only=True)
class Parts:
    """What a watch is made of; tests put in others."""

    make_observer: Callable[[Path, str], Looks] = _default_observer
    make_judge: Callable[[], Judge] = default_judge
    verdict: Verdict = _default_verdict
    write_html: Callable[[dict[str, Any], Path], object] = _default_html
    take_dump: Callable[[Path, Path], object] = _default_dump
    write: Callable[[str], object] | None = None
    clock: Callable[[], float] = time.time
