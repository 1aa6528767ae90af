"""What of a script's holds more than at the last look, and that looking changes nothing."""

import functools
import gc
import sys
import time
import weakref
from collections import deque
from types import SimpleNamespace
from typing import Any, ClassVar

from diagd.probes import holders
from diagd.probes.holders import Holder

LONG_NS = 60_000_000_000


class Recorder:
    """An object of the user's."""

    shared: ClassVar[list[int]] = []

    def __init__(self) -> None:
        self.store: list[bytes] = []
        self.parts = {"loss": [1], "acc": [2, 3]}


class Loud(dict[str, int]):
    """Its own code would tell that it was called."""

    def __len__(self) -> int:
        raise AssertionError("the script's code was called")

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError("the script's code was called")


def look(before: dict[str, Holder] | None = None, **variables: Any) -> dict[str, Holder]:
    """What is found from these variables, by path."""
    known = {(id_of(holder, variables), path): holder.size for path, holder in (before or {}).items()}
    found = holders.look(None, known, time.thread_time_ns() + LONG_NS, variables)
    return {path: holder for (_, path), holder in found.items()}


def id_of(holder: Holder, variables: dict[str, Any]) -> int:
    found = holders.look(None, {}, time.thread_time_ns() + LONG_NS, variables)
    return next(number for number, path in found if path == holder.path)


def test_containers_are_named_by_the_way_to_them() -> None:
    recorder = Recorder()
    found = look(recorder=recorder, plain=[1, 2], ring=deque([1], maxlen=3), kinds={1, 2})
    sizes = {path: (holder.kind, holder.size) for path, holder in found.items()}
    assert sizes["recorder.store"] == ("list", 0)
    assert sizes["recorder.parts['acc']"] == ("list", 2)
    assert sizes["plain"] == ("list", 2)
    assert (sizes["ring"], found["ring"].bounded) == (("deque", 1), True)
    assert sizes["kinds"] == ("set", 2)
    assert found["recorder.store"].owner == "Recorder"


def test_what_has_grown_is_weighed_by_its_newest_element() -> None:
    recorder = Recorder()
    before = look(recorder=recorder)
    recorder.store += [b"x" * 10, b"x" * 5000]
    after = look(before, recorder=recorder)
    assert 5000 <= after["recorder.store"].weight.bytes < 5100
    assert after["recorder.parts['loss']"].weight.bytes == 0


def test_caches_of_functools_and_what_closures_hold_are_seen() -> None:
    @functools.cache
    def features(key: int) -> int:
        return key

    kept = [1, 2, 3]

    def hook() -> int:
        return len(kept) + features(7)

    hook()
    found = look(features=features, hook=hook)
    assert (found["features"].kind, found["features"].size, found["features"].bounded) == ("cache", 1, False)
    assert (found["kept"].size, found["kept"].function) == (3, "hook")


def test_no_code_of_the_scripts_is_called() -> None:
    class Proxy:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError("the script's code was called")

    assert look(loud=Loud(a=1), proxy=Proxy())["loud"].size == 1


def test_a_look_ends_at_its_deadline() -> None:
    many: dict[str, Any] = {str(n): SimpleNamespace(x=[n]) for n in range(30)} | {"deep": [[[[]]]] * 20}
    everything = holders.look(None, {}, time.thread_time_ns() + LONG_NS, {f"v{n}": dict(many) for n in range(30)})
    cut = holders.look(None, {}, 0, {f"v{n}": dict(many) for n in range(30)})
    assert 0 < len(cut) < len(everything)


class Big:
    """Something whose end can be seen."""


def looks_at_itself() -> tuple[dict[holders.Key, Holder], bool, int]:
    """What it found, whether its own went away after that, and a number of its own."""
    big, numbers = Big(), [1, 2, 3]
    found = holders.look(sys._getframe(), {}, time.thread_time_ns() + LONG_NS)
    reference = weakref.ref(big)
    del big
    gc.collect()
    return found, reference() is None, len(numbers)


def keeps_its_variables() -> tuple[dict[str, Any], dict[holders.Key, Holder]]:
    inner = [1, 2]
    mine = locals()
    found = holders.look(sys._getframe(), {}, time.thread_time_ns() + LONG_NS)
    return mine, found if inner else {}


def test_looking_at_a_running_function_keeps_nothing_of_it_alive() -> None:
    found, gone, size = looks_at_itself()
    assert [holder.size for (_, path), holder in found.items() if path == "numbers"] == [size]
    assert gone


def test_a_function_that_asks_for_its_own_variables_is_left_alone() -> None:
    mine, found = keeps_its_variables()
    assert not any(path == "inner" for _, path in found)
    assert mine["inner"] == [1, 2]


def test_loops_of_references_end() -> None:
    one: list[Any] = []
    one.append(one)
    other = SimpleNamespace()
    other.me = other
    assert look(one=one, other=other)["one"].size == 1
