"""The check for GPUs: that without one it says so, and that its comparison finds what differs (here on the CPU)."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

SCRIPT = Path(__file__).resolve().parents[2] / "cuda_ext/device_check.py"


@pytest.fixture
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("device_check", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_without_a_gpu_it_says_so_and_succeeds(
    check: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert check.main() == 0
    assert capsys.readouterr().out == "no GPU here: nothing was checked, nothing was measured\n"


def test_its_comparison_passes_equal_digests_and_names_what_differs(
    check: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "BYTES", (0, 9, 65_537))
    device = torch.device("cpu")
    assert check.differences(device) == []
    move = check.on

    def with_a_fault(to: torch.device, tensor: torch.Tensor) -> torch.Tensor:
        moved: torch.Tensor = move(to, tensor).clone()
        if moved.dtype is torch.int16 and moved.numel() > 1000:
            moved[-1] ^= 1
        return moved

    monkeypatch.setattr(check, "on", with_a_fault)
    found = [f"torch.int16, 65537 bytes from element {offset}" for offset in (0, 1, 3)]
    ways = "", ", in torch operations", ", added up"
    assert check.differences(device) == [f"{name}{way}" for way in ways for name in found]
