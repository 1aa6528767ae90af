"""Builds the compiled paths of digest and probes where the machine that installs has a C compiler, else does without.

DIAGD_NATIVE=require makes a missing or failing compiler an error (so that a broken source does not pass unseen), off
does not even try; the default is auto.
"""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {ROOT / "cuda_ext/diagd/cuda_ext": "_digest.so", ROOT / "probes/diagd/probes/native": "_native.abi3.so"}


class CustomBuildHook(BuildHookInterface[Any]):
    """What hatchling calls before it makes a wheel, an editable one as well."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build, and say in the wheel's name for which machines it then is."""
        for package, library in PACKAGES.items():
            (package / library).unlink(missing_ok=True)  # one of an older source would be refused when it is loaded
        mode = os.environ.get("DIAGD_NATIVE", "auto")
        if mode == "off":
            return
        if not any([self._built(package, mode) for package in PACKAGES]):  # noqa: C419 - each is tried
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"  # the one knows no Python ABI, the other the stable one of 3.11
        build_data["pure_python"] = False

    def _built(self, package: Path, mode: str) -> bool:
        built = subprocess.run([sys.executable, package / "build.py"], capture_output=True, text=True)
        if built.returncode and mode == "require":
            raise RuntimeError(f"DIAGD_NATIVE=require, but {package.name} was not compiled: {built.stderr}")
        if built.returncode:
            self.app.display_warning(f"{package.name} goes without its compiled path: {built.stderr}")
        return not built.returncode
