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
print(launched.note({asked}))
"""
RUN = {"TORCHELASTIC_RUN_ID": "x"}


@pytest.mark.parametrize(
    ("asked", "given", "said"),
    [
        ({"world_size": 4}, {**RUN, "WORLD_SIZE": "2"}, "init/world 4 2\nTrue"),
        ({"world_size": 2, "rank": 1}, {**RUN, "WORLD_SIZE": "2", "RANK": "1"}, "True"),
        ({"world_size": 2, "rank": 0}, {**RUN, "WORLD_SIZE": "2", "RANK": "1"}, "init/rank 0 1\nFalse"),
        ({"world_size": -1}, {**RUN, "WORLD_SIZE": "2"}, "True"),  # the script leaves it to the environment,
        ({}, {**RUN, "WORLD_SIZE": "2", "LATER": "4"}, "init/world 4 2\nTrue"),  # which it has changed
        ({"world_size": 4, "rank": 3}, {"WORLD_SIZE": "2", "RANK": "1"}, "True"),  # of nodes, maybe
        ({"world_size": 4}, RUN, "True"),
    ],
)
def test_other_numbers_than_the_launchers_are_told(asked: dict[str, int], given: dict[str, str], said: str) -> None:
    ours = ("WORLD_SIZE", "RANK", "TORCHELASTIC_RUN_ID")
    clean = {key: value for key, value in os.environ.items() if key not in ours}
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(asked=asked)],
        env=clean | given, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert ran.stdout.strip() == said
