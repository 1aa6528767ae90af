"""The digests of diagd.cuda_ext, in a rank: loaded by its place, as the trainer's Python may know no diagd.

What a digest is says diagd/cuda_ext/definition.py; it is the same for the same bytes by every path. There is no other
here for want of it: digests of two kinds would make ranks that agree look as if they did not.
"""

import sys
from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

_PACKAGE = "diagd.cuda_ext"
_HERE = Path(__file__).resolve().parent
# As installed, beside this package; in a checkout, in a source root of its own.
_PLACES = (_HERE.parent / "cuda_ext", _HERE.parents[2] / "cuda_ext" / "diagd" / "cuda_ext")
_SIGN = 1 << 63


def load() -> Any:
    """The module that digests tensors.

    Raises:
        ImportError: It is not there, or does not work with this torch.
    """
    if _PACKAGE not in sys.modules:
        _load_package()
    return __import__(f"{_PACKAGE}.digest", None, None, ["begin"])


def load_adding() -> Any:
    """The module of the digests that add up.

    Raises:
        ImportError: As for load().
    """
    load()
    return __import__(f"{_PACKAGE}.adding", None, None, ["begin"])


def _load_package() -> None:
    """Make the package known by its place: an import by name would look for `diagd`, which can be the job's own."""
    folder = next((place for place in _PLACES if (place / "__init__.py").is_file()), None)
    if folder is None:
        raise ModuleNotFoundError(f"{_PACKAGE} is not installed beside the probes")
    spec = spec_from_file_location(_PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)])
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"{folder} holds no package")
    package = module_from_spec(spec)
    package.__getattr__ = _part  # type: ignore[method-assign]
    sys.modules[_PACKAGE] = package
    spec.loader.exec_module(package)


def _part(name: str) -> Any:
    """A module of the package, where `from diagd.cuda_ext import name` would import `diagd` by name as well."""
    module = f"{_PACKAGE}.{name}"
    if not name.startswith("_"):
        try:
            return __import__(module, None, None, ["__name__"])
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
    raise AttributeError(f"module {_PACKAGE!r} has no attribute {name!r}")


class Pending:
    """Digests of some tensors that are under way; on a device they are there only later."""

    __slots__ = ("_pending",)

    def __init__(self, tensors: Sequence[Any], edges: Sequence[int] = ()) -> None:
        """Of each of these; with edges, of the rows of the one tensor between each of them and the next."""
        module = load()
        self._pending = (
            module.begin_rows(tensors[0], edges, statistics=False) if edges else module.begin(tensors, statistics=False)
        )

    def ready(self) -> bool:
        """Whether `bits` does not have to wait; never waits itself."""
        return bool(self._pending.ready())

    def bits(self) -> list[int]:
        """The digests in the tensors' order, as signed 64-bit numbers."""
        found = (one.bits for one in self._pending.result())
        return [bits - 2 * _SIGN if bits & _SIGN else bits for bits in found]
