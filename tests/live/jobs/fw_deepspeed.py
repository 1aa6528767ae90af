"""DeepSpeed on CPUs, a ZeRO stage of one's choice, and what may go wrong in it on rank 1."""

import os
import sys
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
from torch import nn

STEPS = 120
WRONG_AT = 60


def configuration(stage):
    return {
        "train_micro_batch_size_per_gpu": 8,
        "gradient_accumulation_steps": 2,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": stage},
        "bf16": {"enabled": stage >= 2},
        "optimizer": {"type": "AdamW", "params": {"lr": 2e-3, "torch_adam": True}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 20, "warmup_max_lr": 2e-3}},
        "steps_per_print": 1000,
        "torch_autocast": {"enabled": False},
    }


def batch(generator, step):
    x = torch.randn(8, 16, generator=generator)
    return x, x @ torch.linspace(-1, 1, 16)[:, None]


def export_tokenizer():
    """A rank that has something of its own to do."""
    time.sleep(3600)


def go_wrong(mode, engine, x, first):
    """At one step, on one rank.

    A NaN at each from there on, as DeepSpeed leaves out a step with one; a rate too, which its schedule sets anew.
    """
    if first and mode != "healthy":
        print(f"rank 1 at step {WRONG_AT}: {mode}", flush=True)
    if mode == "nan":
        x[3, 5] = float("nan")
    elif first and mode == "sleeps":
        export_tokenizer()
    elif first and mode == "changed":
        with torch.no_grad():
            engine.module[2].weight[0, 0] += 0.5
    elif mode == "rate":
        engine.optimizer.param_groups[0]["lr"] = 2e-2


def main():
    stage, mode = int(sys.argv[-2]), sys.argv[-1]
    # Else it compiles an operation first, which only inference uses: a minute, and for ever where an earlier build was
    # killed and has left its lock.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo")
    rank = torch.distributed.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 48), nn.GELU(), nn.Linear(48, 48), nn.GELU(), nn.Linear(48, 1))
    engine, *_ = deepspeed.initialize(model=model, config=configuration(stage), model_parameters=model.parameters())
    generator = torch.Generator().manual_seed(100 + rank)
    dtype = next(engine.module.parameters()).dtype
    for step in range(STEPS):
        for _ in range(2):
            x, y = batch(generator, step)
            if step >= WRONG_AT and rank == 1:
                go_wrong(mode, engine, x, first=step == WRONG_AT)
            loss = nn.functional.mse_loss(engine(x.to(dtype)).float(), y)
            engine.backward(loss)
            engine.step()
        time.sleep(0.02)
        if step % 20 == 0 and rank == 0:
            print(f"step {step} loss {loss.item():.4f} lr {engine.get_lr()}", flush=True)
    if rank == 0:
        print("trained", flush=True)


if __name__ == "__main__":
    main()
