"""Checkpoints by other ways than torch.save and torch.load: torch.distributed.checkpoint, safetensors, transformers.

Tells what `resuming` tells of the files that it sees, by its words. Of a distributed checkpoint it is the metadata,
which the load has read anyway, that says whose optimizer state there is: what a script does not ask for is not read.
What is to be filled must be there, so torch lets a fresh optimizer step without gradients before: no step of training.
"""

import os
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from diagd.probes import resuming
from diagd.probes.fast import FAST, Fast
from diagd.probes.guard import Patches, Probe, around, wrapper
from diagd.probes.state import STATE
from diagd.probes.turns import TURNS

DEPTH = 4  # of dictionaries in each other that are looked into: {"app": {"optim": {"state": {name: {…}}}}}
_patches = Patches()


class _Load:
    """A load of a distributed checkpoint that is going on."""

    def __init__(self) -> None:
        self.path = ""  # empty: there is none
        self.file: Any = None  # the newest metadata that it has read, as `resuming` keeps it


LOAD = _Load()


def install(probe: Probe, module: Any) -> None:
    """A module that loads is there."""
    name = module.__name__
    if name.startswith("safetensors"):
        _patches.replace(module, "load_file", wrapper(probe, _file, _filled, _ignore))
    elif name.startswith("transformers"):
        _install_pretrained(probe, module.PreTrainedModel)
    elif name.endswith("filesystem"):
        _patches.replace(module.FileSystemReader, "read_metadata", wrapper(probe, _metadata, _has_metadata, _ignore))
    elif name.endswith(".state_dict"):
        _patches.replace(module, "_init_optim_state", wrapper(probe, _making, _made, _made))
    elif name.endswith("saver"):
        for function in ("save", "async_save", "save_state_dict"):
            _patches.replace(module, function, wrapper(probe, _saving, _saved, _ignore))
    else:
        for function in ("load", "load_state_dict"):
            _patches.replace(module, function, wrapper(probe, _loading, _loaded, _over))


def remove() -> None:
    """Put the original functions back."""
    _patches.undo()
    _made()


def _install_pretrained(probe: Probe, kind: Any) -> None:
    function = getattr(vars(kind).get("from_pretrained"), "__func__", None)
    if function is not None:  # for the class that it is called on
        made: Any = classmethod(around(probe, function, _pretrained, _has_pretrained, _ignore))
        _patches.replace(kind, "from_pretrained", lambda _: made)


def _ignore(*_: Any) -> None:
    """It failed, and the script will see that."""


# --- safetensors, from_pretrained


def _file(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    path = args[0] if args else kwargs.get("filename")
    return os.path.basename(os.fspath(path)) if isinstance(path, str | os.PathLike) else "a file"


def _filled(name: str, tensors: Any) -> None:
    if tensors:
        resuming.tell_loaded(name)


def _pretrained(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0] if args else None


def _has_pretrained(kind: Any, result: Any) -> None:
    resuming.tell_loaded(getattr(kind, "__name__", "a model"))


# --- torch.distributed.checkpoint


def _making(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    TURNS.muted = True
    FAST[Fast.PLAIN] = 0  # the compiled way does not ask
    return args


def _made(*_: Any) -> None:
    TURNS.muted = False


def _saving(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    asked = threading.get_ident() == STATE.trainer  # not in the thread to which async_save has given it
    return _path(args, kwargs, "storage_writer") if asked else None


def _saved(path: str, result: Any) -> None:
    resuming.wrote(path)


def _path(args: tuple[Any, ...], kwargs: dict[str, Any], storage: str) -> str | None:
    """Of the folder that a save or a load is about."""
    given = kwargs.get(storage) or (args[1] if len(args) > 1 else None)
    path = kwargs.get("checkpoint_id") or getattr(given, "path", None)
    return os.path.abspath(os.fspath(path)) if isinstance(path, str | os.PathLike) else None


def _loading(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    state = args[0] if args else kwargs.get("state_dict")
    if not isinstance(state, dict) or LOAD.path:
        return None
    LOAD.path = _path(args, kwargs, "storage_reader") or "a checkpoint"
    LOAD.file = None
    return *asked(state), len(state)


def _metadata(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return LOAD.path or None


def _has_metadata(path: str, result: Any) -> None:
    """What is there is known before the script's own objects take their part of it, which happens inside the load."""
    if count := moments(result.state_dict_metadata):
        LOAD.file = resuming.found(path, os.path.join(path, ".metadata"), count)


def _loaded(token: Any, result: Any) -> None:
    """Loading is in place: what was asked for is where the script wants it, or on its way there."""
    weights, kept, parts = token
    if LOAD.file is not None:
        LOAD.file.optimizer_taken |= kept
        if weights:
            resuming.take_weights(LOAD.file)
    if weights:
        resuming.tell_loaded(f"{os.path.basename(LOAD.path)}, {parts} entries")
        resuming.reread(LOAD.path, os.path.join(LOAD.path, ".metadata"))
    _over()


def _over(*_: Any) -> None:
    LOAD.path, LOAD.file = "", None


def asked(content: dict[Any, Any]) -> tuple[bool, bool]:
    """Whether a state_dict that is to be filled asks for weights, and whether for what an optimizer keeps.

    An object with a state_dict of its own may ask for either: it counts as weights, and what it hands to an optimizer
    is seen there.
    """
    names, objects = set(), False
    for name, value in _leaves(content, "", DEPTH):
        if hasattr(type(value), "untyped_storage"):
            names.add(name)
        else:
            objects |= callable(getattr(value, "load_state_dict", None))
    kept = {name for name in names if _of_optimizer(name)}
    return objects or bool(names - kept), bool(kept)


def _leaves(content: dict[Any, Any], path: str, depth: int) -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        place = f"{path}{name}"
        if isinstance(value, dict) and depth:
            yield from _leaves(value, f"{place}.", depth - 1)
        else:
            yield place, value


def moments(names: Iterable[str]) -> int:
    """The parameters for which an optimizer's state is there, by the names in a distributed checkpoint's metadata.

    Dictionaries in each other are written with dots between their keys: `optim.state.0.weight.exp_avg`.
    """
    return len({owner for name in names if (owner := _of_optimizer(name))})


def _of_optimizer(name: str) -> str:
    """Of `…state.PARAMETER.WHAT` the part before WHAT; else empty."""
    owner, _, what = name.rpartition(".")
    _, _, parameter = owner.partition("state.") if owner.startswith("state.") else owner.partition(".state.")
    return owner if parameter and what in _KEPT else ""


# What optimizers keep for a parameter; `step` alone is no more than a count.
_KEPT = frozenset({"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "momentum_buffer", "sum", "square_avg",
                   "acc_delta", "prev", "grad_avg", "mu_product", "row_var", "col_var", "variance"})  # fmt: skip
