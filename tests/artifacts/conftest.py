"""These are functions of values: they start nothing, so nothing need be looked for after each test."""

import pytest


@pytest.fixture(autouse=True)
def _nothing_is_left_running() -> None:
    """Stands in for the search of the process table that costs more than these tests."""
