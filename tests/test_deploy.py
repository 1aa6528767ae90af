"""What deploy/ ships can be loaded, and says only what diagd says."""

import configparser
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"


def load(name: str) -> dict[str, Any]:
    document = yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


def rules() -> list[dict[str, Any]]:
    return [rule for group in load("prometheus/diagd-rules.yml")["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_reads_open_incidents_and_no_other_series(rule: dict[str, Any]) -> None:
    assert set(re.findall(r"\bdiagd_\w+", rule["expr"])) == {"diagd_incidents_open"}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_names_only_labels_that_survive_its_aggregation(rule: dict[str, Any]) -> None:
    kept = re.search(r"by \(([^)]*)\)", rule["expr"])
    assert kept is not None
    used = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    assert used <= set(kept[1].split(", "))


def test_the_scrape_configuration_names_the_fixed_ports_and_the_shipped_rules() -> None:
    config = load("prometheus/prometheus.yml")
    targets = [t for job in config["scrape_configs"] for block in job["static_configs"] for t in block["targets"]]
    assert {target.rpartition(":")[2] for target in targets} == {"9471", "9472"}
    assert all((DEPLOY / "prometheus" / name).is_file() for name in config["rule_files"])


def test_the_unit_starts_a_diagd_command() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((DEPLOY / "systemd/diagd-aggregator.service").read_text(encoding="utf-8"))
    program, *arguments = shlex.split(unit["Service"]["ExecStart"])
    assert (Path(program).name, arguments) == ("diagd", ["aggregator"])
    assert unit["Install"]["WantedBy"] == "multi-user.target"
