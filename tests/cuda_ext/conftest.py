"""The paths of the digest that this machine has, each as one function from a tensor to its digest."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from diagd.cuda_ext import build, compiled, digest
from diagd.cuda_ext.digest import Digest

PATHS = ("torch", "compiled") if build.compiler() else ("torch",)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> compiled.Library:
    """Of the source as it is now, not as it was at the last installation."""
    path: Path = tmp_path_factory.mktemp("native") / "_digest.so"
    assert build.build(path) == ""
    return compiled.Library(path)


@pytest.fixture(params=PATHS)
def taken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[torch.Tensor], Digest]:
    """digest() by one path."""
    use = "left out by a test" if request.param == "torch" else request.getfixturevalue("library")
    monkeypatch.setattr(compiled, "library", lambda: use)
    return digest.digest
