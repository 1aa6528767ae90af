"""Wrappers that torch.compile can look through."""

import functools
from collections.abc import Callable
from typing import Any

from diagd.probes.guard import Probe, around


def around_eager(
    torch: Any,
    probe: Probe,
    original: Callable[..., Any],
    before: Callable[[tuple[Any, ...], dict[str, Any]], Any],
    after: Callable[[Any, Any], None],
    failed: Callable[[Any, BaseException], None],
) -> Any:
    """As guard.around, but the original alone while torch.compile traces: it folds the test to a constant."""
    eager = around(probe, original, before, after, failed)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(*args, **kwargs)
        return eager(*args, **kwargs)

    return call
