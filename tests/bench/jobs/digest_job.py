"""Digests memory by each path on one core, each time right after a plain read of as much: seconds, as JSON.

python digest_job.py ROUNDS
"""

import json
import sys
import time
from collections.abc import Callable
from functools import partial

import torch

from diagd.cuda_ext import compiled, digest, twin
from diagd.cuda_ext.elements import KINDS

BYTES = 512 << 20  # more than a machine's caches hold
SMALL, SMALL_BYTES = 1000, 8192  # like a model's norms and biases

Work = Callable[[], object]


def seconds(work: Work) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def works() -> dict[str, Work]:
    """Name → what digests BYTES by it."""
    found: dict[str, Work] = {}
    for dtype in (torch.int64, torch.float32, torch.bfloat16, torch.float16):
        tensor = torch.randn(BYTES // dtype.itemsize, dtype=torch.float32).to(dtype)
        kind = KINDS.get(dtype, 0)
        name = str(dtype).removeprefix("torch.") if kind else "bits alone"
        if not isinstance(compiled.library(), str):
            found[f"compiled, {name}"] = partial(digest.digest, tensor)
        found[f"torch operations, {name}"] = partial(twin.on_host, tensor, 0, kind)
    return found


def main() -> None:
    torch.set_num_threads(1)
    rounds = int(sys.argv[1])
    plain, all_works = torch.zeros(BYTES // 8, dtype=torch.int64).random_(), works()
    small = [torch.randn(SMALL_BYTES // 4) for _ in range(SMALL)]
    read: dict[str, list[float]] = {name: [] for name in all_works}
    took: dict[str, list[float]] = {name: [] for name in all_works}
    many = []
    for number in range(rounds + 1):
        for name, work in all_works.items():
            pair = seconds(plain.sum), seconds(work)
            if number:  # the first one warms up
                read[name].append(pair[0])
                took[name].append(pair[1])
        many.append(seconds(lambda: digest.digest_many(small)) / SMALL)
    print(json.dumps({"bytes": BYTES, "small_bytes": SMALL_BYTES, "status": digest.status()["cpu"],
                      "read_s": read, "took_s": took, "many_s": many}))  # fmt: skip


if __name__ == "__main__":
    main()
