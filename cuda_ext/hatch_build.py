"""Builds the compiled path of the digest where the machine that installs diagd has a C compiler, and else does without.

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

PACKAGE = Path(__file__).resolve().parent / "diagd" / "cuda_ext"


class CustomBuildHook(BuildHookInterface[Any]):
    """What hatchling calls before it makes a wheel, an editable one as well."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build, and say in the wheel's name for which machines it then is."""
        (PACKAGE / "_digest.so").unlink(missing_ok=True)  # one of an older source would be refused when it is loaded
        mode = os.environ.get("DIAGD_NATIVE", "auto")
        if mode == "off":
            return
        built = subprocess.run([sys.executable, PACKAGE / "build.py"], capture_output=True, text=True)
        if built.returncode and mode == "require":
            raise RuntimeError(f"DIAGD_NATIVE=require, but digest.c was not compiled: {built.stderr}")
        if built.returncode:
            self.app.display_warning(f"the digest goes without its compiled path: {built.stderr}")
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"  # it knows no Python ABI
        build_data["pure_python"] = False
