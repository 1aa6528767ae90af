"""Real jobs with a planted fault, and healthy ones: the report must name the fault, or stay quiet."""

from typing import Any

import pytest
from tests.live.cases import Case, load_faults
from tests.live.runner import Result, run_cases

SMOKE = [case for case in load_faults() if case.smoke]
# All runs lie within the first test's set-up, as they share the machine.
pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> dict[str, Result]:
    """Every wanted case's result, by name."""
    wanted = _wanted(request)
    found: dict[str, Result] = {}
    reporter: Any = request.config.pluginmanager.get_plugin("terminalreporter")
    capture: Any = request.config.pluginmanager.get_plugin("capturemanager")

    def done(result: Result) -> None:
        found[result.case.name] = result
        mark = "ok" if result.verdict.right else "WRONG"
        with capture.global_and_fixture_disabled():
            reporter.write_line(f"  {len(found)}/{len(wanted)} {result.case.name}: {mark} in {result.seconds:.0f} s")

    run_cases(wanted, done)
    return found


def _wanted(request: pytest.FixtureRequest) -> list[Case]:
    """The cases of the tests that this run has selected."""
    callspecs = (getattr(item, "callspec", None) for item in request.session.items if item.path == request.path)
    names = {callspec.params["case"].name for callspec in callspecs if callspec is not None}
    return [case for case in SMOKE if case.name in names]


@pytest.mark.parametrize("case", [c for c in SMOKE if not c.control], ids=lambda case: case.name)
def test_the_report_names_the_fault_its_culprit_and_its_place(case: Case, results: dict[str, Result]) -> None:
    result = results[case.name]
    assert result.verdict.right, result.told()
    assert result.page, "there is no report.html"
    assert result.exit_code != 0, "the job failed, yet its exit code says that it did not"


@pytest.mark.parametrize("case", [c for c in SMOKE if c.control], ids=lambda case: case.name)
def test_nothing_is_reported_of_a_healthy_job(case: Case, results: dict[str, Result]) -> None:
    result = results[case.name]
    assert result.verdict.right, result.told()
    assert result.page, "there is no report.html"


@pytest.mark.parametrize("case", [c for c in SMOKE if not c.control], ids=lambda case: case.name)
def test_a_hung_job_is_dumped_before_it_is_ended(case: Case, results: dict[str, Result]) -> None:
    result = results[case.name]
    if result.exit_code == 86:
        assert result.dump_files >= case.nproc, "the dump has no file for some rank"
