"""Builds the compiled path of the digest where the machine that installs diagd has a C compiler, and else does without.

DIAGD_NATIVE=require makes a missing or failing compiler an error (so that a broken source does not pass unseen), off
does not even try; the default is auto.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path(__file__).resolve().parent / "diagd" / "cuda_ext"
SOURCE, LIBRARY = PACKAGE / "digest.c", PACKAGE / "_digest.so"
# The last four let sums of floating-point numbers be vectorised; NaN and infinity keep their meaning.
FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-shared", "-Wall", "-Wextra",
         "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fassociative-math")  # fmt: skip
LIMIT_S = 120


class CustomBuildHook(BuildHookInterface[Any]):
    """What hatchling calls before it makes a wheel, an editable one as well."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build, and say in the wheel's name for which machines it then is."""
        LIBRARY.unlink(missing_ok=True)  # one of an older source would only be refused when it is loaded
        mode = os.environ.get("DIAGD_NATIVE", "auto")
        if mode == "off":
            return
        problem = build()
        if problem and mode == "require":
            raise RuntimeError(f"DIAGD_NATIVE=require, but {SOURCE.name} was not compiled: {problem}")
        if problem:
            self.app.display_warning(f"the digest goes without its compiled path: {problem}")
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"  # it knows no Python ABI
        build_data["pure_python"] = False


def build() -> str:
    """Compile the library; return in words why that failed, or nothing."""
    compiler = shlex.split(os.environ.get("CC", "")) or [shutil.which("cc") or shutil.which("gcc") or ""]
    if not compiler[0]:
        return "no C compiler was found"
    part = LIBRARY.with_suffix(f".{os.getpid()}.part")
    try:
        subprocess.run(
            [*compiler, *FLAGS, str(SOURCE), "-o", str(part)], check=True, capture_output=True, timeout=LIMIT_S
        )
        part.replace(LIBRARY)  # never over a library that a process has loaded
    except subprocess.CalledProcessError as error:
        return f"{compiler[0]}: {error.stderr.decode(errors='replace').strip()[-2000:]}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{compiler[0]}: {error}"
    finally:
        part.unlink(missing_ok=True)
    return ""


if __name__ == "__main__":
    sys.exit(build())
