"""Models that take part in training and are not trained by it: references, teachers, targets.

Ranks that all call one need the same one, while an average of the weights that one rank keeps may be its own.

    forward/frozen  fact: the titles of such models that were called, from no other module, before a backward pass
"""

import sys
from collections.abc import Iterable
from typing import Any

from diagd.probes import inventory
from diagd.probes.signals import SIGNALS

_known: dict[int, str] = {}  # titles by id of the models that were looked at; empty of those that train


def tell(models: Iterable[Any]) -> None:
    """These were called in the step under way."""
    fresh = [model for model in models if id(model) not in _known]
    for model in fresh:
        _known[id(model)] = inventory.title(model) if _is_frozen(model) else ""
    if any(_known[id(model)] for model in fresh):
        SIGNALS.fact("forward/frozen", ",".join(sorted({title for title in _known.values() if title})))


def forget() -> None:
    """A child of the process begins anew."""
    _known.clear()


def _is_frozen(model: Any) -> bool:
    parameters = list(sys.modules["torch"].nn.Module.parameters(model))
    return bool(parameters) and not any(parameter.requires_grad for parameter in parameters)
