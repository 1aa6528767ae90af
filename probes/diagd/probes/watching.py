"""What a script registers by itself, for what no hook can see: an optimizer of its own making, a model under a name."""

import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from diagd.probes.guard import EAGER
from diagd.probes.state import STATE


class Model(Protocol):
    """A torch.nn.Module."""

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        """Its parameters."""


class Optimizer(Protocol):
    """Whatever has a step."""

    @property
    def step(self) -> Callable[..., Any]:
        """Change the parameters once."""


class Stand:
    """Stands for an optimizer that is none of torch's, before the hooks on torch's."""

    def __init__(self, optimizer: Any, model: Any) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._model = weakref.ref(model) if model is not None else None
        self.state: dict[Any, Any] = {}
        self.defaults: dict[str, Any] = {}
        self.refresh()

    @property
    def lives(self) -> bool:
        """Whether the optimizer is still there."""
        return self._optimizer() is not None

    def refresh(self) -> None:
        """Take over the groups and the state that it has by now."""
        optimizer = self._optimizer()
        groups = getattr(optimizer, "param_groups", None)
        if isinstance(groups, list):
            self.param_groups = groups
        else:
            model = self._model() if self._model is not None else None
            params = [p for p in model.parameters() if p.requires_grad] if model is not None else []
            self.param_groups = [{"params": params}]
        state = getattr(optimizer, "state", None)
        self.state = state if isinstance(state, dict) else {}


_names: dict[int, tuple[weakref.ref[Any], str]] = {}
_stands: list[Stand] = []


def watch(*, model: Model | None = None, optimizer: Optimizer | None = None, name: str | None = None) -> None:
    """Tell diagd of a model or optimizer; does nothing where diagd is not. All ranks have to tell the same.

    Args:
        model: Is compared between the ranks even where it cannot be told from another of its class.
        optimizer: One that does not derive from torch's: each call of its `step` is a step. What it trains is read
            from its `param_groups` (as torch's have them), else it is the model's trainable parameters.
        name: What the model is called in reports, in the place of its class.
    """
    if not STATE.settings.folder or STATE.forked:
        return
    if model is not None:
        _names[id(model)] = weakref.ref(model), name or type(model).__name__
    if optimizer is not None and not _is_hooked(optimizer):
        _follow(optimizer, model)


def name_of(module: Any) -> str | None:
    """What the script calls this model."""
    known = _names.get(id(module))
    return known[1] if known is not None and known[0]() is module else None


def models() -> Iterator[Any]:
    """The models that were registered and are still there."""
    for ref, _ in list(_names.values()):
        module = ref()
        if module is not None:
            yield module


def optimizers() -> list[Stand]:
    """Those that stand for optimizers that are still there."""
    _stands[:] = [stand for stand in _stands if stand.lives]
    return _stands


def _is_hooked(optimizer: object) -> bool:
    """Whether torch's hooks see its steps anyway, or it is followed already."""
    step = getattr(optimizer, "step", None)
    return step is None or bool(getattr(step, "hooked", False))


def _follow(optimizer: Any, model: Any) -> None:
    """Let each of its steps run the hooks that diagd has on torch's optimizers."""
    # Of a class of the same name: that is what reports say of it.
    stand: Stand = type(type(optimizer).__name__, (Stand,), {})(optimizer, model)
    original: Callable[..., Any] = optimizer.step

    @functools.wraps(original)
    def step(*args: Any, **kwargs: Any) -> Any:
        stand.refresh()
        _run(stand, "_global_optimizer_pre_hooks")
        result = original(*args, **kwargs)
        _run(stand, "_global_optimizer_post_hooks")
        return result

    step.hooked = True  # type: ignore[attr-defined]
    try:
        optimizer.step = step
    except (AttributeError, TypeError):  # it takes no attributes
        STATE.note(f"the steps of {type(optimizer).__name__} cannot be seen: its step method cannot be replaced")
        return
    _stands.append(stand)
    steps = sys.modules.get("diagd.probes.steps")
    if steps is not None:
        steps.note_optimizer()  # else the first backward pass counts as a step


def _run(stand: Stand, hooks: str) -> None:
    table = getattr(sys.modules.get("torch.optim.optimizer"), hooks, None) or {}
    for hook in list(table.values()):
        if getattr(getattr(hook, "__code__", None), "co_filename", "") == EAGER:  # ours, which never raise
            hook(stand, (), {})
