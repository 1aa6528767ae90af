"""Where and when a checkpoint is begun, as the rank tells it."""

import io
import sys
import time
from collections.abc import Iterator

import pytest
import torch

from diagd.probes import checkpoint, phases
from diagd.probes.box.layout import Live, Phase
from diagd.probes.box.reader import BoxReader
from diagd.probes.box.writer import BoxWriter
from diagd.probes.guard import Probe


@pytest.fixture(autouse=True)
def _installed(recording: BoxWriter) -> Iterator[None]:
    checkpoint.install(Probe("checkpoint", 0, True), sys.modules["torch.serialization"])
    yield
    checkpoint.remove()


def write_weights() -> int:
    line = sys._getframe().f_lineno + 1
    torch.serialization.save({"weights": torch.zeros(2)}, io.BytesIO())
    return line


def place(box: BoxWriter) -> list[str]:
    return BoxReader(box.path).string(box.live[Live.SAVE_SITE]).split("\t")


def test_the_line_that_saves_is_told_with_the_time(recording: BoxWriter) -> None:
    assert recording.live[Live.SAVE_NS] == 0
    before = time.monotonic_ns()
    line = write_weights()
    assert place(recording) == [__file__, str(line), "write_weights"]
    assert before <= recording.live[Live.SAVE_NS] <= time.monotonic_ns()


def test_what_a_saver_saves_in_turn_is_no_other_checkpoint(recording: BoxWriter) -> None:
    write_weights()
    told = recording.live[Live.SAVE_SITE], recording.live[Live.SAVE_NS]
    phases.enter(Phase.CHECKPOINT)
    torch.serialization.save([], io.BytesIO())
    assert (recording.live[Live.SAVE_SITE], recording.live[Live.SAVE_NS]) == told
