"""The digests in a rank are those of diagd.cuda_ext, whatever the job itself calls diagd."""

import sys
from pathlib import Path

import pytest
import torch
from tests.probes.jobs import run

from diagd.cuda_ext import digest as whole
from diagd.probes import digest

SCRIPT = """
import sys
sys.path.insert(0, "{job}")
import torch
from diagd.probes import digest
print(digest.Pending([torch.arange(10.0)]).bits())
import diagd
print(diagd.WHOSE)
"""


def test_they_are_signed_and_in_the_tensors_order() -> None:
    held = [torch.full((number,), 1.5) for number in range(1, 30)]
    pending = digest.Pending(held)
    assert pending.ready()
    bits = pending.bits()
    assert [one % (1 << 64) for one in bits] == [one.bits for one in whole.digest_many(held)]
    assert min(bits) < 0
    assert max(bits) < 1 << 63


def test_they_are_found_where_the_job_has_a_package_diagd_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "job" / "diagd").mkdir(parents=True)
    (tmp_path / "job" / "diagd" / "__init__.py").write_text("WHOSE = 'the job'\nprint('imported')\n")
    (tmp_path / "run").mkdir()
    done = run(SCRIPT.format(job=tmp_path / "job"), folder=tmp_path / "run", flags=("-P",))
    assert done.returncode == 0, done.stderr
    expected = digest.Pending([torch.arange(10.0)]).bits()
    assert done.stdout.split("\n")[:3] == [str(expected), "imported", "the job"]


def test_where_they_are_missing_that_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(digest, "_PLACES", (tmp_path,))
    for name in [name for name in sys.modules if name.startswith("diagd.cuda_ext")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match="not installed"):
        digest.load()
