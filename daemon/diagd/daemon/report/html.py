"""A report as one page: no network, no script, readable on a phone."""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from diagd.daemon.ranks import rank_ranges
from diagd.daemon.report.drill import drill_text, unwatched
from diagd.daemon.report.early import early_text
from diagd.daemon.report.plots import figure
from diagd.daemon.report.text import waiting_text

_TEMPLATE = Path(__file__).with_name("page.html.j2")


def write_html(report: Mapping[str, Any], path: Path) -> None:
    """Write the page whole, so that a browser never loads half of it.

    Args:
        report: As in report.json.

    Raises:
        OSError: The file cannot be written.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_text(page(report), encoding="utf-8")
        fresh.replace(path)
    except OSError:
        with suppress(OSError):
            fresh.unlink()  # half of it would take the room on a full disk that report.json needs
        raise


def page(report: Mapping[str, Any]) -> str:
    """The page; whatever comes from the job is escaped."""
    open_ones = [i for i in report["incidents"] if i["state"] == "open" and i["severity"] == "critical"]
    return _template().render(
        report=report,
        title=f"diagd: {report['job']['id']}",
        headline=_headline(report),
        culprits={rank for incident in open_ones for rank in incident["ranks"]},
        plots=[drawn for plot in report.get("plots") or [] if (drawn := figure(plot)) is not None],
        drill=drill_text(report.get("notes") or []),
        unwatched=unwatched(report.get("notes") or []),
        zone=time.strftime("%Z"),
    )


@cache
def _template() -> jinja2.Template:
    """Made once: that takes longer than to fill it, and a watched job shares the CPU."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(moment=_moment, span=_span, ranks=lambda ranks: rank_ranges(ranks, named=True))
    environment.filters["waiting"] = waiting_text
    return environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))


def _headline(report: Mapping[str, Any]) -> str:
    incidents = report["incidents"]
    if incidents:
        return str(incidents[0]["summary"])
    if not report.get("judged", True):
        return "Not judged"
    code = report["job"]["exit_code"]
    if code is None:
        return "No incident so far"
    if early := early_text(report):
        return early
    return "The job ended well" if code == 0 else f"The job ended with exit code {code}; diagd found no incident"


def _moment(unix_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_s))


def _span(seconds: float) -> str:
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{max(seconds, 0.0):.1f} s"
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {whole % 60} s"
