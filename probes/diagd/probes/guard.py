"""The wall towards the job: no exception of a probe gets past it, and a probe that keeps failing is switched off."""

from __future__ import annotations

from diagd.probes.state import STATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType
    from typing import Any

MAX_ERRORS = 3
HIDDEN = "<diagd>"  # the file name of our frames inside the user's tracebacks: not their code, and nothing to open
EAGER = "<diagd:eager>"  # likewise, and torch.compile may look through it


class Probe:
    """One probe's switch. `on` is the only thing that its wrappers look at."""

    __slots__ = ("always", "bit", "errors", "name", "on", "tripped")

    def __init__(self, name: str, bit: int, always: bool) -> None:
        self.name = name
        self.bit = bit
        self.always = always
        self.errors = 0
        self.tripped = False
        self.on = always

    def switch(self, recording: bool) -> None:
        """Follow the process: is there a box to write to."""
        self.on = (recording or self.always) and not self.tripped

    def failed(self, error: BaseException) -> None:
        """Count an error; after the last one, stay off and say why."""
        self.errors += 1
        STATE.count_error()
        if self.errors >= MAX_ERRORS and not self.tripped:
            self.trip(f"{type(error).__name__}: {error}")

    def trip(self, reason: str) -> None:
        """Switch off for good."""
        self.tripped = True
        self.on = False
        STATE.off_bits |= 1 << self.bit
        STATE.note(f"probe {self.name} is off: {reason}"[:300])

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a part of the probe; None where it fails."""
        try:
            return function(*args)
        except Exception as error:
            self.failed(error)
            return None


def around(
    probe: Probe,
    original: Callable[..., Any],
    before: Callable[[tuple[Any, ...], dict[str, Any]], Any],
    after: Callable[[Any, Any], None],
    failed: Callable[[Any, BaseException], None],
    torch: Any = None,
) -> Any:
    """A function that does what `original` does, with `before`, and then `after` or `failed`, around it.

    Args:
        before: Given the arguments; what it returns is handed to the other two. None: not this time.
        after: Given that token and the result.
        failed: Given that token and the exception, which goes on to the caller as it is.
        torch: The module, where torch.compile may trace it: meanwhile the original is called alone. It folds the
            question to a constant.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        if torch is not None and torch.compiler.is_compiling():
            return original(*args, **kwargs)
        if not probe.on:
            return original(*args, **kwargs)
        try:
            token = before(args, kwargs)
        except Exception as error:
            probe.failed(error)
            token = None
        if token is None:
            return original(*args, **kwargs)
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            probe.run(failed, token, error)
            raise
        try:
            after(token, result)
        except Exception as error:
            probe.failed(error)
        return result

    return disguised(call, original, HIDDEN if torch is None else EAGER)


def wrapper(probe: Probe, before: Any, after: Any, failed: Any) -> Callable[[Any], Any]:
    """What makes `around` of an original, for Patches.replace."""
    return lambda original: around(probe, original, before, after, failed)


def disguised(function: Any, original: Any, file: str = HIDDEN) -> Any:
    """`function` with the outside of `original` (as functools.wraps does), and no file of its own in a traceback."""
    from types import FunctionType

    code: CodeType = function.__code__
    name = getattr(original, "__name__", code.co_name)
    hidden = FunctionType(
        code.replace(co_filename=file, co_name=name), function.__globals__, name, function.__defaults__,
        function.__closure__,
    )  # fmt: skip
    hidden.__kwdefaults__ = function.__kwdefaults__
    for attribute in ("__module__", "__qualname__", "__doc__", "__annotations__"):
        if hasattr(original, attribute):
            try:
                setattr(hidden, attribute, getattr(original, attribute))
            except (TypeError, AttributeError):
                pass
    hidden.__dict__.update(getattr(original, "__dict__", {}))
    hidden.__dict__["__wrapped__"] = original
    return hidden


class Patches:
    """Attributes that a probe has replaced, to put them back."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any, bool]] = []

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> bool:
        """Put `make(original)` in the place of owner.name; False where there is none or it cannot be set."""
        original: Any = getattr(owner, name, None)
        if original is None:
            return False
        attributes = getattr(owner, "__dict__", {})
        own = name in attributes
        # As it stands there: of a C++ class, getattr gives a bare function that no longer binds to an object.
        kept = attributes[name] if own else original
        try:
            setattr(owner, name, make(original))
        except (TypeError, AttributeError):
            return False
        self._done.append((owner, name, kept, own))
        return True

    def undo(self) -> None:
        """Put the originals back, last one first."""
        while self._done:
            owner, name, original, own = self._done.pop()
            if own:
                setattr(owner, name, original)
            else:
                delattr(owner, name)
