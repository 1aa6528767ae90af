"""Has the ranks of a job tell what their tensors hold after one step, and waits for that."""

import time
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError

import click

from diagd.daemon.cli.jobs import fetch

LOOK_S = 0.25
SAY_S = 5.0
_PATH, _AT_START = "/api/v1/ledger/save", "/api/v1/ledger/start"
_NOT_STARTED_SO = "it was not started with `diagd run --ledger-at-start`"


def path_of(step: int | None) -> str:
    """Where the ledger is: that of what ranks began with is kept beside the last one that was asked for."""
    return _AT_START if step == 0 else "/api/v1/ledger"


def of_one_step(address: str, step: int | None, limit_s: float) -> str:
    """Ask, and wait; why it came to nothing, or empty. Step 0 is what ranks have told by themselves.

    Raises:
        OSError: The job's aggregator does not answer.
        ValueError: It answers something else.
    """
    path = _AT_START if step == 0 else _PATH
    try:
        began = _ask(address, step)
    except HTTPError as exc:
        return f"the diagd that watches it knows no such request ({exc.code})"
    deadline_s, said_s, asked = time.monotonic() + limit_s, time.monotonic(), False
    while True:
        now = fetch(address, path, timeout_s=60.0)
        if now["number"] != began["number"]:
            return "somebody has asked for the ledger of another step meanwhile"
        if now["phase"] in ("done", "failed"):
            return _why(now, step) if now["phase"] == "failed" else ""
        if time.monotonic() > deadline_s:
            return f"within {limit_s:g} s {_progress(now, step)}"
        begins, asked = not asked and now["phase"] == "asked", now["phase"] == "asked"
        if begins or time.monotonic() - said_s > SAY_S:
            click.echo(f"diagd: {_progress(now, step)}", err=True)
            said_s = time.monotonic()
        time.sleep(LOOK_S)


def _ask(address: str, step: int | None) -> Any:
    if step == 0:
        return fetch(address, _AT_START, timeout_s=60.0)
    return fetch(address, f"{_PATH}?step={step}" if step is not None else _PATH, method="POST")


def _why(now: Mapping[str, Any], step: int | None) -> str:
    return f"{now['why']}: {_NOT_STARTED_SO}" if step == 0 else str(now["why"])


def _progress(now: Mapping[str, Any], step: int | None) -> str:
    if step == 0:
        return str(now["why"])
    if now["phase"] != "asked":
        return f"the ranks could not be asked yet: {now['why'] or 'their agents are not connected'}"
    many = f"{now['answered']} of {now['ranks']} ranks have told what they hold after step {now['step']}"
    return f"{many}; the job has made {now['at']}"
