# mypy: ignore-errors
"""A child that fails before it joins anything: told its RANK by the script, as a worker, or by chance of its parent."""

import multiprocessing as mp
import os
import sys

import torch.distributed  # noqa: F401


def work(told):
    if told:
        os.environ["RANK"], os.environ["WORLD_SIZE"] = "1", "3"
    raise ValueError("no vocabulary")  # fails


if __name__ == "__main__":
    method, how = sys.argv[1:]
    told = how in ("told", "worker")
    child = mp.get_context(method).Process(target=work, args=(told,), daemon=how == "worker")
    child.start()
    child.join()
