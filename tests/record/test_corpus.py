"""Recordings of real runs, judged by the detectors of today."""

import tomllib

import pytest
from tests.record.corpus import FOLDER, unpacked, verdicts

EXPECTED = tomllib.loads((FOLDER / "corpus.toml").read_text(encoding="utf-8"))


def test_every_recording_has_its_expectation() -> None:
    assert {path.name.removesuffix(".rec.xz") for path in FOLDER.glob("*.rec.xz")} == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_recorded_run_is_judged_as_it_was(name: str) -> None:
    expected = EXPECTED[name]
    with unpacked(name) as path:
        found, _ = verdicts(path)
    severity = expected.get("severity", "critical")
    said = [(i.kind, list(i.ranks)) for i in found if i.peak_severity.value == severity]
    if not expected["kind"]:
        assert said == []
        return
    assert said[:1] == [(expected["kind"], expected["ranks"])]
    places = [f"{place.frame.function}" for i in found[:1] for place in i.locations]
    assert set(expected.get("where", [])) <= set(places)
