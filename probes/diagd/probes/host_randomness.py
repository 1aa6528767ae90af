"""Where the generators of numpy.random and of Python's random stand, and how much of them a step draws.

Only the two that modules share are seen (np.random.seed, random.seed), no generator that a script makes for itself.
What is drawn while a DataLoader fetches is no part of this: reading.py tells what its dataset draws, and what a sampler
draws all ranks have to draw alike.

    data/rng_numpy           fingerprint (52 bits) of where it stands after a step; likewise data/rng_random
    data/drawn_numpy         32-bit words drawn of it in the step before the forward pass; RESEEDED where it was set
                             anew
    data/drawn_inside_numpy  the same from the forward pass on
    data/elements            elements of the largest floating-point tensor that goes into the model

A uniform number takes 2 words, a normal one 2.55 on average (numpy's legacy polar method), an integer 1 or a few.
"""

import ctypes
import struct
import sys
from typing import Any, NamedTuple

from diagd.probes import fingerprint
from diagd.probes.signals import SIGNALS

WORDS = 624  # that the Mersenne twister makes at once
MAX_BLOCKS = 680  # are counted through; beyond that it counts as set anew
MAX_LOST = 4  # times: to count through in vain takes milliseconds
RESEEDED = -1
GENERATORS = ("numpy", "random")
_COMPARED = 4  # words of a block: 128 bits
_FORM = struct.Struct(f"<{WORDS}I")
_RAW = struct.Struct(f"={4 * WORDS}si")
_INSTANCE = struct.Struct(f"=i{4 * WORDS}s")


class Stand(NamedTuple):
    """A place in the sequence of a Mersenne twister."""

    key: bytes
    place: int  # words taken of the key's block, at most WORDS

    def fingerprint(self) -> int:
        """Equal for equal numbers to come."""
        return fingerprint.of_bytes(self.key + self.place.to_bytes(4, "little"))


Stands = tuple[Stand | None, Stand | None]  # by GENERATORS; None where it is not in use, or of another kind


class _Watch:
    """The step that is being looked at; None: none is, or it has not come so far."""

    def __init__(self) -> None:
        self.begun: Stands | None = None
        self.forward: Stands | None = None
        self.twister: Any = None  # numpy's shared one
        self.address = 0  # of its state
        self.instance: Any = None  # Python's shared one
        self.readable = False  # its state lies where it should
        self.used: set[str] = set()  # generators that a step has drawn of: only these are told
        self.lost = dict.fromkeys(GENERATORS, 0)  # times that one was set anew


WATCH = _Watch()


def stands() -> Stands:
    """Where both stand now; nothing is drawn."""
    return _numpy(), _python()


def _numpy() -> Stand | None:
    """Read where it lies: get_state takes 0.2 ms, and a lock."""
    module = sys.modules.get("numpy.random.mtrand")
    twister: Any = getattr(getattr(module, "_rand", None), "_bit_generator", None)
    if type(twister).__name__ != "MT19937":
        return None
    if WATCH.twister is not twister:
        WATCH.twister, WATCH.address = twister, int(twister.ctypes.state_address)
    # numpy's own layout of it: the key, then the place as an int.
    key, place = _RAW.unpack(ctypes.string_at(WATCH.address, _RAW.size))
    return Stand(key, place) if 0 <= place <= WORDS else None


def _python() -> Stand | None:
    """Likewise, once it was seen to lie there: getstate makes 625 objects."""
    instance: Any = getattr(sys.modules.get("random"), "_inst", None)
    base = getattr(sys.modules.get("_random"), "Random", None)
    if base is None or base not in type(instance).__mro__:
        return None
    # CPython's own layout of it, behind an object's head: the place as an int, then the key.
    place, key = _INSTANCE.unpack(ctypes.string_at(id(instance) + object.__basicsize__, _INSTANCE.size))
    if WATCH.instance is not instance:
        WATCH.instance, WATCH.readable = instance, (*_FORM.unpack(key), place) == instance.getstate()[1]
    return Stand(key, place) if WATCH.readable and 0 <= place <= WORDS else None


def drawn(name: str, before: Stand, after: Stand) -> int:
    """How many words lie between the two; RESEEDED where the one does not lead to the other."""
    if before.key == after.key:
        return after.place - before.place if after.place >= before.place else RESEEDED
    blocks = _blocks(before, after) if WATCH.lost[name] < MAX_LOST else 0
    if not blocks:
        WATCH.lost[name] += 1
        return RESEEDED
    return WORDS * blocks + after.place - before.place


def _blocks(before: Stand, after: Stand) -> int:
    """How many blocks were made between the two; 0 for more than can be counted."""
    if "numpy.random" not in sys.modules:
        return 0
    wanted = _twister(after.key, 0).random_raw(_COMPARED)
    twister, made, more = _twister(before.key, WORDS), 0, 8
    while made < MAX_BLOCKS:
        blocks = twister.random_raw(WORDS * more).reshape(more, WORDS)[:, :_COMPARED]
        found = (blocks == wanted).all(axis=1).nonzero()[0]
        if len(found):
            return made + int(found[0]) + 1
        made, more = made + more, more * 4
    return 0


def _twister(key: bytes, place: int) -> Any:
    """A generator of our own at that place."""
    numpy = sys.modules["numpy"]
    made = numpy.random.MT19937(0)
    state = {"key": numpy.frombuffer(key, numpy.uint32), "pos": place}
    made.state = {"bit_generator": "MT19937", "state": state}
    return made


def forget() -> None:
    """In a forked child, or where no step is looked at."""
    WATCH.begun = WATCH.forward = None


def begin() -> None:
    """A step begins that is looked at, or a batch for it has arrived: what was drawn so far is not the step's."""
    WATCH.begun, WATCH.forward = stands(), None


def at_forward() -> None:
    """The model's forward pass begins."""
    if WATCH.begun is not None and WATCH.forward is None:
        WATCH.forward = stands()


def at_input(value: Any, step: int) -> None:
    """What goes into the model at that step."""
    if WATCH.begun is not None:
        sizes = [tensor.numel() for tensor in fingerprint.tensors(value) if tensor.is_floating_point()]
        SIGNALS.record("data/elements", max(sizes, default=0), step)


def tell(step: int) -> None:
    """At the end of a step that was looked at."""
    begun, forward, now = WATCH.begun, WATCH.forward, stands()
    forget()
    if begun is None:
        return
    for name, first, middle, last in zip(GENERATORS, begun, forward or begun, now, strict=True):
        if first is None or middle is None or last is None or (first == last and name not in WATCH.used):
            continue
        WATCH.used.add(name)
        SIGNALS.record(f"data/rng_{name}", last.fingerprint(), step)
        SIGNALS.record(f"data/drawn_{name}", drawn(name, first, middle), step)
        SIGNALS.record(f"data/drawn_inside_{name}", drawn(name, middle, last), step)
