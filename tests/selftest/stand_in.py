"""A Python with torch that is neither: it says that it is, and its jobs do what the test wants."""

from pathlib import Path

SAYS = '{"python": [3, 12, 1], "torch": "9.9"}'


def trainer_at(folder: Path, job: str, says: str = SAYS) -> Path:
    """A program that answers a question, and else runs `job`, a line of shell."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\nif [ \"$1\" = -c ]; then echo '{says}'; else {job}; fi\n", encoding="utf-8")
    path.chmod(0o755)
    return path
