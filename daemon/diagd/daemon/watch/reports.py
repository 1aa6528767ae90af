"""The report's files, and what becomes of them where the disk is full."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from diagd.daemon.aggregator.reporting import NAME, write_report
from diagd.daemon.watch.early import early_end

PAGE = "report.html"


class Reports:
    """Writes report.json and report.html, each time anew."""

    def __init__(
        self, run_dir: Path, write_html: Callable[[dict[str, Any], Path], object], say: Callable[[str], None]
    ) -> None:
        self._run_dir = run_dir
        self._write_html = write_html
        self._say = say
        self._written = self._failed = False

    def write(self, folder: Path, report: dict[str, Any], *, final: bool) -> None:
        """Write both; where the folder takes none, the summary at the end is read from the run directory."""
        report["final"] = final  # else more may have come after it: a reader is not to take it for all there was
        if not report["ranks"] and report["job"].get("exit_code"):
            report["notes"] += filter(None, [early_end(self._run_dir)])
        try:
            write_report(folder, report)
            self._write_html(report, folder / PAGE)
        except OSError as exc:
            self._keep(folder, report, exc)
            return
        self._written = True
        if self._failed:
            (self._run_dir / NAME).unlink(missing_ok=True)

    def _keep(self, folder: Path, report: dict[str, Any], why: OSError) -> None:
        if not self._failed:
            self._say(f"diagd: the report cannot be written to {folder}: {why}")
        self._failed = True
        with suppress(OSError):
            write_report(self._run_dir, report)
        with suppress(OSError):
            if self._written:  # an old page of ours makes room for what programs read
                (folder / PAGE).unlink(missing_ok=True)
            write_report(folder, report)
