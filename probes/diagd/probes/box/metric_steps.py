"""Step counters as scripts print them, brought to one that never goes back."""


class Steps:
    """One counter's: where it begins anew, as with each epoch, it is continued from where it stood."""

    __slots__ = ("_base", "_gap", "_last")

    def __init__(self) -> None:
        self._base = 0
        self._gap = 1  # between the last two steps
        self._last: int | None = None

    def place(self, step: int) -> int:
        """The step on the counter that only grows."""
        last = self._last
        if last is not None:
            if step < last:
                self._base += last + self._gap - step
            elif step > last:
                self._gap = step - last
        self._last = step
        return self._base + step
