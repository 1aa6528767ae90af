"""Leaves the name `diagd` to the job: what it calls so itself it gets, whenever and from wherever it imports it.

Our own modules need that name only until all our packages stand in sys.modules.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_NAME = "diagd"
# The import of a module in a package that is not loaded yet imports all packages above it by name, `diagd` too.
_PACKAGES = ("diagd.probes", "diagd.probes.box", "diagd.probes.native")


class _Finder:
    """Finds a package or module of the job's; where there is none, our namespace again."""

    def __init__(self, ours: ModuleType) -> None:
        self._ours = ours
        self._spec = ours.__spec__

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != _NAME:
            return None
        for finder in sys.meta_path:
            if finder is not self:
                spec = finder.find_spec(name, path, target)
                if spec is not None and spec.loader is not None:
                    return spec
        return type(self._spec)(_NAME, self, is_package=True)  # type: ignore[misc, arg-type]

    def create_module(self, spec: Any) -> ModuleType:
        return self._ours

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec


def leave() -> None:
    """Give the name up; `diagd.probes` and all below it stay as they are."""
    for package in _PACKAGES:
        __import__(package)
    ours = sys.modules.pop(_NAME)
    sys.meta_path.insert(0, _Finder(ours))
