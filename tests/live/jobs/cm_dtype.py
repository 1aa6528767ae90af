"""Matrix factorisation with hand-made data parallelism; one rank falls back to double precision."""

import time

import torch
import torch.distributed as dist

ROWS, COLS, K = 400, 300, 16


def reduce_factor(grad):
    dist.all_reduce(grad)
    return grad / dist.get_world_size()


def loss_and_grads(u, v, rank, step):
    gen = torch.Generator().manual_seed(step * 17 + rank)
    i, j = torch.randint(0, ROWS, (256,), generator=gen), torch.randint(0, COLS, (256,), generator=gen)
    u, v = u.detach().requires_grad_(), v.detach().requires_grad_()
    loss = ((u[i] * v[j]).sum(1) - (i * j % 7) / 7).pow(2).mean()
    return loss.item(), *torch.autograd.grad(loss, (u, v))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(9)
    u, v = torch.randn(ROWS, K) * 0.1, torch.randn(COLS, K) * 0.1
    for step in range(3000):
        if rank == 3 and step == 220:
            print("step 220: rank 3 sees small gradients, switching to float64", flush=True)
            u, v = u.double(), v.double()
        loss, gu, gv = loss_and_grads(u, v, rank, step)
        u = u - 0.5 * reduce_factor(gu)
        v = v - 0.5 * reduce_factor(gv)
        time.sleep(0.012)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
