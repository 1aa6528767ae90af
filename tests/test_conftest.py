"""The guards in conftest.py guard."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

HERE = Path(__file__).parent


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest((HERE / "conftest.py").read_text(encoding="utf-8"))
    (pytester.path / "allowed_skips.txt").write_text(
        "test_it.py::test_known | needs a GPU\ntest_it.py::test_many | needs a GPU\n", encoding="utf-8"
    )
    return pytester


def run(project: pytest.Pytester, source: str) -> pytest.RunResult:
    project.makepyfile(test_it="import pytest\n" + source)
    return project.runpytest_subprocess()


def test_a_skip_that_the_list_does_not_name_fails_the_run(project: pytest.Pytester) -> None:
    result = run(project, "def test_ok(): pass\ndef test_new(): pytest.skip('no time')\n")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*test_it.py::test_new | no time"])


def test_a_listed_skip_passes(project: pytest.Pytester) -> None:
    source = "def test_ok(): pass\n@pytest.mark.skipif(True, reason='needs a GPU')\ndef test_known(): pass\n"
    assert run(project, source).ret == pytest.ExitCode.OK


def test_a_listed_test_covers_its_parameters(project: pytest.Pytester) -> None:
    source = "@pytest.mark.parametrize('n', [1, 2])\ndef test_many(n): pytest.skip('needs a GPU')\n"
    assert run(project, source).ret == pytest.ExitCode.OK


def test_a_listed_skip_with_another_reason_fails_the_run(project: pytest.Pytester) -> None:
    assert run(project, "def test_known(): pytest.skip('flaky')\n").ret == pytest.ExitCode.TESTS_FAILED


def test_a_module_that_skips_itself_fails_the_run(project: pytest.Pytester) -> None:
    result = run(project, "pytest.importorskip('no_such_module')\ndef test_ok(): pass\n")
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_an_expected_failure_counts_as_a_skip(project: pytest.Pytester) -> None:
    source = "@pytest.mark.xfail(reason='later')\ndef test_new(): assert False\n"
    assert run(project, source).ret == pytest.ExitCode.TESTS_FAILED


def test_a_line_without_a_reason_is_refused(project: pytest.Pytester) -> None:
    (project.path / "allowed_skips.txt").write_text("test_it.py::test_known\n", encoding="utf-8")
    assert run(project, "def test_ok(): pass\n").ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize(
    "leak",
    [
        "threading.Thread(target=time.sleep, args=(30,), daemon=True, name='forgotten').start()",
        "subprocess.Popen(['sleep', '30'])",
        "subprocess.run(['sh', '-c', 'setsid sleep 30 >/dev/null 2>&1 &'])",  # an orphan in a session of its own
    ],
)
def test_what_a_test_leaves_running_is_an_error(project: pytest.Pytester, leak: str) -> None:
    result = run(project, f"import subprocess, threading, time\ndef test_it(): {leak}\n")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*left running by the test:*"])
    result.assert_outcomes(passed=1, errors=1)


def test_what_ends_by_itself_is_no_leak(project: pytest.Pytester) -> None:
    result = run(project, "import subprocess\ndef test_it(): subprocess.Popen(['sleep', '0.3'])\n")
    result.assert_outcomes(passed=1)
