"""Start diagd's probes in a process whose PYTHONPATH begins with this folder; any Python may find this file there.

It must never be the reason that a program does not run: old syntax, two imports, and one catch-all. Afterwards the
sitecustomize that this one hides, if there is one, runs as it would have run without it.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(_FOLDER)))  # holds diagd/probes/bootstrap


def _start():
    # In front only while importing: a package "diagd" of the user's own still wins (ours has no __init__.py), an
    # installed diagd of another version does not. At the end for good, for `from diagd.probes import phase`.
    sys.path.insert(0, _ROOT)
    try:
        from diagd.probes import start
    finally:
        sys.path.remove(_ROOT)
        if _ROOT not in sys.path:
            sys.path.append(_ROOT)
    start.start(dict(os.environ))


def _say_off(reason):
    # Only where a rank is likely: not for each small tool that a job starts.
    if "RANK" in os.environ:
        with open(os.path.join(os.environ["DIAGD_DIR"], "%d.off" % os.getpid()), "w") as note:
            note.write(" ".join(reason.split()) + "\n")


def _guarded_start():
    if not os.environ.get("DIAGD_DIR"):
        return
    try:
        if os.environ.get("DIAGD_DISABLE") == "1":
            if _ROOT not in sys.path:
                sys.path.append(_ROOT)
        elif sys.version_info < (3, 11):
            _say_off("the probes need Python 3.11 or newer, this is %d.%d" % sys.version_info[:2])
        else:
            _start()
    except Exception as error:
        try:
            _say_off("the probes did not start: %s: %s" % (type(error).__name__, error))
        except Exception:
            pass


def _run_hidden():
    """Run the sitecustomize behind this one; what it raises goes to the interpreter, as it would without diagd."""
    ours = sys.modules.pop("sitecustomize", None)
    path = list(sys.path)
    sys.path[:] = [entry for entry in path if os.path.abspath(entry or ".") != _FOLDER]
    kept = list(sys.path)
    try:
        __import__("sitecustomize")
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize" or "sitecustomize" not in str(error):
            raise
        if ours is not None:
            sys.modules["sitecustomize"] = ours
    finally:
        if sys.path == kept:
            sys.path[:] = path
        else:  # it changed the path itself
            sys.path.insert(0, _FOLDER)


_guarded_start()
_run_hidden()
