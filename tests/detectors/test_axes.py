"""Samples that are dealt out along the wrong axis of a mesh of replicas and shards."""

import pytest
from tests.detectors.scalars import signals
from tests.detectors.states import Job
from tests.detectors.tensors import ledgers, own, training

from diagd.daemon.state.tensors import TensorInfo

PAIRS = ((0, 1), (2, 3))


def meshed(inputs: tuple[int, int, int, int]) -> Job:
    """Two replicas, ranks 0,2 and 1,3 of the wrapper's, of two shards each; what each rank is given."""
    made = training({}, 4)
    for pair in PAIRS:
        tensors = {
            TensorInfo("Net.down.bias", kind=kind, shape=(4,), placement="dtensor S(0), R", peers=pair): own
            for kind in ("parameter", "gradient")
        }
        made.state.tensors.apply(ledgers(tensors, pair), 4)
    for rank in range(4):
        made.state.signals.put_fact(rank, "data/replicas", 1, "fsdp2 0:2:2" if rank in (0, 2) else "fsdp2 1:3:2")
        steps = range(1, 13)
        signals(made.state, rank, "data/input", steps, [100.0 * inputs[rank] + step for step in steps])
        signals(made.state, rank, "loss", steps, [1.0 / step + inputs[rank] for step in steps])
    return made


@pytest.mark.parametrize(("inputs", "kinds"), [
    ((0, 1, 0, 1), {"divergence.data"}),  # replicas get the same, the parts of one replica do not
    ((0, 0, 1, 1), {"divergence.parameter"}),  # as is right: something else has parted them
    ((0, 0, 0, 0), {"divergence.parameter", "divergence.data"}),
    ((0, 1, 2, 3), {"divergence.parameter"}),  # it may be one axis or the other
])  # fmt: skip
def test_tensors_that_parts_of_a_replica_share_part_with_their_samples(
    inputs: tuple[int, int, int, int], kinds: set[str]
) -> None:
    assert {one.kind for one in meshed(inputs).find()} == kinds
