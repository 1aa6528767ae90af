"""The regression corpus: recordings of real runs, small and without a trace of the machine they were made on.

python -m tests.record.corpus NAME RECORDING    adds one, and prints what today's detectors say of it
"""

import lzma
import os
import socket
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from diagd.daemon.aggregator.replay import replay
from diagd.daemon.incidents.incident import Incident
from diagd.daemon.record.record import RecordReader, RecordWriter

FOLDER = Path(__file__).resolve().parent / "corpus"
ROOT = Path(__file__).resolve().parents[2]
# What stands in a recording, and what in its place.
PLACES = (
    (sysconfig.get_paths()["purelib"], "/env/lib/site-packages"),
    (sysconfig.get_paths()["stdlib"], "/python/lib"),
    (str(ROOT / "tests/live/jobs"), "/job"),
    (str(ROOT), "/diagd"),
    (os.path.realpath(sys.prefix), "/env"),
    (sys.base_prefix, "/python"),
    (tempfile.gettempdir(), "/run"),
    ("/dev/shm", "/run"),
    (str(Path.home()), "/home"),
)


@contextmanager
def unpacked(name: str) -> Iterator[Path]:
    """A recording of the corpus as a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recording"
        path.write_bytes(lzma.decompress((FOLDER / f"{name}.rec.xz").read_bytes()))
        yield path


def verdicts(path: Path) -> tuple[Sequence[Incident], float]:
    """What today's detectors say at the end, and how long the recording lasts, in seconds."""
    began_s, now_s, found = 0.0, 0.0, []
    for state, incidents in replay(path):
        began_s, now_s, found = began_s or state.now_s, state.now_s, list(incidents)
    return found, now_s - began_s


def add(name: str, recording: Path) -> None:
    """Put a recording into the corpus."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recording"
        with RecordWriter(path) as writer:
            for entry in RecordReader(recording):
                _hide(entry)
                writer.write(entry)
        (FOLDER / f"{name}.rec.xz").write_bytes(lzma.compress(path.read_bytes(), preset=9))


def _hide(message: Any) -> None:
    """Replace names of this machine in all strings of a message."""
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if field.is_repeated else [value]:
                _hide(inner)
        elif field.type == field.TYPE_STRING:
            _replace(message, field.name, value, repeated=field.is_repeated)


def _replace(message: Any, name: str, value: Any, *, repeated: bool) -> None:
    """Set a string field, or each of a repeated one."""
    if repeated:
        value[:] = [_hidden(text) for text in list(value)]
    else:
        setattr(message, name, _hidden(value))


def _hidden(text: str) -> str:
    for there, here in PLACES:
        text = text.replace(there, here)
    return "node-0" if text == socket.gethostname() else text


def main() -> None:
    name, recording = sys.argv[1], Path(sys.argv[2])
    add(name, recording)
    with unpacked(name) as path:
        found, lasts_s = verdicts(path)
    print(f"{name}: {lasts_s:.0f} s, {(FOLDER / f'{name}.rec.xz').stat().st_size} bytes")
    for incident in found:
        print(f"  {incident.kind} {incident.severity} {list(incident.ranks)} {incident.summary}")


if __name__ == "__main__":
    main()
