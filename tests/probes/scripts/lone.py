# mypy: ignore-errors
"""One process, no process group: trains a little, with data workers, and ends as its argument says."""

import os
import sys
import threading

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

HOW = sys.argv[1] if len(sys.argv) > 1 else ""
WORKERS = int(os.environ.get("WORKERS", "0"))


def fail():
    raise KeyError("lost")  # failing


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, num_workers=WORKERS)
for inputs, targets in loader:
    loss = ((model(inputs) - targets) ** 2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("loss", loss.item().hex(), sum(p.sum() for p in model.parameters()).item().hex())
if HOW == "fork":
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            optimizer.step()
            torch.save(model.state_dict(), os.devnull)
            sys.exit(5)
        print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    optimizer.step()
elif HOW == "exception":
    fail()  # calling
elif HOW == "own hook":
    sys.excepthook = lambda *_: print("caught by my own hook")
    fail()
elif HOW == "exit":
    sys.exit("enough")  # exit
elif HOW == "exit in a handler":
    try:
        fail()  # tried
    except KeyError:
        sys.exit(3)  # giving up
elif HOW == "done in a handler":
    try:
        fail()
    except KeyError:
        sys.exit()  # done
elif HOW == "caught exit":
    try:
        sys.exit(9)
    except SystemExit:
        optimizer.step()
elif HOW == "os._exit":
    sys.stdout.flush()
    os._exit(6)  # os._exit
elif HOW == "threads":
    for name in ("first", "second"):
        thread = threading.Thread(target=fail, name=name)
        thread.start()
        thread.join()
elif HOW == "exit in a thread":
    thread = threading.Thread(target=lambda: sys.exit("no more shards"), name="feeder")
    thread.start()
    thread.join()
elif HOW == "thread":
    thread = threading.Thread(target=fail, name="feeder")
    thread.start()
    thread.join()
elif HOW == "quit":
    exit(4)  # quit
