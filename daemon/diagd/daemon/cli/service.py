"""Runs a service in the foreground, as systemd and containers want it."""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

from diagd.daemon.errors import DiagdError


def serve(module: str, arguments: Sequence[str]) -> int:
    """Run the module's `main` until it ends.

    Raises:
        DiagdError: It is not part of this diagd, or its address is in use.
    """
    if find_spec(module) is None:
        raise DiagdError(f"this version of diagd has no service {module.rsplit('.', 2)[-2]!r}", exit_code=85)
    try:
        return int(import_module(module).main(list(arguments)) or 0)
    except OSError as exc:
        raise DiagdError(
            f"the service cannot start: {exc.strerror or exc}", help="is its port in use? name another", exit_code=85
        ) from exc
