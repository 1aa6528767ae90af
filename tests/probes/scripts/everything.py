# mypy: ignore-errors
"""Two ranks that do a bit of everything; each interesting line ends in a name for the tests."""

import contextlib
import datetime
import socket
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def communicate(rank, pair):
    tensor = torch.ones(3, 4)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)  # maximum
    dist.broadcast(tensor, src=1, group=pair)  # from 1
    work = dist.all_reduce(tensor.double(), async_op=True)  # async
    assert work.wait()
    dist.all_reduce(tensor, async_op=True)  # never waited for
    dist.all_gather([torch.zeros(2, 2) for _ in range(2)], torch.ones(2, 2))  # gather all
    dist.all_gather_object([None, None], {"rank": rank})  # object
    dist.reduce(tensor, dst=1)  # reduce
    leaf = torch.ones(3, requires_grad=True)
    leaf.register_hook(dist.all_reduce)
    leaf.sum().backward()  # hook
    dist.scatter(torch.zeros(2), [torch.ones(2)] * 2 if rank == 0 else None, src=0)  # scatter


def talk(rank):
    if rank == 0:
        dist.send(torch.ones(5), 1, tag=7)  # send
    else:
        dist.recv(torch.zeros(5), 0, tag=7)  # receive
    both = [dist.P2POp(dist.isend, torch.ones(2), 1 - rank), dist.P2POp(dist.irecv, torch.zeros(2), 1 - rank)]
    for request in dist.batch_isend_irecv(both):  # batch
        request.wait()
    if rank == 0:
        dist.recv(torch.zeros(1))  # any source
    else:
        dist.send(torch.ones(1), 0)


def meet(rank):
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=20))  # monitored
    dist.barrier()  # barrier
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        store.set("ready", "1")  # set
    else:
        store.get("ready")  # get
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = [free.getsockname()[1]]
    dist.broadcast_object_list(port, src=0)
    dist.TCPStore("127.0.0.1", port[0], 2, is_master=rank == 0)  # own store


def train(rank):
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.arange(160.0).reshape(40, 4) / 160, torch.ones(40, 1))
    for inputs, targets in DataLoader(data, batch_size=8, num_workers=1):
        loss = ((model(inputs) - targets) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"loss {loss.item().hex()}")


def main():
    dist.init_process_group("gloo")  # init
    rank = dist.get_rank()
    pair = dist.new_group([0, 1], group_desc="the pair")  # new group
    dist.new_group([0, 1], use_local_synchronization=True)  # made by its members alone
    init_device_mesh("cpu", (1, 2), mesh_dim_names=("pp", "dp"))
    communicate(rank, pair)
    talk(rank)
    meet(rank)
    train(rank)
    time.sleep(0.6)  # two beats of the heart, with all operations done
    dist.destroy_process_group(pair)
    try:
        dist.all_reduce(torch.ones(2).to_sparse(), group=pair)  # failing
    except (RuntimeError, ValueError) as error:
        print(f"refused: {type(error).__name__}")
    with contextlib.suppress(RuntimeError):
        dist.distributed_c10d._get_default_store().wait(["never"], datetime.timedelta(seconds=0.1))  # timed out
    if rank == 1:
        sys.exit(3)  # exit


main()
