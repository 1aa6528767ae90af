"""Calls something right after a module was imported, whoever imports it and whenever; costs nothing until then.

Imports nothing but sys: it runs at the start of every Python process of a job.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_waiting: dict[str, list[Callable[[Any], None]]] = {}


class _Finder:
    """Finds nothing itself: lets the other finders work and hangs the actions onto what they find."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        if name not in _waiting:
            return None
        actions = _waiting.pop(name)
        for finder in sys.meta_path:
            if finder is _Finder:
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                _run_after(spec.loader, actions)
                return spec
        _waiting[name] = actions
        return None


def _run_after(loader: Any, actions: list[Callable[[Any], None]]) -> None:
    execute = loader.exec_module

    def exec_module(module: Any) -> None:
        del loader.exec_module  # so that a reload is none of our business
        execute(module)
        for action in actions:
            action(module)

    loader.exec_module = exec_module


def after_import(name: str, action: Callable[[Any], None]) -> None:
    """Call `action(module)` right after `name` was executed, or now if it already is; it must not raise."""
    module = sys.modules.get(name)
    if module is not None:
        action(module)
        return
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
    _waiting.setdefault(name, []).append(action)
