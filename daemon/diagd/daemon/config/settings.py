"""The daemon's settings: diagd.toml, then DIAGD_AGENT_*, DIAGD_AGGREGATOR_* and DIAGD_METRICS_* over it."""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import msgspec

from diagd.daemon.errors import DiagdError

USAGE = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentConfig:
    """How an agent looks at its ranks."""

    look_s: float = 0.5  # between two looks at all ranks
    suspicious_look_s: float = 0.25  # while some rank waits long, is stopped or has ended
    buffer_windows: int = 1200  # kept while the aggregator cannot be reached: ten minutes of looks
    buffer_bytes: int = 16 * 1024 * 1024
    host: str = "127.0.0.1"  # where an agent by itself serves its own /metrics,
    http_port: int = 0  # 0: it does not; the port that deploy/prometheus scrapes is 9471


@dataclass(frozen=True, kw_only=True, slots=True)
class AggregatorConfig:
    """Where the aggregator listens, and what it keeps."""

    host: str = "127.0.0.1"  # who can reach it is trusted: there is no encryption yet
    grpc_port: int = 9473
    http_port: int = 9472
    tick_s: float = 0.25  # between two judgements
    store: str = "diagd.sqlite"
    report_dir: str = ""  # a folder for each job below it; empty: none is written
    forget_after_s: float = 3600.0  # an ended job stays in /metrics this long


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricsConfig:
    """What the metrics are that scripts log."""

    # As logged -> what it is, such as "kl"; "" for what only has the name of something that is known.
    names: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """All sections."""

    agent: AgentConfig = field(default_factory=AgentConfig)
    aggregator: AggregatorConfig = field(default_factory=AggregatorConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)


def load(environ: Mapping[str, str], paths: Iterable[Path] = ()) -> Config:
    """Read the settings; a later file wins over an earlier one, the environment over all.

    Raises:
        DiagdError: A file cannot be read, a key is not known, or a value is not of its kind.
    """
    values: dict[str, dict[str, Any]] = {f.name: {} for f in fields(Config)}
    for path in paths:
        for section, keys in _read(path).items():
            _check(section, values, str(path))
            if not isinstance(keys, dict):
                raise DiagdError(f"{path}: [{section}] is a section, not a value", exit_code=USAGE)
            for key, value in keys.items():
                _check(key, _keys(section), f"{path}: [{section}]")
                values[section][key] = _converted(value, section, key, f"{path}: [{section}] {key}", strict=True)
    for section in values:
        prefix = f"DIAGD_{section.upper()}_"
        for name in sorted(environ):
            if name.startswith(prefix):
                key = name.removeprefix(prefix).lower()
                _check(key, _keys(section), name)
                values[section][key] = _converted(environ[name], section, key, name, strict=False)
    return Config(**{section: _section(section)(**found) for section, found in values.items()})


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as exc:
        raise DiagdError(f"{path} cannot be read: {exc}", exit_code=USAGE) from exc
    except tomllib.TOMLDecodeError as exc:
        raise DiagdError(f"{path} is no valid TOML: {exc}", exit_code=USAGE) from exc


def _section(name: str) -> type[Any]:
    return {"agent": AgentConfig, "aggregator": AggregatorConfig, "metrics": MetricsConfig}[name]


def _keys(section: str) -> dict[str, Any]:
    return {f.name: f.type for f in fields(_section(section))}


def _check(key: str, known: Mapping[str, Any], where: str) -> None:
    if key in known:
        return
    close = difflib.get_close_matches(key, known, n=1)
    help = f"Did you mean {close[0]}?" if close else f"Known are: {', '.join(sorted(known))}."
    raise DiagdError(f"{where}: {key!r} is not known", help=help, exit_code=USAGE)


def _converted(value: object, section: str, key: str, where: str, *, strict: bool) -> object:
    wanted = _keys(section)[key]
    try:
        if not strict and isinstance(value, str) and wanted is not str and value.lstrip().startswith("{"):
            return msgspec.json.decode(value, type=wanted)
        return msgspec.convert(value, wanted, strict=strict)
    except msgspec.MsgspecError as exc:
        default = getattr(_section(section)(), key)
        raise DiagdError(f"{where} is {value!r}: {exc}", help=f"Its default is {default!r}.", exit_code=USAGE) from exc
