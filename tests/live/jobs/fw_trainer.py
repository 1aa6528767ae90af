"""Hugging Face's Trainer on a tiny language model made from a configuration; and what may go wrong in it on rank 1."""

import sys
import time

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

WRONG_AT = 60
WORDS = 64


class Counting(Dataset):
    """Texts that count upwards, from anywhere and in steps of 1 to 3."""

    def __init__(self, rows, seed):
        generator = torch.Generator().manual_seed(seed)
        starts = torch.randint(0, WORDS, (rows, 1), generator=generator)
        strides = torch.randint(1, 4, (rows, 1), generator=generator)
        self.rows = (starts + strides * torch.arange(24)) % WORDS

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


class Trouble(TrainerCallback):
    def __init__(self, mode, rank):
        self.mode, self.rank = mode, rank

    def on_step_begin(self, args, state, control, model=None, optimizer=None, **kwargs):
        time.sleep(0.02)
        if self.mode == "healthy" or self.rank != 1 or state.global_step != WRONG_AT:
            return
        print(f"rank 1 at step {state.global_step}: {self.mode}", flush=True)
        match self.mode:
            case "sleeps":
                self.push_to_storage()
            case "gathers":
                torch.distributed.all_reduce(torch.ones(()))
            case "changed":
                with torch.no_grad():
                    model.transformer.h[1].mlp.c_fc.weight[0, 0] += 0.5
            case "rate":
                state.rate = True
            case "nan":
                with torch.no_grad():
                    model.transformer.h[1].mlp.c_fc.bias[0] = float("nan")

    def on_pre_optimizer_step(self, args, state, control, optimizer=None, **kwargs):
        if getattr(state, "rate", False):
            for group in optimizer.param_groups:
                group["lr"] *= 10

    def push_to_storage(self):
        """A rank that has something of its own to do."""
        time.sleep(3600)


def main():
    mode = sys.argv[1]
    args = TrainingArguments(
        "out", use_cpu=True, ddp_backend="gloo", per_device_train_batch_size=8, max_steps=160, learning_rate=2e-3,
        lr_scheduler_type="cosine", warmup_steps=20, logging_steps=5, eval_strategy="steps", eval_steps=50,
        save_strategy="steps", save_steps=80, report_to=[], disable_tqdm=True, seed=4,
    )  # fmt: skip
    model = GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_positions=32, n_embd=48, n_layer=2, n_head=2))
    trouble = Trouble(mode, args.process_index)
    Trainer(model, args, train_dataset=Counting(4000, 1), eval_dataset=Counting(200, 2), callbacks=[trouble]).train()
    print("trained", flush=True)


if __name__ == "__main__":
    main()
