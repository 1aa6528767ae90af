"""What every path adds up, and the digest that it makes of it."""

from typing import NamedTuple

from diagd.cuda_ext.definition import finish


class Digest(NamedTuple):
    """What is known of a tensor's content.

    Attributes:
        bits: The digest, 0 to 2^64 - 1 (definition.py).
        nonfinite: How many elements are NaN or infinite; None for all but float16, bfloat16, float32 and float64.
        square_sum: The sum of the squares of the finite elements, to a relative 1e-4; None as above.
        absmax: The largest magnitude of a finite element, 0 where there is none; None as above.
    """

    bits: int
    nonfinite: int | None
    square_sum: float | None
    absmax: float | None


class Sums(NamedTuple):
    """What was added up over some of a tensor's blocks."""

    total: int = 0  # ΣF, of any sign
    nonfinite: int = 0
    square_sum: float = 0.0
    absmax: float = 0.0

    def with_(self, other: "Sums") -> "Sums":
        """Both together."""
        absmax = max(self.absmax, other.absmax)
        return Sums(
            self.total + other.total, self.nonfinite + other.nonfinite, self.square_sum + other.square_sum, absmax
        )

    def digest(self, nbytes: int, kind: int) -> Digest:
        """What they come to for a tensor of so many bytes and of this kind of elements."""
        bits = finish(self.total, nbytes)
        return Digest(bits, self.nonfinite, self.square_sum, self.absmax) if kind else Digest(bits, None, None, None)
