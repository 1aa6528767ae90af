"""Names of parameters, also where one comes to lie where another was."""

import gc

import torch
from torch import nn

from diagd.probes import inventory
from diagd.probes.named import Named


class Cellar(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.floor = nn.Linear(3, 5)


def test_a_parameter_has_the_name_that_it_was_found_by_and_no_other_has_it() -> None:
    named, model = Named(), Cellar()
    named.take(inventory.survey())
    assert named.name(model.floor.weight) == "Cellar.floor.weight"
    (one,) = (one for one in named.parameters if one.name == "Cellar.floor.weight")
    new = nn.Parameter(torch.ones(2))
    named._names[id(new)] = one  # as if it had come to lie there
    del model
    gc.collect()
    assert one.module() is None
    assert named.name(new) is None
