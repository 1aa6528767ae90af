"""The digest of tensors: one definition, a plain-torch twin, a compiled path for CPUs and a kernel for NVIDIA GPUs.

Importing this package imports nothing else; `diagd.cuda_ext.digest` needs torch.
"""

from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    """Import a module of this package by its whole name.

    `from diagd.cuda_ext import name` by itself would also import `diagd` by name, which in a rank may be the job's own.
    """
    module = f"{__name__}.{name}"
    if not name.startswith("_"):
        try:
            found: ModuleType = __import__(module, None, None, ["__name__"])
            return found
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
