"""Prometheus' text format, and what each of diagd's processes says of itself in it."""

import platform
import resource
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Family = tuple[str, str, str]  # name, type, help
BUILD: Family = ("diagd_build_info", "gauge", "The version of diagd that serves this.")
PROCESS: tuple[Family, ...] = (
    ("process_cpu_seconds_total", "counter", "CPU time of this process."),
    ("process_resident_memory_bytes", "gauge", "Resident memory of this process."),
)


class Text:
    """Collects samples by family and renders them, in the families' order."""

    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families
        self._lines: dict[str, list[str]] = {name: [] for name, _, _ in families}

    def add(self, family: str, labels: str, value: float) -> None:
        """Add one sample; `labels` as rendered by `labels_text`."""
        self._lines[family].append(f"{family}{{{labels}}} {_number(value)}" if labels else f"{family} {_number(value)}")

    def render(self) -> str:
        """All families that have samples."""
        parts = []
        for name, kind, help in self._families:
            if self._lines[name]:
                parts += [f"# HELP {name} {help}", f"# TYPE {name} {kind}", *self._lines[name]]
        return "\n".join(parts) + "\n"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


@cache
def escape(value: str) -> str:
    """A label's value."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def labels_text(labels: Mapping[str, str]) -> str:
    """Rendered labels."""
    return ",".join(f'{name}="{escape(value)}"' for name, value in labels.items())


def add_build(text: Text) -> None:
    """The version that runs."""
    text.add(BUILD[0], labels_text({"version": _version(), "python": platform.python_version()}), 1)


def add_process(text: Text) -> None:
    """What this process uses."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    text.add("process_cpu_seconds_total", "", used.ru_utime + used.ru_stime)
    text.add("process_resident_memory_bytes", "", resident_bytes())


def resident_bytes() -> int:
    """This process's resident memory."""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - as cheap as it gets
        return int(file.read().split()[1]) * resource.getpagesize()


@cache
def _version() -> str:
    try:
        return version("diagd")
    except PackageNotFoundError:  # run from a checkout
        return "0+unknown"
