"""The faults of a drill, as text: one grammar for `diagd run --inject`, DIAGD_INJECT, and the probe that plants them.

    KIND:key=value,key=value…     such as hang:rank=3,step=10 or slow:rank=0,2-3,factor=2,step=20-60

`rank` takes numbers and ranges, `step` one step (a range for what lasts; `20-` ends with the job); without it the fault
comes with step 10, and what lasts does until the end. DIAGD_INJECT holds several faults with blanks between them. Ranks
count from 0, training steps from 1.
"""

from __future__ import annotations

import difflib
import math
import re
from typing import NamedTuple

MAX_RANK = 1_000_000
USUAL_STEP = 10  # by then a job is on its way
MAX_FACTOR = 1000.0
_RANGE = re.compile(r"([0-9]{1,9})(?:(-)([0-9]{1,9})?)?")
_FOREVER = 10**9


class FaultError(ValueError):
    """The text names no fault; the message says what is wrong and shows one that is right."""


class Kind(NamedTuple):
    """One kind of fault."""

    example: str
    optional: tuple[str, ...] = ()
    factor: bool = False  # it lasts over a range of steps, and takes a factor
    everyone: bool = False  # the other ranks have a part in it, after the same step


KINDS: dict[str, Kind] = {
    "hang": Kind("hang:rank=3,step=10"),  # sleeps for ever in its own code
    "gil": Kind("gil:rank=1,step=10"),  # waits for ever in C code that holds the GIL
    "data": Kind("data:rank=1,step=20"),  # waits for ever for the next batch of its DataLoader
    "mismatch": Kind("mismatch:rank=1,step=12"),  # enters an all_reduce of another size on the default group
    "leave": Kind("leave:rank=1,step=12"),  # destroys its process groups and goes its own way
    "cycle": Kind("cycle:rank=1,step=12", everyone=True),  # reduces over two groups in another order than the others
    "unsent": Kind("unsent:rank=1,step=12", everyone=True),  # does not send what the rank after it waits for
    "store": Kind("store:rank=1,step=12"),  # waits for a key of the store that nobody sets
    "slow": Kind("slow:rank=1,factor=2,step=20-60", factor=True),  # its steps take factor times as long
    "stop": Kind("stop:rank=0,step=15"),  # SIGSTOP
    "kill": Kind("kill:rank=2,step=15"),  # SIGKILL
    "raise": Kind("raise:rank=1,step=9"),  # raises an exception
    "exit": Kind("exit:rank=1,step=9,code=3", ("code",)),  # exits, with code 0 where none is given
}


class Fault(NamedTuple):
    """One fault.

    Attributes:
        ranks: First and last of each range of them, both counted in.
        steps: First and last step after which it acts; the same one twice but for what lasts.
        factor: How many times as long a step takes; 1 where that is not the fault.
        code: The exit code.
    """

    kind: str
    ranks: tuple[tuple[int, int], ...]
    steps: tuple[int, int]
    factor: float = 1.0
    code: int = 0

    def hits(self, rank: int) -> bool:
        """Whether it is meant for this rank."""
        return any(first <= rank <= last for first, last in self.ranks)

    def __str__(self) -> str:
        """The text that parses to this fault."""
        words = [f"rank={','.join(_said(*span) for span in self.ranks)}", f"step={_said(*self.steps)}"]
        if KINDS[self.kind].factor:
            words.append(f"factor={self.factor!r}".removesuffix(".0"))
        if self.code:
            words.append(f"code={self.code}")
        return f"{self.kind}:{','.join(words)}"


def _said(first: int, last: int) -> str:
    if last == _FOREVER:
        return f"{first}-"
    return f"{first}" if first == last else f"{first}-{last}"


def parse_all(text: str) -> tuple[Fault, ...]:
    """The faults of DIAGD_INJECT, separated by blanks.

    Raises:
        FaultError: One of them is none.
    """
    return tuple(parse(word) for word in text.split())


def parse(text: str) -> Fault:
    """One fault.

    Raises:
        FaultError: It is none.
    """
    name, _, rest = text.partition(":")
    kind = KINDS.get(name)
    if kind is None:
        near = difflib.get_close_matches(name, KINDS, n=1)
        known = f"did you mean {near[0]}?" if near else f"known are {', '.join(KINDS)}"
        example = KINDS[near[0] if near else "hang"].example
        raise FaultError(f"fault {text!r}: there is no fault {name!r}, {known}; expected e.g. {example}")
    try:
        return _made(name, kind, _values(rest))
    except FaultError as error:
        raise FaultError(f"fault {text!r}: {error}; expected e.g. {kind.example}") from None


def _values(text: str) -> dict[str, str]:
    """By key; a part without a key goes on with the list before it."""
    found: dict[str, str] = {}
    key = ""
    for part in text.split(",") if text else ():
        name, equals, value = part.partition("=")
        if equals and name in found:
            raise FaultError(f"{name} stands there twice")
        if equals:
            key, found[name] = name, value
        elif key:
            found[key] += f",{part}"
        else:
            raise FaultError(f"{part!r} is not of the form key=value")
    return found


def _made(name: str, kind: Kind, values: dict[str, str]) -> Fault:
    needed = ("rank", "step", "factor") if kind.factor else ("rank", "step")
    for key in values:
        if key not in (*needed, *kind.optional):
            raise FaultError(f"{key!r} is not known, {name} takes {', '.join((*needed, *kind.optional))}")
    if missing := [key for key in needed if key not in values and key != "step"]:
        raise FaultError(f"{' and '.join(missing)} missing")
    return Fault(
        name,
        tuple(_span("rank", part, 0, MAX_RANK) for part in values["rank"].split(",")),
        _steps(values.get("step", f"{USUAL_STEP}-" if kind.factor else str(USUAL_STEP)), lasts=kind.factor),
        _factor(values["factor"]) if kind.factor else 1.0,
        _code(values.get("code", "0")),
    )


def _span(key: str, text: str, least: int, open_end: int = 0) -> tuple[int, int]:
    """First and last of `3` or `2-5`; of `2-` only where the end may be open."""
    match = _RANGE.fullmatch(text)
    if match is None or (match[2] and not match[3] and open_end != _FOREVER):
        raise FaultError(f"{key}={text} is neither a number nor a range such as 2-5")
    first = int(match[1])
    last = first if not match[2] else int(match[3]) if match[3] else open_end
    if not least <= first <= last or (key == "rank" and last > MAX_RANK):
        raise FaultError(f"{key}={text}: {key}s count from {least}, and a range goes upwards")
    return first, last


def _steps(text: str, *, lasts: bool) -> tuple[int, int]:
    steps = _span("step", text, 1, _FOREVER if lasts else 0)
    if steps[0] != steps[1] and not lasts:
        raise FaultError(f"step={text} is a range, and this fault acts once")
    return steps


def _factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    if not 1.0 < factor <= MAX_FACTOR:
        raise FaultError(f"factor={text} is no number above 1 and up to {MAX_FACTOR:g}")
    return factor


def _code(text: str) -> int:
    if not re.fullmatch("[0-9]{1,3}", text) or int(text) > 255:
        raise FaultError(f"code={text} is no exit code from 0 to 255")
    return int(text)
