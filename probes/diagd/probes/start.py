"""Puts the probes in place in a process that has just started; called once by the bootstrap."""

from __future__ import annotations

from diagd.probes import hook, settings
from diagd.probes.guard import Probe
from diagd.probes.registry import PROBES, ProbeSpec
from diagd.probes.state import STATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

SWITCHES: dict[str, Probe] = {}


def start(environ: Mapping[str, str]) -> None:
    """Arrange for each wanted probe to be installed when its module is imported."""
    STATE.settings = settings.read(environ)
    for bit, spec in enumerate(PROBES):
        if _wanted(spec):
            _arrange(spec, Probe(spec.name, bit, spec.always))


def _wanted(spec: ProbeSpec) -> bool:
    if spec.drill:
        return bool(STATE.settings.faults)
    return STATE.settings.probes is None or spec.name in STATE.settings.probes


def _arrange(spec: ProbeSpec, probe: Probe) -> None:
    SWITCHES[spec.name] = probe
    STATE.listeners.append(probe.switch)
    for module in spec.modules:
        hook.after_import(module, lambda loaded: probe.run(_install, spec.name, probe, loaded))


def _install(name: str, probe: Probe, loaded: Any) -> None:
    # With a list of names, or the import would also look for `diagd`, which can be the job's own.
    __import__(f"diagd.probes.{name}", None, None, ["install"]).install(probe, loaded)
