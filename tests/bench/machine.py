"""What was measured on, and when: a figure without it means nothing."""

import os
import platform
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def described() -> dict[str, str]:
    """The machine in a few words each."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "cores": str(len(os.sched_getaffinity(0))),
        "processor": _processor(),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": _version("torch"),
        "load before": f"{os.getloadavg()[0]:.1f}",
    }


def line(machine: dict[str, str]) -> str:
    """The same in one line."""
    return ", ".join(f"{name} {value}" for name, value in machine.items())


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines)


def _processor() -> str:
    for text in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if text.startswith("model name"):
            return text.partition(":")[2].strip()
    return platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
