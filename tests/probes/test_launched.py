"""Whether `init_process_group` asks for as many ranks as torchrun has started, in processes of their own."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os
from diagd.probes import launched
launched.SIGNALS.fact = lambda name, text: print(name, text)
os.environ["WORLD_SIZE"] = os.environ.get("LATER", os.environ.get("WORLD_SIZE", ""))
launched.note_world({asked})
"""
RUN = {"TORCHELASTIC_RUN_ID": "x"}


@pytest.mark.parametrize(
    ("asked", "given", "said"),
    [
        (4, {**RUN, "WORLD_SIZE": "2"}, "init/world 4 2"),
        (2, {**RUN, "WORLD_SIZE": "2"}, ""),
        (-1, {**RUN, "WORLD_SIZE": "2"}, ""),  # the script leaves it to the environment
        (None, {**RUN, "WORLD_SIZE": "2", "LATER": "4"}, "init/world 4 2"),  # which it has changed
        (4, {"WORLD_SIZE": "2"}, ""),  # of nodes, maybe
        (4, RUN, ""),
    ],
)
def test_another_number_than_the_launchers_is_told(asked: int | None, given: dict[str, str], said: str) -> None:
    clean = {key: value for key, value in os.environ.items() if key not in ("WORLD_SIZE", "TORCHELASTIC_RUN_ID")}
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(asked=asked)],
        env=clean | given, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert ran.stdout.strip() == said
