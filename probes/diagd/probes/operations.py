"""What can be told of an operation from the arguments of its method on ProcessGroup."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from diagd.probes.box.layout import MAX_DIMS, Dtype, Op, Reduce
from diagd.probes.box.writer import padded


class Method(NamedTuple):
    """A method of ProcessGroup: its operation, and where in its arguments the interesting things are.

    Arguments are counted with the group itself as 0; 0 means that there is none. `tensors` is the one that is alike on
    ranks that do the same: what goes in, not what comes out.
    """

    name: str
    op: Op
    tensors: int = 1
    keywords: tuple[str, ...] = ("tensors", "tensor")
    reduces: bool = False
    rooted: bool = False
    partner: int = 0  # the partner's rank in the group
    tag: int = 0


_INPUTS = ("input_tensors", "input_tensor", "input", "inputTensor", "inputs", "input_list")

METHODS = (
    Method("allreduce", Op.ALLREDUCE, reduces=True),
    Method("allreduce_coalesced", Op.ALLREDUCE_COALESCED, reduces=True),
    Method("broadcast", Op.BROADCAST, rooted=True),
    Method("reduce", Op.REDUCE, reduces=True, rooted=True),
    Method("allgather", Op.ALLGATHER, 2, _INPUTS),
    Method("_allgather_base", Op.ALLGATHER, 2, _INPUTS),
    Method("all_gather_single", Op.ALLGATHER, 2, _INPUTS),
    Method("allgather_coalesced", Op.ALLGATHER_COALESCED, 2, _INPUTS),
    Method("allgather_into_tensor_coalesced", Op.ALLGATHER_COALESCED, 2, _INPUTS),
    Method("all_gather_single_coalesced", Op.ALLGATHER_COALESCED, 2, _INPUTS),
    Method("reduce_scatter", Op.REDUCE_SCATTER, 2, _INPUTS, reduces=True),
    Method("_reduce_scatter_base", Op.REDUCE_SCATTER, 2, _INPUTS, reduces=True),
    Method("reduce_scatter_single", Op.REDUCE_SCATTER, 2, _INPUTS, reduces=True),
    Method("reduce_scatter_tensor_coalesced", Op.REDUCE_SCATTER_COALESCED, 2, _INPUTS, reduces=True),
    Method("reduce_scatter_single_coalesced", Op.REDUCE_SCATTER_COALESCED, 2, _INPUTS, reduces=True),
    Method("alltoall", Op.ALLTOALL, 2, _INPUTS),
    Method("alltoall_base", Op.ALLTOALL, 2, _INPUTS),
    Method("all_to_all_single", Op.ALLTOALL, 2, _INPUTS),
    Method("gather", Op.GATHER, 2, _INPUTS, rooted=True),
    Method("scatter", Op.SCATTER, 1, ("output_tensors", "output_tensor"), rooted=True),
    Method("barrier", Op.BARRIER, 0),
    Method("monitored_barrier", Op.MONITORED_BARRIER, 0),
    Method("send", Op.SEND, partner=2, tag=3),
    Method("recv", Op.RECV, partner=2, tag=3),
    Method("recv_anysource", Op.RECV, tag=2),
    Method("_end_coalescing", Op.COALESCED, 0),
)

_DTYPES = {
    "torch.float32": Dtype.FLOAT32, "torch.float64": Dtype.FLOAT64, "torch.float16": Dtype.FLOAT16,
    "torch.bfloat16": Dtype.BFLOAT16, "torch.int64": Dtype.INT64, "torch.int32": Dtype.INT32,
    "torch.int16": Dtype.INT16, "torch.int8": Dtype.INT8, "torch.uint8": Dtype.UINT8, "torch.bool": Dtype.BOOL,
    "torch.complex64": Dtype.COMPLEX64, "torch.complex128": Dtype.COMPLEX128,
}  # fmt: skip
_REDUCES = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")
_MAX_COUNTED = 64  # tensors whose elements are added up; of more, only the number of tensors is told

Tensors = tuple[int, int, int, int, tuple[int, ...]]  # dtype, numel, how many, ndim, padded dims
NOTHING: Tensors = (0, -1, 0, 0, (0,) * MAX_DIMS)


def outline(value: Any) -> Any:
    """What tells apart the tensors of an operation, as cheaply as can be: hashable, for `describe`.

    Args:
        value: A tensor, a list of them, or a list of such lists (of which the first counts).

    Returns:
        (dtype, shape) of one tensor; with elements and number of all, where there are several; () of none.
    """
    kind = value.__class__
    if kind is list or kind is tuple:
        if not value:
            return ()
        if value[0].__class__ is list:
            value = value[0]
        if len(value) != 1:
            first = value[0]
            total = sum(tensor.numel() for tensor in value) if len(value) <= _MAX_COUNTED else -1
            return first.dtype, first.shape, total, min(len(value), 255)
        value = value[0]
    return value.dtype, value.shape


def describe(outlined: Any) -> Tensors:
    """The same for a record."""
    if not outlined:
        return NOTHING
    dtype, shape = outlined[:2]
    numel, tensors = outlined[2:] or (math.prod(shape), 1)
    return dtype_number(dtype), numel, tensors, len(shape), padded(tuple(shape))


def dtype_number(dtype: Any) -> int:
    """An element type as a record has it."""
    return int(_DTYPES.get(str(dtype), Dtype.OTHER))


def reduce_numbers(reduce_op: Any) -> dict[int, int]:
    """Reduce operations as a record has them, by the hash of torch's ReduceOp, which is its number there."""
    return {hash(getattr(reduce_op, name)): int(Reduce[name]) for name in _REDUCES if hasattr(reduce_op, name)}


def reduce_reader(numbers: dict[int, int]) -> Callable[[Any], int]:
    """A function from options to the reduce operation."""
    other = int(Reduce.OTHER)

    def read(options: Any) -> int:
        try:
            value = options.reduceOp
        except AttributeError:
            value = options  # the short forms take it instead of options
        return numbers.get(hash(value), other)

    return read
