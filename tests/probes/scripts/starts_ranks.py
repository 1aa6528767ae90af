# mypy: ignore-errors
"""Starts two ranks by torch.multiprocessing, by the method that its argument names; the second one fails."""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    dist.all_reduce(torch.ones(2))
    dist.barrier()
    if rank == 1:
        raise ValueError("rank 1 gives up")  # gives up
    dist.destroy_process_group()


if __name__ == "__main__":
    store = dist.TCPStore("127.0.0.1", 0, 1, True, wait_for_workers=False)
    free = store.port
    del store
    os.environ["OMP_NUM_THREADS"] = "1"
    mp.start_processes(work, args=(free,), nprocs=2, start_method=sys.argv[1])
