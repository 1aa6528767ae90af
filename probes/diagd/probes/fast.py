"""What a step's compiled way has to know of the Python way's objects: plain numbers, which both read and write.

The compiled way (native/steps.c) does what is done at nearly every step: count it, tell the phase. Whatever is not as
it was at the step before goes the way of Python, which then says again what is plain.
"""

from array import array


class Fast:
    """Index of each number. No enum: every Python process that starts in a job imports this."""

    PLAIN = 0  # 1 steps may take the compiled way, 2 likewise and probes are off for a measurement, 0 they may not
    KNOWN = 1  # id of the one optimizer that there is
    OPEN = 2  # id of the optimizer that is inside its step, 0 none
    PENDING = 3  # steps counted the compiled way since Python counted one
    TURN = 4  # the next training step that a probe waits for
    LOOK = 5  # the next training step at which the budget is looked at
    CASTS = 6  # autocast, or float16, makes backward passes worth a look


FAST = array("q", [0] * (Fast.CASTS + 1))


def forget() -> None:
    """A new box begins anew."""
    for number in range(len(FAST)):
        FAST[number] = 0
