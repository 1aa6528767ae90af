"""Values of small tensors, read without waiting for the device that computes them: from the CPU at once, from a GPU
some steps later, when a copy has come into pinned memory.
"""

import contextlib
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

_WAITING = 64  # copies under way at most; a device that is so far behind is asked for no more

_flights: deque[tuple[Any, Any, Callable[[list[float]], None]]] = deque()
_spare: list[Any] = []  # pinned memory for the next copies: to allocate it may wait for the device


def read(values: Any, take: Callable[[list[float]], None]) -> None:
    """Hand the numbers of a one-dimensional tensor to `take`, now or in a later `arrived`."""
    torch = sys.modules["torch"]
    if values.device.type == "cpu":
        take(values.tolist())
        return
    if values.device.type != "cuda" or len(_flights) >= _WAITING:
        return
    values = values.to(torch.float64)
    copy = _buffer(torch, values.numel())
    view = copy[: values.numel()]
    view.copy_(values, non_blocking=True)
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(values.device))
    _flights.append((event, (copy, view, values), take))


def arrived() -> None:
    """Hand out what has arrived meanwhile; never waits."""
    while _flights and _flights[0][0].query():
        _, (copy, view, _), take = _flights.popleft()
        numbers = view.tolist()
        _spare.append(copy)
        take(numbers)


def forget() -> None:
    """In another process, or after a test."""
    _flights.clear()
    _spare.clear()


def _buffer(torch: Any, size: int) -> Any:
    for number, spare in enumerate(_spare):
        if spare.numel() >= size:
            return _spare.pop(number)
    return torch.empty(max(64, 1 << (size - 1).bit_length()), dtype=torch.float64, pin_memory=True)


def possible(torch: Any) -> bool:
    """Whether tensors may be computed with now: no graph is being captured or traced, and no mode would see it."""
    if torch._C._len_torch_dispatch_stack():
        return False
    return not (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


@contextlib.contextmanager
def unseen(torch: Any) -> Iterator[None]:
    """Keep autograd and the script's function modes out of what is computed inside."""
    with torch.no_grad(), torch._C.DisableTorchFunction():
        yield


def plain(tensor: Any) -> Any:
    """The dense floating-point tensor behind it, of a DTensor what lies here; None where there is none to read.

    FSDP takes the memory of a gathered parameter away and leaves the tensor as it is, also where a graph has kept it:
    to read that ends the process.
    """
    torch = sys.modules["torch"]
    if type(tensor).__name__ == "DTensor" and hasattr(tensor, "_local_tensor"):
        tensor = tensor._local_tensor
    kinds = torch.Tensor, torch.nn.Parameter
    if type(tensor) not in kinds or tensor.layout is not torch.strided or not tensor.is_floating_point():
        return None
    there = tensor.device.type in ("cpu", "cuda") and tensor.numel() and tensor.untyped_storage().nbytes()
    return tensor if there else None
