"""The first lines of the `diagd` command: they keep what was put on PYTHONPATH for the job out of diagd itself.

This stands outside the package, since a job's own package of the same name would be found in its place; and it imports
nothing that a folder on PYTHONPATH could replace.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_MEANT_FOR_THE_JOB = ("PYTHONPATH", "PYTHONHOME")
# What diagd imports. A machine may have some of it on PYTHONPATH alone, as environment modules do it.
NEEDED = (
    "diagd.daemon",
    "click",
    "google.protobuf",
    "grpc",
    "grpc_health",
    "grpc_reflection",
    "jinja2",
    "msgspec",
    "numpy",
    "pynvml",
)


def main() -> int:
    """Run the command line; the job keeps its environment to the letter."""
    if not sys.flags.ignore_environment and any(map(os.environ.get, _MEANT_FOR_THE_JOB)):
        _start_again()
    try:
        from diagd.daemon.cli import main as run

        return run()
    except KeyboardInterrupt:  # while diagd is being loaded
        return 130


def _start_again() -> None:
    """Become an interpreter that does not heed these variables; where that fails, go on as it is."""
    flags = ["-E", "-P", *(["-s"] if sys.flags.no_user_site else [])]
    if sys.executable:
        try:
            os.execv(sys.executable, [sys.executable, *flags, os.path.abspath(__file__), *sys.argv[1:]])  # noqa: S606
        except OSError:
            return


def add_missing(environ: "Mapping[str, str]") -> None:
    """Where diagd or what it needs is on PYTHONPATH alone, look there too: last, and never for another `diagd`."""
    own = os.path.dirname(os.path.abspath(__file__))
    if all(map(_found, NEEDED)):
        return
    folders = [own, *map(os.path.abspath, environ.get("PYTHONPATH", "").split(os.pathsep))]
    sys.path += [folder for folder in folders if folder not in sys.path and not _holds_another(folder)]


def _found(name: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(name) is not None
    except ImportError:
        return False


def _holds_another(folder: str) -> bool:
    return any(os.path.exists(os.path.join(folder, name)) for name in ("diagd.py", "diagd/__init__.py"))


if __name__ == "__main__":
    add_missing(os.environ)
    sys.exit(main())
