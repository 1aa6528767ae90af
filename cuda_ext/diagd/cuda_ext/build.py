"""Compiles the digests' compiled paths: `python -m diagd.cuda_ext.build`; the installation does it by itself.

Imports the standard library alone, as it also runs before diagd is installed.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().with_name("digest.c")
SOURCES = SOURCE, SOURCE.with_name("additive.c")
LIBRARY = SOURCE.with_name("_digest.so")
# The last four let sums of floating-point numbers be vectorised; NaN and infinity keep their meaning.
FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-shared", "-Wall", "-Wextra",
         "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fassociative-math")  # fmt: skip
LIMIT_S = 120


def compiler() -> list[str]:
    """The command of the C compiler, that of $CC first; empty where there is none."""
    named = shlex.split(os.environ.get("CC", ""))
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    return named or ([found] if found else [])


def build(library: Path = LIBRARY) -> str:
    """Compile into `library`; return in words why that failed, or nothing."""
    command = compiler()
    if not command:
        return "no C compiler was found"
    part = library.with_suffix(f".{os.getpid()}.part")
    try:
        subprocess.run(
            [*command, *FLAGS, *map(str, SOURCES), "-o", str(part)], check=True, capture_output=True, timeout=LIMIT_S
        )
        part.replace(library)  # never into a file that a process has loaded
    except subprocess.CalledProcessError as error:
        return f"{command[0]}: {error.stderr.decode(errors='replace').strip()[-2000:]}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]}: {error}"
    finally:
        part.unlink(missing_ok=True)
    return ""


if __name__ == "__main__":
    sys.exit(build() or 0)  # exit("") would be a failure
