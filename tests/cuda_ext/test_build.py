"""What is built, by whom, and what happens where it was not."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from diagd.cuda_ext import build, compiled, digest, driver
from diagd.cuda_ext.definition import of_bytes

CONSTANT = "int diagd_digest(void) { return 0; }"


def test_the_kernel_that_is_shipped_was_made_of_its_source() -> None:
    """Where this fails: `python cuda_ext/make_ptx.py`, with nvcc."""
    source = hashlib.sha256(build.SOURCE.with_name("digest.cu").read_bytes()).hexdigest()
    first, _, rest = driver.PTX.read_text(encoding="utf-8").partition("\n")
    assert first.endswith(source)
    assert ".visible .entry diagd_digest_tiles(" in rest
    assert ".visible .entry diagd_digest_fold(" in rest


def test_a_missing_or_failing_compiler_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/bin/false")
    assert build.build(tmp_path / "a.so").startswith("/bin/false: ")
    monkeypatch.setenv("CC", str(tmp_path / "cc"))
    assert "No such file" in build.build(tmp_path / "a.so")
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.build(tmp_path / "a.so") == "no C compiler was found"
    assert list(tmp_path.iterdir()) == []


def test_a_library_that_is_missing_or_broken_is_not_used(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="was not built"):
        compiled.Library(tmp_path / "none.so")
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"no library")
    with pytest.raises(OSError, match=r"broken\.so"):
        compiled.Library(broken)


def test_a_library_of_another_definition_is_not_used(tmp_path: Path) -> None:
    command, source = build.compiler(), tmp_path / "other.c"
    for text, said in ((CONSTANT, "another definition"), (CONSTANT.replace("digest", "hash"), "another version")):
        source.write_text(text)
        library = tmp_path / f"{said.split()[1]}.so"
        subprocess.run([*command, "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
        with pytest.raises(ValueError, match=said):
            compiled.Library(library)


def test_without_the_library_the_digest_is_the_same_and_the_status_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "library", lambda: "no compiler here")
    assert digest.status()["cpu"] == "torch operations: no compiler here"

    assert digest.digest(torch.arange(9)).bits == of_bytes(b"".join(i.to_bytes(8, "little") for i in range(9)))


def test_a_machine_without_a_driver_says_so(monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr("ctypes.CDLL", missing)
    driver.kernel.cache_clear()
    assert driver.kernel(0) == "libcuda.so.1: not here"
    driver.kernel.cache_clear()


def missing(name: str) -> None:
    raise OSError(f"{name}: not here")


def test_no_import_of_ours_takes_the_name_diagd_from_the_job(tmp_path: Path) -> None:
    """As in a rank, where our packages are loaded and the name is left to the job."""
    (tmp_path / "diagd.py").write_text("raise SystemExit('imported')")
    code = (
        "import sys, diagd.cuda_ext; del sys.modules['diagd']; sys.path.insert(0, sys.argv[1]); "
        "__import__('diagd.cuda_ext.digest', None, None, ['x']).digest; sys.exit('diagd' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_importing_the_package_imports_no_torch() -> None:
    code = (
        "import sys, diagd.cuda_ext, diagd.cuda_ext.definition, diagd.cuda_ext.build; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
