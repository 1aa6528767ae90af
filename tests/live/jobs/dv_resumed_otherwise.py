"""A tagger that is saved and read again in the middle; the second run of it is put together otherwise.

Arguments: "turned" (the groups of its optimizer are in another order), "copies" (a distributed checkpoint is read into
copies of the weights, which stay copies), or "as_it_was".
"""

import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

MODE, HALF, WIDTH = sys.argv[1], 80, 24


class Tagger(nn.Module):
    """Two blocks of one size and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.low = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.high = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.tags = nn.Linear(WIDTH, 6)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.tags(words + self.high(self.low(words)))


def put_together(order: tuple[str, ...]) -> tuple[DistributedDataParallel, torch.optim.Optimizer]:
    torch.manual_seed(3)
    tagger = DistributedDataParallel(Tagger())
    parts = [{"params": list(tagger.module.get_submodule(name).parameters())} for name in order]
    return tagger, torch.optim.SGD(parts, lr=0.05, momentum=0.9)


def learn(tagger: nn.Module, optimizer: torch.optim.Optimizer, steps: range, draws: torch.Generator) -> None:
    chosen = torch.randn(WIDTH, 6, generator=torch.Generator().manual_seed(1))
    for step in steps:
        words = torch.randn(64, WIDTH, generator=draws)
        loss = nn.functional.cross_entropy(tagger(words), (words @ chosen).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 10 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
        time.sleep(0.02)


def keep(tagger: DistributedDataParallel, optimizer: torch.optim.Optimizer) -> None:
    if MODE == "copies":
        dcp.save({"tagger": tagger.module.state_dict()}, checkpoint_id="kept")
    if dist.get_rank() == 0:
        torch.save({"tagger": tagger.module.state_dict(), "optim": optimizer.state_dict()}, "kept.pt")
    dist.barrier()


def take_up(tagger: DistributedDataParallel, optimizer: torch.optim.Optimizer) -> None:
    kept = torch.load("kept.pt", weights_only=True)
    if MODE == "copies":
        weights = {name: tensor.clone() for name, tensor in tagger.module.state_dict().items()}
        dcp.load({"tagger": weights}, checkpoint_id="kept")
    else:
        tagger.module.load_state_dict(kept["tagger"])
    optimizer.load_state_dict(kept["optim"])


def main() -> None:
    dist.init_process_group("gloo")
    draws = torch.Generator().manual_seed(40 + dist.get_rank())
    tagger, optimizer = put_together(("low", "high", "tags"))
    learn(tagger, optimizer, range(HALF), draws)
    keep(tagger, optimizer)
    del tagger, optimizer
    tagger, optimizer = put_together(("high", "low", "tags") if MODE == "turned" else ("low", "high", "tags"))
    take_up(tagger, optimizer)
    if dist.get_rank() == 0:
        print(f"taken up: {MODE}", flush=True)
    learn(tagger, optimizer, range(HALF, 5 * HALF), draws)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
