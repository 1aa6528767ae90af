"""Stores of a script's own: which ones a rank has helped to make."""

import sys
import threading

import pytest
from torch._C._distributed_c10d import TCPStore

from diagd.probes import stores
from diagd.probes.box.writer import BoxWriter
from diagd.probes.guard import Probe
from diagd.probes.signals import SIGNALS


def test_the_stores_that_were_joined_are_told(recording: BoxWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(SIGNALS, "fact", lambda name, text: told.append((name, text)))
    probe = Probe("stores", 3, True)
    stores.install(probe, sys.modules["torch.distributed.distributed_c10d"])
    try:
        server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        assert told == []  # nobody waits for anybody
        worker = threading.Thread(target=lambda: TCPStore("127.0.0.1", server.port, 2, wait_for_workers=True))
        worker.start()
        worker.join(timeout=30)
        assert told == [("store/joined", f"127.0.0.1:{server.port}")]
    finally:
        stores.remove()
    assert probe.on
