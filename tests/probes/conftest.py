"""A box that the probes write to in this very process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from diagd.probes.box.writer import BoxWriter
from diagd.probes.settings import Settings
from diagd.probes.state import STATE


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[BoxWriter]:
    """The probes' state as in a rank, with a new box."""
    writer = BoxWriter(tmp_path / "1-1.box")
    STATE.forget()
    STATE.settings = Settings(str(tmp_path))
    STATE.box, STATE.live, STATE.recording, STATE.is_rank = writer, writer.live, True, True
    yield writer
    STATE.forget()
    STATE.notes.clear()
    STATE.off_bits = 0
    STATE.settings = Settings()
