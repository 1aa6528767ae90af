"""The README names every kind that can be reported, and no other."""

import re
from pathlib import Path

from diagd.daemon.incidents.catalog import KINDS

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_table_of_kinds_is_the_catalogs() -> None:
    rows = re.findall(r"^\| `([a-z]+\.[a-z0-9_]+)` \|", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(rows) == set(KINDS)
    assert len(rows) == len(KINDS)
