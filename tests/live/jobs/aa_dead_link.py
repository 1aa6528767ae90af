"""Three ranks; the network of one node goes dead without a word (all that arrives at its sockets is dropped)."""

import ctypes
import os
import socket
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

DROP_ALL = ctypes.create_string_buffer(b"\x06\x00\x00\x00\x00\x00\x00\x00")  # BPF: return 0


def cut_network():
    """Attach a filter that drops every packet to each connected TCP socket between the ranks."""
    program = b"\x01\x00" + bytes(6) + ctypes.addressof(DROP_ALL).to_bytes(8, "little")
    store_port = int(os.environ["MASTER_PORT"])
    for fd in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        try:
            link = socket.socket(fileno=os.dup(fd))
        except OSError:
            continue
        with link:
            try:
                if link.getpeername()[1] != store_port and link.type == socket.SOCK_STREAM:
                    link.setsockopt(socket.SOL_SOCKET, 26, program)
            except (OSError, IndexError, TypeError):
                continue


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(80)
    model = DDP(nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 64)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(3000):
        if rank == 1 and step == 200:
            print("step 200: link of rank 1 goes down", flush=True)
            cut_network()
        x = torch.randn(8, 64)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.014)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
