# mypy: ignore-errors
"""A rank that forks: the parent goes on when the child has ended, and its flight recorder can still be asked for.

The child ends as multiprocessing's do: a normal exit hangs in gloo's own destructor, whoever watches."""

import http.client
import json
import os
import socket
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(2))
pid = os.fork()
if pid == 0:
    torch.ones(2).sum()
    os._exit(5)
print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
dist.all_reduce(torch.ones(3))
if len(sys.argv) > 1:
    connection = http.client.HTTPConnection("localhost", timeout=20)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(f"{sys.argv[1]}/{os.getpid()}.fr.sock")
    connection.request("POST", "/handler/fr_trace_json")
    entries = json.loads(connection.getresponse().read())["entries"]
    print([entry["collective_seq_id"] for entry in entries])
