"""What can be told of an operation from the arguments of its method on ProcessGroup."""

from collections.abc import Callable
from typing import Any, NamedTuple

from diagd.probes.box.layout import Dtype, Op, Reduce


class Method(NamedTuple):
    """A method of ProcessGroup: its operation, and where in its arguments the interesting things are.

    `tensors` is the argument that says the same on each rank that does the same: what goes in, not what comes out.
    """

    name: str
    op: Op
    tensors: int = 0
    keywords: tuple[str, ...] = ("tensors", "tensor")
    reduces: bool = False
    rooted: bool = False
    partner: int = 0  # argument that holds the partner's rank in the group; 0 none
    tag: int = 0


_INPUTS = ("input_tensors", "input_tensor", "input", "inputTensor", "inputs", "input_list")

METHODS = (
    Method("allreduce", Op.ALLREDUCE, reduces=True),
    Method("allreduce_coalesced", Op.ALLREDUCE_COALESCED, reduces=True),
    Method("broadcast", Op.BROADCAST, rooted=True),
    Method("reduce", Op.REDUCE, reduces=True, rooted=True),
    Method("allgather", Op.ALLGATHER, 1, _INPUTS),
    Method("_allgather_base", Op.ALLGATHER, 1, _INPUTS),
    Method("all_gather_single", Op.ALLGATHER, 1, _INPUTS),
    Method("allgather_coalesced", Op.ALLGATHER_COALESCED, 1, _INPUTS),
    Method("allgather_into_tensor_coalesced", Op.ALLGATHER_COALESCED, 1, _INPUTS),
    Method("all_gather_single_coalesced", Op.ALLGATHER_COALESCED, 1, _INPUTS),
    Method("reduce_scatter", Op.REDUCE_SCATTER, 1, _INPUTS, reduces=True),
    Method("_reduce_scatter_base", Op.REDUCE_SCATTER, 1, _INPUTS, reduces=True),
    Method("reduce_scatter_single", Op.REDUCE_SCATTER, 1, _INPUTS, reduces=True),
    Method("reduce_scatter_tensor_coalesced", Op.REDUCE_SCATTER_COALESCED, 1, _INPUTS, reduces=True),
    Method("reduce_scatter_single_coalesced", Op.REDUCE_SCATTER_COALESCED, 1, _INPUTS, reduces=True),
    Method("alltoall", Op.ALLTOALL, 1, _INPUTS),
    Method("alltoall_base", Op.ALLTOALL, 1, _INPUTS),
    Method("all_to_all_single", Op.ALLTOALL, 1, _INPUTS),
    Method("gather", Op.GATHER, 1, _INPUTS, rooted=True),
    Method("scatter", Op.SCATTER, 0, ("output_tensors", "output_tensor"), rooted=True),
    Method("barrier", Op.BARRIER, -1),
    Method("monitored_barrier", Op.MONITORED_BARRIER, -1),
    Method("send", Op.SEND, partner=1, tag=2),
    Method("recv", Op.RECV, partner=1, tag=2),
    Method("recv_anysource", Op.RECV, tag=1),
    Method("_end_coalescing", Op.COALESCED, -1),
)

_DTYPES = {
    "torch.float32": Dtype.FLOAT32, "torch.float64": Dtype.FLOAT64, "torch.float16": Dtype.FLOAT16,
    "torch.bfloat16": Dtype.BFLOAT16, "torch.int64": Dtype.INT64, "torch.int32": Dtype.INT32,
    "torch.int16": Dtype.INT16, "torch.int8": Dtype.INT8, "torch.uint8": Dtype.UINT8, "torch.bool": Dtype.BOOL,
    "torch.complex64": Dtype.COMPLEX64, "torch.complex128": Dtype.COMPLEX128,
}  # fmt: skip
_REDUCES = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")
_MAX_COUNTED = 64  # tensors whose elements are added up; of more, only the number of tensors is told

Shape = tuple[int, int, int, tuple[int, ...]]
NOTHING: Shape = (0, -1, 0, ())


def tensor_reader() -> Callable[[Any], Shape]:
    """A function from a tensor, a list of them, or a list of such lists, to (dtype, numel, tensors, first's dims)."""
    known: dict[Any, int] = {}

    def read(value: Any) -> Shape:
        count = 1
        rest: Any = None
        if value.__class__ is list or value.__class__ is tuple:
            if not value:
                return NOTHING
            if value[0].__class__ is list:
                value = value[0]
            count = len(value)
            if count != 1:
                rest = value
            value = value[0]
        dtype = known.get(value.dtype)
        if dtype is None:
            dtype = known[value.dtype] = int(_DTYPES.get(str(value.dtype), Dtype.OTHER))
        if rest is None:
            return dtype, value.numel(), 1, tuple(value.shape)
        return dtype, sum(t.numel() for t in rest) if count <= _MAX_COUNTED else -1, count, tuple(value.shape)

    return read


def reduce_reader(reduce_op: Any) -> Callable[[Any], int]:
    """A function from options to the reduce operation; `reduce_op` is torch's ReduceOp, whose hash is its number."""
    numbers = {hash(getattr(reduce_op, name)): int(Reduce[name]) for name in _REDUCES if hasattr(reduce_op, name)}

    def read(options: Any) -> int:
        value = getattr(options, "reduceOp", options)
        return numbers.get(hash(value), int(Reduce.OTHER))

    return read
