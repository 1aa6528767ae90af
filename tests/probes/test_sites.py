"""Which frames are the user's."""

import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pytest

from diagd.probes import sites
from diagd.probes.box.reader import BoxReader
from diagd.probes.box.writer import BoxWriter

STDLIB = sysconfig.get_paths()["stdlib"]


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("/home/me/train.py", 2),
        ("train.py", 2),
        ("<string>", 2),
        ("<ipython-input-3-abc>", 2),
        ("/home/me/torch/model.py", 2),
        ("/opt/venv/lib/python3.11/site-packages/lightning/trainer.py", 1),
        ("/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 0),
        (f"{STDLIB}/threading.py", 0),
        (sites.__file__, 0),
        ("<diagd>", 0),
        ("<diagd:eager>", 0),
        ("<frozen runpy>", 0),
        ("<eval_with_key>.3", 0),
    ],
)
def test_a_file_is_the_users_a_packages_or_below(file: str, kind: int) -> None:
    assert sites.kind_of_file(file) == kind


@pytest.mark.parametrize(("beside", "installed"), [((), "torch/"), (("torch-2.13.0.dist-info",), "")])
def test_torch_may_lie_anywhere_and_then_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: tuple[str, ...], installed: str
) -> None:
    """Alone, as on PYTHONPATH; or with all else, as `pip install --target` leaves it."""
    for name in beside:
        (tmp_path / name).mkdir()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__file__=f"{tmp_path}/torch/__init__.py"))
    assert sites.installed_folders() == [f"{tmp_path}/{installed}"]
    monkeypatch.setattr(sites, "_installed", tuple(sites.installed_folders()))
    assert sites.kind_of_file(f"{tmp_path}/numpy/core.py") == (1 if beside else 2)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__file__="/v/lib/python3.11/site-packages/torch/_.py"))
    assert sites.installed_folders() == []


def called_from(file: str, function: str = "step") -> int:
    """The site of a call made by code that pretends to lie in `file`."""
    names: dict[str, object] = {"site": sites.site, "frame": sys._getframe}
    exec(compile(f"def {function}(inner=None):\n    return inner() if inner else site(frame())\n", file, "exec"), names)
    made = names[function]
    assert callable(made)
    return int(made())


def test_the_line_is_told_with_file_and_function(recording: BoxWriter) -> None:
    offset = called_from("/home/me/train.py")
    assert BoxReader(recording.path).string(offset) == "/home/me/train.py\t2\tstep"


def test_frames_below_are_skipped(recording: BoxWriter) -> None:
    offset = called_from("/opt/lib/python3.11/site-packages/torch/x.py")
    file, _, function = BoxReader(recording.path).string(offset).split("\t")
    assert (file, function) == (__file__, "called_from")


def test_many_made_up_functions_do_not_fill_the_memory(recording: BoxWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sites, "_MAX_KNOWN", len(sites._codes) + 10)
    offsets = {called_from(f"/home/me/made_{number}.py") for number in range(50)}
    assert len(offsets) == 50
    assert len(sites._codes) <= sites._MAX_KNOWN
