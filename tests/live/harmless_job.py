"""An ordinary DDP training that says all it computes, to the last bit; what happens to it on the way is an argument."""

import argparse
import hashlib
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

BATCH = 16


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--pace", type=float, default=0.01, help="seconds to sleep in each step")
    parser.add_argument("--stall-at", type=int, default=-1, help="step at which rank 1 opens a pipe that nobody feeds")
    parser.add_argument("--die-once-at", type=int, default=-1, help="step at which rank 1 is killed, but once")
    parser.add_argument("--compile", action="store_true", help="train a compiled module")
    return parser.parse_args()


def build(rank: int, compiled: bool) -> nn.Module:
    torch.manual_seed(rank)  # DDP makes them equal
    model: nn.Module = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.BatchNorm1d(64), nn.Linear(64, 8))
    if compiled:
        model = torch.compile(model, backend="aot_eager", fullgraph=True)  # type: ignore[assignment]
    return DistributedDataParallel(model)


def batches(rank: int, world: int, steps: int) -> DataLoader[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(steps * BATCH * world, 32, generator=generator)[rank::world]
    return DataLoader(TensorDataset(x, x[:, :8].argmax(1)), batch_size=BATCH, num_workers=1)


def run_a_child() -> int | None:
    """Fork a helper that ends with a code of its own."""
    child = multiprocessing.get_context("fork").Process(target=sys.exit, args=(3,))
    child.start()
    child.join()
    return child.exitcode


def stall() -> None:
    """Read what nobody writes."""
    pipe = Path("never.fifo")
    os.mkfifo(pipe)
    pipe.read_bytes()


def checksum(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


def train(args: argparse.Namespace) -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    first_attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    model = build(rank, args.compile)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, (x, y) in enumerate(batches(rank, world, args.steps)):
        if rank == 1 and step == args.stall_at:
            print(f"rank 1 stalls at step {step}", flush=True)
            stall()
        if rank == 1 and step == args.die_once_at and first_attempt:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        time.sleep(args.pace)
        if rank == 0 and step % 5 == 0:
            print(f"step {step} loss {float(loss.detach()).hex()} mean {(float(mean) / world).hex()}", flush=True)
    finish(model, rank, world)


def finish(model: nn.Module, rank: int, world: int) -> None:
    child = run_a_child()
    sums: list[str | None] = [None] * world
    dist.all_gather_object(sums, f"{checksum(model)} child {child}")
    if rank == 0:
        print(f"checksums {sums}")
        print(f"sitecustomize {getattr(sys.modules.get('sitecustomize'), 'MARK', None)}")
    dist.destroy_process_group()
    # Lets gloo's threads free the last operation's tensors while the interpreter lives: where they come too late, torch
    # aborts the process, with diagd or not, at 1 of 150 such ends ("terminate called without an active exception").
    time.sleep(0.3)


if __name__ == "__main__":
    train(arguments())
