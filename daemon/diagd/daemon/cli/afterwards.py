"""What `diagd run` says once the job has ended, and what it keeps."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diagd.daemon.cli.reportdir import ReportDir
    from diagd.daemon.supervisor import Outcome, Plan


def _kept_out(plan: "Plan") -> str:
    """Why the probes were not in the job, as far as its start shows."""
    if plan.environ.get("DIAGD_DISABLE") == "1":
        return "DIAGD_DISABLE is set, so the probes stayed out"
    if ignoring := next((word for word in plan.command if word in ("-I", "-E", "-S", "-IS", "-IE")), None):
        return f"a Python that is started with {ignoring} does not load the probes"
    return ""


def finish(
    plan: "Plan", outcome: "Outcome", folder: "ReportDir | None", say: Callable[[str], None], *, quiet: bool
) -> None:  # fmt: skip
    """The summary, and the run directory's end."""
    from diagd.daemon.cli.jobs import keep_finished, read_report
    from diagd.daemon.report.text import cut_off

    if plan.place is None:
        return
    written = folder is None or folder.has_new_report()
    unwritten = read_report(plan.place.path)  # where the folder took none: a full disk
    report = unwritten or (read_report(plan.report_dir) if plan.report_dir and written else None)
    if not quiet or report is None or report["incidents"] or cut_off(report):
        for line in (
            _nothing(outcome, folder) if report is None else _known(plan, folder, report, unwritten is not None)
        ):
            say(line)
    for line in keep_finished(plan, report):
        say(line)
    plan.place.remove()


def _known(plan: "Plan", folder: "ReportDir | None", report: Mapping[str, Any], unwritten: bool) -> list[str]:
    from diagd.daemon.report.text import cut_off, shown_path, summary_lines
    from diagd.daemon.watch.announcer import GOES_ON_S, WARN_AFTER_RATIO

    said_after_s = WARN_AFTER_RATIO * plan.hang_after_s
    lines = [*summary_lines(report, said_after_s, min(GOES_ON_S, said_after_s)), *cut_off(report)]
    if not report["ranks"] and (reason := _kept_out(plan)):
        lines.append(f"Not watched: {reason}.")
    if unwritten and plan.report_dir:
        lines.append(f"The report in {shown_path(plan.report_dir)} could not be written whole.")
    elif plan.report_dir and (folder is not None or report["incidents"]):
        lines[0] += f" Report: {shown_path(plan.report_dir / 'report.html')}"
    return lines


def _nothing(outcome: "Outcome", folder: "ReportDir | None") -> list[str]:
    from diagd.daemon.report.text import shown_path

    lines = ["nothing is known of how the job went: " + ("no report" if outcome.finished else "it ran unwatched")]
    if folder is not None and folder.earlier is not None:
        lines.append(f"the report in {shown_path(folder.path)} is an earlier run's")
    return lines
