"""Keeps torch.compile's hands off the probes: it looks through what it may meet in code that it compiles, and skips the
rest, rather than compiling our frames too (which would cost time and print warnings).
"""

import os
import sys
from collections.abc import Callable
from typing import Any

from diagd.probes.guard import EAGER, HIDDEN, Probe, around

_OURS = (HIDDEN, os.path.join(os.path.dirname(os.path.abspath(__file__)), ""))
_rules: Any = None


def install(probe: Probe, module: Any) -> None:
    """torch._dynamo.trace_rules is there: to skip, all that is ours; to look through, when called, the eager part."""
    global _rules
    _rules = module
    module.get_mod_skiplist().update(_OURS)
    when_called = getattr(module, "BUILTIN_INLINE_WHEN_CALLED", None)
    if isinstance(when_called, set):  # else it compiles the eager part too, which costs a little and breaks nothing
        when_called.add(EAGER)
        module.get_mod_skiplist().add(EAGER)


def remove() -> None:
    """Forget the rules."""
    if _rules is not None:
        _rules.get_mod_skiplist().difference_update((*_OURS, EAGER))


def in_use() -> bool:
    """Whether torch.compile is, or cannot be seen not to be: its guards would see module hooks come and go."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    backends = getattr(frames, "cached_backends", None)
    return frames is not None and (backends is None or any(callable(backend) for backend in list(backends.values())))


def around_eager(
    torch: Any,
    probe: Probe,
    original: Callable[..., Any],
    before: Callable[[tuple[Any, ...], dict[str, Any]], Any],
    after: Callable[[Any, Any], None],
    failed: Callable[[Any, BaseException], None],
) -> Any:
    """As guard.around, but the original alone while torch.compile traces."""
    return around(probe, original, before, after, failed, torch)


def hook_eager(torch: Any, probe: Probe, function: Callable[[Any], None]) -> Callable[..., None]:
    """A hook of an optimizer's step that does nothing while torch.compile traces, and never fails."""

    def hook(subject: Any, *_: Any) -> None:
        if not torch.compiler.is_compiling() and probe.on:
            try:
                function(subject)
            except Exception as error:  # noqa: BLE001 - Probe.run, without the call of it
                probe.failed(error)

    hook.__code__ = hook.__code__.replace(co_filename=EAGER)
    return hook


def registration_eager(torch: Any, probe: Probe, function: Callable[[Any, str, Any], None]) -> Callable[..., None]:
    """The same of a hook for what modules are given; what compiled code gives them is not seen."""

    def hook(module: Any, name: str, value: Any) -> None:
        if not torch.compiler.is_compiling() and probe.on:
            probe.run(function, module, name, value)

    hook.__code__ = hook.__code__.replace(co_filename=EAGER)
    return hook
