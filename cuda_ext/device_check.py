"""Proves on a GPU that its digests are those of the CPU, and measures them: `python cuda_ext/device_check.py`.

Takes about a minute. Exit code 0: all agree, or there is no GPU (which is said); 1: something differs, or the kernel
could not be loaded. Needs torch and this folder alone.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product

import torch

from diagd.cuda_ext import adding, twin
from diagd.cuda_ext.definition import BLOCK_BYTES, finish
from diagd.cuda_ext.digest import Digest, Pending, begin, digest_many, digest_rows, prepare
from diagd.cuda_ext.elements import KINDS

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.uint8, torch.int8,
          torch.int16, torch.int32, torch.int64, torch.complex64, torch.complex128)  # fmt: skip
BYTES = (0, 1, 2, 3, 4, 7, 8, 9, 16, 17, 1023, 4096, 65_535, 65_536, 65_537, BLOCK_BYTES - 1, BLOCK_BYTES,
         BLOCK_BYTES + 1, 3 * BLOCK_BYTES + 65_537)  # fmt: skip
OFFSETS = (0, 1, 3)  # elements; views that begin between words, and between the 16 bytes that a thread loads
RELATIVE = 1e-4  # of the sums of squares, as in digest.Digest
MIB = 1 << 20
SCRATCH_MIB = 64
ROUNDS = 20


def tensors() -> Iterator[tuple[str, torch.Tensor]]:
    """What to compare, on the CPU: random bits, so NaN and infinity among them."""
    chance = torch.Generator().manual_seed(11)
    for dtype, nbytes, offset in product(DTYPES, BYTES, OFFSETS):
        count = nbytes // dtype.itemsize + offset
        data = torch.randint(0, 256, (count * dtype.itemsize,), dtype=torch.uint8, generator=chance)
        yield f"{dtype}, {nbytes} bytes from element {offset}", data.view(dtype)[offset:]
    base = torch.randn(7, 30, 5, 301, generator=chance)
    for dtype in KINDS:
        for scale in (1.0, 1e-30, 1e30):
            yield f"{dtype} scaled by {scale}", (base * scale).to(dtype)
    yield "transposed", base.transpose(0, 3)
    yield "strided", base[:, ::3, :, 1::2]
    yield "expanded", base[:1].expand(9, 30, 5, 301)
    yield "conjugate", torch.complex(base, -base).conj()
    yield "a large transposed one", torch.randn(1501, 1003, generator=chance).t()


def on(device: torch.device, tensor: torch.Tensor) -> torch.Tensor:
    """The same view of the same memory there."""
    if tensor.is_conj():
        return on(device, tensor.conj()).conj()
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    there = torch.as_strided(tensor.detach(), (size,), (1,), 0).to(device)
    return torch.as_strided(there, tensor.shape, tensor.stride(), tensor.storage_offset())


def same(one: Digest, other: Digest) -> bool:
    """Whether they are of the same content."""
    if one.square_sum is None or other.square_sum is None:
        return one == other
    squares = one.square_sum, other.square_sum
    near = squares[0] == squares[1] or abs(squares[0] - squares[1]) <= RELATIVE * max(squares)
    return near and one._replace(square_sum=0) == other._replace(square_sum=0)


def differences(device: torch.device) -> list[str]:
    """Compare each tensor's digests by every path; return the names of those that differ."""
    names, here = zip(*tensors(), strict=True)
    there = [on(device, tensor) for tensor in here]
    expected = digest_many(here)
    found = [name for name, *both in zip(names, expected, digest_many(there), strict=True) if not same(*both)]
    for name, tensor, right in zip(names, there, expected, strict=True):
        flat = tensor.resolve_conj().reshape(-1)
        total = int(twin.on_device(flat, 0, 0)[0][0])
        if finish(total, flat.numel() * flat.element_size()) != right.bits:
            found.append(f"{name}, in torch operations")
    parts = [[adding.run_at(tensor, 7)] for tensor in here], [[adding.run_at(tensor, 7)] for tensor in there]
    totals = zip(names, *(adding.begin(side).result() for side in parts), strict=True)
    found += [f"{name}, added up" for name, one, other in totals if one != other]
    rows = torch.randn(37, 1001)
    if not all(map(same, digest_rows(rows), digest_rows(rows.to(device)))):
        found.append("rows")
    return found


