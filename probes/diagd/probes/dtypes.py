"""Tensors of another dtype than they should have: weights that change it, and buffers that half precision falsifies.

Facts, a text each: `dtypes/changed` ("float32\\tbfloat16\\t" and the parameters' names, a comma between them) and
`dtypes/buffer/<name>` (dtype, what it holds, and what of it is wrong).
"""

from typing import Any

from diagd.probes import naming
from diagd.probes.signals import SIGNALS


def changed(optimizer: Any, parameters: list[tuple[Any, Any, Any]], step: int) -> None:
    """Parameters of an optimizer have another dtype than at the last look: each with its old and new one."""
    if not parameters:
        return
    _, old, new = parameters[0]
    names = naming.parameters([parameter for parameter, was, _ in parameters if was is old][:20], optimizer)
    said = f"{str(old).removeprefix('torch.')}\t{str(new).removeprefix('torch.')}\t{','.join(names)}"
    SIGNALS.fact("dtypes/changed", said[:900], step)
