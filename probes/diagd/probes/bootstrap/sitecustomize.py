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
    # `diagd` is looked for in our folder alone: a package of that name of the job's must neither run here nor stand in
    # our way. The folder stays in front while importing, so that no installed diagd of another version is taken.
    path = list(sys.path)
    try:
        sys.path[:] = [_ROOT]
        __import__("diagd")
        sys.path[:] = [_ROOT] + path
        from diagd.probes import namespace, start

        namespace.leave()
    finally:
        sys.path[:] = path
        if _ROOT not in sys.path:
            sys.path.append(_ROOT)  # for `from diagd.probes import phase`
    start.start(dict(os.environ))


def _is_taken():
    """Whether the job has a diagd.probes of its own; the folder that Python puts first is not on the path yet."""
    script = sys.argv[0] if getattr(sys, "argv", None) else ""
    first = "." if script in ("", "-c", "-m") else os.path.dirname(os.path.realpath(script))
    for folder in [first] + sys.path:
        package = os.path.join(folder, "diagd")
        if os.path.isfile(os.path.join(package, "__init__.py")):  # which none of ours has
            if any(os.path.isfile(os.path.join(package, name)) for name in ("probes.py", "probes/__init__.py")):
                return True
    return False


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
        elif _is_taken():
            _say_off("the job has a package diagd.probes of its own")
        else:
            _start()
    except Exception as error:
        sys.modules.pop("diagd", None)
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
