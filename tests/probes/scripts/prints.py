# mypy: ignore-errors
"""One process that trains a little and says so in every way that a script can find."""

import contextlib
import io
import json
import logging
import os
import sys
import threading

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept_write = sys.stdout.write
logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.INFO)
log = logging.getLogger("trainer")


class Tee:
    """A stand-in for standard output, as scripts write them."""

    def __init__(self, *streams):
        self.__dict__["streams"] = streams

    def __getattr__(self, name):
        return getattr(self.streams[0], name)

    def __setattr__(self, name, value):
        setattr(self.streams[0], name, value)

    def write(self, text):
        for stream in self.streams:
            stream.write(text)
        return len(text)


def train(step):
    loss = model(torch.ones(8, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return round(loss.item(), 6) + step


for step in range(5):
    loss = train(step)
    print("step", step, "loss", loss)
    print(f"kl={loss / 3:.4f}", end=" ")  # a line in parts
    sys.stdout.write(f"part {step}")
    print()
    print({"reward": step, "lr": 1e-4}, file=sys.stderr, flush=True)
    log.info("step %d entropy=%.3f", step, step / 2)
    sys.stderr.write(f"\r{step}/5 [00:01, 2.0it/s, bar={step}.5]")
print(file=sys.stderr)
sys.stdout.flush()
sys.stdout.buffer.write(b"bytes=1 \xff\xfe\n")
sys.stdout.buffer.flush()
os.write(1, b"raw=1\n")
print("é ∇ \N{SNOWMAN}", float("nan"), "\x1b[31mred=1\x1b[0m")
sys.stdout.writelines([json.dumps({"step": 9, "nested": {"a": 1.5}}) + "\n", "two=2\n"])
kept_write("kept=3\n")
with contextlib.redirect_stdout(io.StringIO()) as hidden:
    print("hidden=4")
original, sys.stdout = sys.stdout, Tee(sys.stdout, io.StringIO())
train(5)
print("tee=5")
sys.stdout.extra = 1
sys.stdout = original
pid = os.fork()
if pid == 0:
    print("child=6", flush=True)
    os._exit(0)
os.waitpid(pid, 0)
thread = threading.Thread(target=print, args=("thread=7",))
thread.start()
thread.join()
try:
    sys.stdout.write(3)
except TypeError as error:
    print(type(error).__name__, sys.stdout.isatty(), sys.stdout.encoding, sys.stdout.fileno())
print("x" * 100_000, "long=8")
print("last=9", end="")
