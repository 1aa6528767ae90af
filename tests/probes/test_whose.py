"""The marks by which the aggregator knows whose optimizer state a rank goes on with."""

import copy
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from diagd.probes import marks, naming, own_files, resuming
from diagd.probes.box.writer import BoxWriter
from diagd.probes.guard import Probe
from diagd.probes.resuming import RESUMING
from diagd.probes.signals import SIGNALS
from diagd.probes.whose import ENTRIES, WHOSE

Told = list[tuple[str, list[str]]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, recording: BoxWriter) -> Iterator[Told]:
    """What is told while the probe is in place in this process: which fact, and its entries."""
    found: Told = []

    def tell(name: str, text: str, step: int | None = None) -> None:
        if name in ("checkpoint/kept", "checkpoint/given"):
            found.append((name, text.split(",")))

    monkeypatch.setattr(SIGNALS, "fact", tell)
    naming.forget()
    own_files.forget()
    for thing in (RESUMING, WHOSE):
        thing.__init__()  # type: ignore[misc]
    probe = Probe("resuming", 0, True)
    for name in ("torch.serialization", "torch.nn.modules.module", "torch.optim.optimizer"):
        resuming.install(probe, sys.modules[name])
    yield found
    resuming.remove()


def train(*parameters: nn.Parameter, steps: int = 3) -> torch.optim.Adam:
    made = torch.optim.Adam(parameters, lr=0.1)
    for seed in range(steps):
        noise = [torch.randn(p.shape, generator=torch.Generator().manual_seed(seed)) for p in parameters]
        torch.stack([(p * one).sum() for p, one in zip(parameters, noise, strict=True)]).sum().backward()  # type: ignore[no-untyped-call]
        made.step()
    return made


def again(optimizer: torch.optim.Optimizer, kept: dict[str, object], *parameters: nn.Parameter) -> None:
    """Go on with this state, for one step."""
    made = torch.optim.Adam(parameters, lr=0.1)
    made.load_state_dict(copy.deepcopy(kept))  # or its first step would write into what was given
    made.step()


def test_state_that_comes_back_has_the_marks_that_it_was_written_with(told: Told, tmp_path: Path) -> None:
    flat, head = nn.Parameter(torch.randn(30)), nn.Parameter(torch.randn(4, 3))
    made = train(flat, head)
    torch.serialization.save(made.state_dict(), tmp_path / "optim.pt")
    kept = torch.serialization.load(tmp_path / "optim.pt", weights_only=True)
    again(made, kept, flat, head)
    assert [name for name, _ in told] == ["checkpoint/kept", "checkpoint/given"]
    assert told[0][1] == told[1][1]
    assert [entry.partition("=")[0] for entry in told[0][1]] == ["parameter (30;)", "parameter (4; 3)"]
    assert all(re.fullmatch(r".+=[0-9a-f]{8}:[0-9a-f]{8}", entry) for entry in told[0][1])


def test_state_of_others_has_their_marks_and_the_weights_their_own(told: Told) -> None:
    mine, theirs = nn.Parameter(torch.randn(30)), nn.Parameter(torch.randn(30))
    of_theirs = train(theirs, steps=2).state_dict()
    again(train(mine), train(mine).state_dict(), mine)
    again(train(mine), of_theirs, mine)
    (_, first), (_, second) = told
    assert first[0].split(":")[1] != second[0].split(":")[1]
    told.clear()
    again(train(theirs), of_theirs, theirs)
    assert told[0][1][0].split(":")[1] == second[0].split(":")[1]
    assert told[0][1][0].split(":")[0] != second[0].split(":")[0]


def test_what_is_the_same_number_all_over_is_no_mark_and_few_are_told(told: Told, tmp_path: Path) -> None:
    parameters = [nn.Parameter(torch.randn(5, number + 1)) for number in range(ENTRIES + 4)]
    flat = nn.Parameter(torch.zeros(9))
    made = train(*parameters)
    of_ones = torch.optim.Adam([flat], lr=0.1)
    flat.sum().backward()  # type: ignore[no-untyped-call]
    of_ones.step()
    torch.serialization.save({"a": made.state_dict(), "b": of_ones.state_dict()}, tmp_path / "both.pt")
    ((name, entries),) = told
    assert (name, len(entries)) == ("checkpoint/kept", ENTRIES)
    assert not any("(9;)" in entry for entry in entries)


def test_an_optimizer_that_begins_anew_tells_nothing(told: Told) -> None:
    flat = nn.Parameter(torch.randn(30))
    again(train(flat), torch.optim.Adam([flat], lr=0.1).state_dict(), flat)
    assert told == []


def test_an_optimizers_marks_are_taken_only_where_something_waits_for_them(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[object] = []

    def kept_by(optimizer: object) -> marks.Kept:
        taken.append(optimizer)
        return marks.Kept([], [])

    monkeypatch.setattr(marks, "kept_by", kept_by)
    made = torch.optim.Adam([nn.Parameter(torch.randn(30))], lr=0.1)
    resuming._stepping(made)
    assert taken == []
    WHOSE.awaited = True
    resuming._stepping(made)
    assert taken == [made]
