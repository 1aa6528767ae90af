"""Tensors of a checkpoint that are in the model under longer or shorter names, as with `module.` before them."""

import sys
from collections.abc import Iterator
from typing import Any

NAMES = 5  # that are shown


def misnamed(module: Any, given: Any, missing: list[str], unexpected: list[str]) -> str:
    """In words, which tensors of a model were not loaded though they are there under longer or shorter names.

    It must be more of them than were loaded: a new head beside an old one is no such case.
    """
    base = sys.modules["torch.nn"].Module  # not what a class of the script's makes of these methods
    own = {**dict(base.named_parameters(module)), **dict(base.named_buffers(module))}
    there = set(unexpected)
    shorter = {end: (name, start) for name in unexpected for start, end in _ends(name)}
    found: dict[tuple[str, str], list[str]] = {}
    for name in missing:
        longer = next(((end, start) for start, end in _ends(name) if end in there), None)
        other, prefix = shorter.get(name) or longer or ("", "")
        if name in own and tuple(own[name].shape) == tuple(getattr(given.get(other), "shape", ())):
            found.setdefault((prefix, "file" if name in shorter else "model"), []).append(name)
    (prefix, where), names = max(found.items(), key=lambda item: len(item[1]), default=(("", ""), []))
    if len(names) < 2 or len(names) <= len(own) - len(missing):
        return ""
    return f"{len(names)} of {len(own)}|{prefix}|{where}|{','.join(names[:NAMES])}"


def _ends(name: str) -> Iterator[tuple[str, str]]:
    """Each way to part a dotted name into a prefix and the rest."""
    at = name.find(".")
    while at >= 0:
        yield name[: at + 1], name[at + 1 :]
        at = name.find(".", at + 1)
