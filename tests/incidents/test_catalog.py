"""What the catalog sends people to look at is there."""

import re
from importlib.resources import files

from diagd.daemon.agent.dump_parts import PARTS


def test_the_files_of_a_dump_are_named_as_they_are() -> None:
    text = files("diagd.daemon.incidents").joinpath("catalog.toml").read_text(encoding="utf-8")
    named = set(re.findall(r"[\w*/]+\.json", text))
    assert named
    assert named <= {f"rank*/{name}.json" for name, _ in PARTS}
