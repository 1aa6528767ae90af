"""Names of parameters, also where one comes to lie where another was."""

import weakref

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
    gone, new = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    named._names[id(new)] = weakref.ref(gone), "Cellar.floor.weight"  # one that lay there before
    del gone
    assert named.name(new) is None
