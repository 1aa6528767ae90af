"""What ended a process before it was a rank is left behind, and nothing by those that end well."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.probes.jobs import run


def notes(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.died"))]


@pytest.mark.parametrize(
    ("text", "error", "message", "place"),
    [
        ("def f(:", "SyntaxError", "invalid syntax (train.py, line 1)", ""),
        ("\nimport no_such_module", "ModuleNotFoundError", "No module named 'no_such_module'", "train.py:2"),
        (
            "raise OSError('\\n-- Process 0 ended:\\n\\nTraceback (most recent call last):\\n  File x\\nKeyError: 7')",
            "OSError",
            "Process 0 ended: KeyError: 7",
            "train.py:1",
        ),
        ("import json\ndef load():\n    json.loads('{')\nload()", "JSONDecodeError", "Expecting", "train.py:3"),
    ],
)
def test_an_error_before_torch_is_left_with_its_line(
    tmp_path: Path, text: str, error: str, message: str, place: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(text)
    done = run(script, folder=tmp_path, RANK="3")
    assert done.returncode == 1
    assert done.stderr == run(script, folder=None).stderr
    (note,) = notes(tmp_path)
    assert (note["error"], note["place"], note["rank"]) == (error, place, "3")
    assert note["message"].startswith(message)


@pytest.mark.parametrize("text", ["pass", "import sys\nsys.exit(2)", "try:\n    1 / 0\nexcept ZeroDivisionError: pass"])
def test_one_that_ends_by_itself_leaves_nothing(tmp_path: Path, text: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(text)
    run(script, folder=tmp_path)
    assert notes(tmp_path) == []
