"""Has the ranks of a job tell what their tensors hold after one step, and waits for that."""

import time
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError

import click

from diagd.daemon.cli.jobs import fetch

LOOK_S = 0.25
SAY_S = 5.0
_PATH = "/api/v1/ledger/save"


def of_one_step(address: str, step: int | None, limit_s: float) -> str:
    """Ask, and wait; why it came to nothing, or empty.

    Raises:
        OSError: The job's aggregator does not answer.
        ValueError: It answers something else.
    """
    try:
        began = fetch(address, f"{_PATH}?step={step}" if step is not None else _PATH, method="POST")
    except HTTPError as exc:
        return f"the diagd that watches it knows no such request ({exc.code})"
    deadline_s, said_s, before = time.monotonic() + limit_s, time.monotonic(), ""
    while True:
        now = fetch(address, _PATH)
        if now["number"] != began["number"]:
            return "somebody has asked for the ledger of another step meanwhile"
        if now["phase"] in ("done", "failed"):
            return str(now["why"]) if now["phase"] == "failed" else ""
        if time.monotonic() > deadline_s:
            return f"within {limit_s:g} s {_progress(now)}"
        line = _progress(now)
        if line != before and (not before or time.monotonic() - said_s > SAY_S):
            click.echo(f"diagd: {line}", err=True)
            said_s, before = time.monotonic(), line
        time.sleep(LOOK_S)


def _progress(now: Mapping[str, Any]) -> str:
    if now["phase"] != "asked":
        return f"the ranks could not be asked: {now['why'] or 'they are not reached'}"
    many = f"{now['answered']} of {now['ranks']} ranks have told what they hold after step {now['step']}"
    return f"{many}; the job has made {now['at']}"
