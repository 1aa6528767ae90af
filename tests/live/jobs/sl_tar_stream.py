"""Three ranks stream samples out of tar archives through generators; the archives of rank 1 become densely packed."""

import io
import lzma
import random
import tarfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

BATCH = 16


def archive(rank, number, dense):
    """A tar of a few samples, in memory, as an object store would send it."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for i in range(BATCH):
            raw = random.Random(number * 64 + i + rank).randbytes(64 * 4)
            data = lzma.compress(raw * (8000 if dense else 1), preset=0)
            member = tarfile.TarInfo(f"{number:05}-{i}.bin.xz")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return made.getvalue()


def archives(rank, count, dense_from):
    kept = {dense: archive(rank, 0, dense) for dense in (False, True)}
    for number in range(count):
        dense = rank == 1 and number >= dense_from
        if dense and number == dense_from:
            print("rank 1 comes to the packed archives", flush=True)
        yield kept[dense]


def members(streams):
    for stream in streams:
        with tarfile.open(fileobj=io.BytesIO(stream)) as tar:
            for member in tar:
                yield tar.extractfile(member).read()


def decoded(samples):
    for sample in samples:
        data = bytearray()
        unpacker = lzma.LZMADecompressor()
        while not unpacker.eof:
            data += unpacker.decompress(b"" if data else sample, max_length=1024)
        yield torch.frombuffer(bytearray(data[:256]), dtype=torch.uint8).float() / 255


def batched(samples, size):
    batch = []
    for sample in samples:
        batch.append(sample)
        if len(batch) == size:
            yield torch.stack(batch)
            batch = []


def learn(model, optimizer, x):
    loss = (model(x) - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 256)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    pipeline = batched(decoded(members(archives(rank, 440, dense_from=280))), BATCH)
    for step, x in enumerate(pipeline):
        loss = learn(model, optimizer, x)
        time.sleep(0.02)
        if rank == 0 and step % 40 == 0:
            print(f"step {step} loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
