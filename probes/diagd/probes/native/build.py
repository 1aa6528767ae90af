"""Compiles what a rank does at every operation: `python -m diagd.probes.native.build`; installing does it by itself.

Imports the standard library alone, as it also runs before diagd is installed; and what only the compiling needs in the
functions, as a rank imports this too.
"""

import os
import sys
import zlib
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
LIBRARY = FOLDER / "_native.abi3.so"
FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra")
LIMIT_S = 120


def compiler() -> list[str]:
    """The command of the C compiler, that of $CC first; empty where there is none."""
    import shlex
    import shutil

    named = shlex.split(os.environ.get("CC", ""))
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    return named or ([found] if found else [])


def sources_number(folder: Path = FOLDER) -> int:
    """By which a library knows the sources that it was made of; 0 where there are none."""
    number = 0
    for path in sorted((*folder.glob("*.c"), *folder.glob("*.h"))):
        number = zlib.crc32(path.read_bytes(), number)
    return number


def build(library: Path = LIBRARY) -> str:
    """Compile into `library`; return in words why that failed, or nothing."""
    import subprocess
    import sysconfig

    command = compiler()
    if not command:
        return "no C compiler was found"
    part = library.with_suffix(f".{os.getpid()}.part")
    sources = [str(path) for path in sorted(FOLDER.glob("*.c"))]
    given = [f"-I{sysconfig.get_paths()['include']}", f"-DDIAGD_SOURCES={sources_number()}L"]
    try:
        subprocess.run(
            [*command, *FLAGS, *given, *sources, "-o", str(part)], check=True, capture_output=True, timeout=LIMIT_S
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