def gpu_seconds(work: Callable[[], object]) -> float:
    """Median time on the device, between two events."""
    taken = []
    for _ in range(ROUNDS + 3):
        start, stop = (torch.Event("cuda", enable_timing=True) for _ in range(2))
        start.record()
        work()
        stop.record()
        stop.synchronize()
        taken.append(start.elapsed_time(stop) / 1000)
    return statistics.median(taken[3:])


def model(dtype: torch.dtype, device: torch.device) -> list[torch.Tensor]:
    """1,000 tensors like those of a large model's share: 2.3 GiB, from norms of 8 KiB to matrices of 64 MiB."""
    sizes = [8192, 8192, MIB, 4 * MIB, MIB // 2] * 196 + [64 * MIB] * 20
    return [torch.randn(size // dtype.itemsize, device=device).to(dtype) for size in sizes]


def bandwidth(device: torch.device) -> None:
    """Print the digest's bytes a second, and their share of a plain read's."""
    for dtype, statistics_too in ((torch.float32, False), (torch.float32, True), (torch.bfloat16, True)):
        parts = model(dtype, device)
        total = sum(tensor.numel() * tensor.element_size() for tensor in parts)
        plain = torch.ones(total // 8, dtype=torch.int64, device=device)
        read = gpu_seconds(plain.sum)
        taken = gpu_seconds(lambda parts=parts, too=statistics_too: begin(parts, statistics=too))  # type: ignore[misc]
        enqueued = wall_seconds(lambda parts=parts: begin(parts))  # type: ignore[misc]
        shape = f"{dtype} {'with' if statistics_too else 'without'} statistics, {len(parts)} tensors"
        speed = f"{total / taken / 1e9:.0f} GB/s, {read / taken:.0%} of a plain read ({total / read / 1e9:.0f} GB/s)"
        print(f"{shape}, {total / MIB:.0f} MiB: {speed}; {1000 * enqueued:.1f} ms to enqueue")
        del parts, plain


def wall_seconds(work: Callable[[], object]) -> float:
    """Median time that the host is held up, with an idle device."""
    taken = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def does_not_wait(device: torch.device) -> bool:
    """Whether a digest behind long work comes back before that is done."""
    tensor = torch.ones(MIB, device=device)
    views = [tensor, tensor.view(1024, 1024).t()]
    for _ in range(3):  # what is kept for later calls is there
        begin(views).result()
    torch.cuda._sleep(2_000_000_000)  # type: ignore[no-untyped-call] # clock cycles: about a second
    pending = begin(views)
    waits = pending.ready()
    return not waits and pending.result()[0].square_sum == MIB


def scratch_mib(device: torch.device) -> float:
    """What digesting a transposed GiB adds to the memory in use."""
    tensor = torch.ones(16384, 16384, device=device).t()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    digest_many([tensor])
    return (torch.cuda.max_memory_allocated() - before) / MIB


def step_overhead(device: torch.device) -> None:
    """Print a training step's time with a fiftieth of the parameters digested at each, over that without."""
    net = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096) for _ in range(50))).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
    batch = torch.randn(2048, 4096, device=device)
    parameters = list(net.parameters())
    pending: list[Pending] = []
    times: dict[bool, list[float]] = {True: [], False: []}
    for step in range(220):
        digested = step % 2 == 1
        torch.cuda.synchronize()
        began = time.perf_counter()
        net(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if digested:
            pending = [one for one in pending if not one.ready()]
            pending.append(begin(parameters[step // 2 % 50 :: 50]))
        torch.cuda.synchronize()
        if step >= 20:
            times[digested].append(time.perf_counter() - began)
    off, on_ = statistics.median(times[False]), statistics.median(times[True])
    print(f"step with a fiftieth digested over without: {on_ / off:.4f} ({1000 * off:.1f} ms a step)")


def main() -> int:
    """Check, then measure."""
    if not torch.cuda.is_available():
        print("no GPU here: nothing was checked, nothing was measured")
        return 0
    device = torch.device("cuda", torch.cuda.current_device())
    print(f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}")
    print(f"on the CPU: {prepare(torch.device('cpu'))}")
    path = prepare(device)
    print(f"on the GPU: {path}")
    failed = [f"{name} differs" for name in differences(device)]
    if path != "compiled":
        failed.append("the kernel was not loaded")
    if not does_not_wait(device):
        failed.append("a digest waited for the device, or came to a wrong result")
    if (added := scratch_mib(device)) > SCRATCH_MIB:
        failed.append(f"{added:.0f} MiB of device memory were added")
    print(*failed or [f"all digests agree; nothing waits; {added:.0f} MiB of device memory at most"], sep="\n")
    bandwidth(device)
    step_overhead(device)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
