"""Losses in logs that are NaN or infinite: on held-out data, such as came and went, such as a restart undid."""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.analyze.test_scan import healthy

from diagd.daemon.analyze.scan import Scanned, scan

NAN = math.nan


def scanned(folder: Path, lines: Iterable[str], name: str = "a.log") -> Scanned:
    (folder / name).write_text("".join(f"{line}\n" for line in lines))
    (found,) = scan([folder / name])
    return found


def nonfinite(found: Scanned) -> list[dict[str, Any]]:
    return [i for i in found.report["incidents"] if i["kind"] == "numerics.nonfinite"]


@pytest.mark.parametrize("name", ["val_loss", "eval/loss", "valid_ce_loss"])
@pytest.mark.parametrize("begins", [0, 20])
def test_a_held_out_loss_that_is_nan_is_told_by_its_name(tmp_path: Path, name: str, begins: int) -> None:
    found = scanned(
        tmp_path,
        (f"step {s} train_loss {healthy(s):.4f} {name} {healthy(s) if s < begins else NAN}" for s in range(60)),
    )
    (told,) = nonfinite(found)
    assert (told["names"], told["step"], told["state"]) == ([name], begins, "open")
    assert found.faulty
    assert "nan" in told["summary"]


def test_a_term_of_the_loss_that_is_nan_is_told_though_the_loss_is_finite(tmp_path: Path) -> None:
    found = scanned(
        tmp_path, (f"step {s} loss {healthy(s):.4f} depth_loss {0.3 if s < 90 else NAN}" for s in range(100))
    )
    (told,) = nonfinite(found)
    assert told["names"] == ["depth_loss"]
    assert told["step"] == 90


def test_what_follows_from_a_loss_that_is_nan_is_not_told_beside_it(tmp_path: Path) -> None:
    found = scanned(
        tmp_path,
        (f"step {s} loss {healthy(s) if s < 50 else NAN} val_loss {healthy(s) if s < 60 else NAN}" for s in range(100)),
    )
    assert len(nonfinite(found)) == 1


@pytest.mark.parametrize("every", [2, 5, 20])
@pytest.mark.parametrize("name", ["val_loss", "aux_loss"])
def test_nan_where_nothing_is_measured_is_none(tmp_path: Path, every: int, name: str) -> None:
    rows = (f"{s},{healthy(s)},{healthy(s) if s % every == 0 else NAN}" for s in range(203))
    found = scanned(tmp_path, [f"step,loss,{name}", *rows], "a.csv")
    assert not nonfinite(found)


@pytest.mark.parametrize(("count", "severity"), [(1, "info"), (2, "warning"), (10, "warning")])
@pytest.mark.parametrize("at", [37, 64, 100])  # wherever the judgements fall
def test_a_run_of_nan_that_ends_by_itself_was_a_fault(tmp_path: Path, count: int, severity: str, at: int) -> None:
    found = scanned(tmp_path, (f"step {s} loss {NAN if at <= s < at + count else healthy(s):.4f}" for s in range(200)))
    (told,) = nonfinite(found)
    assert told["state"] == "resolved"
    if severity == "info" or count == 2:
        assert told["peak_severity"] == severity
    assert found.faulty is (severity != "info")
    assert told["step"] == at


@pytest.mark.parametrize("back", [30, 60, 85])
@pytest.mark.parametrize("count", [1, 3, 20])
def test_a_nan_that_a_restart_undid_is_told_as_over(tmp_path: Path, back: int, count: int) -> None:
    first = [f"step {s} loss {healthy(s):.4f}" for s in range(90)] + [f"step {90 + s} loss nan" for s in range(count)]
    found = scanned(tmp_path, [*first, *(f"step {s} loss {healthy(s):.4f}" for s in range(back, 200))])
    (told,) = nonfinite(found)
    assert (told["state"], told["step"]) == ("resolved", 90)
    assert found.faulty


@pytest.mark.parametrize("ends", [True, False])
def test_a_nan_in_what_a_restart_repeats_is_told(tmp_path: Path, ends: bool) -> None:
    first = [f"step {s} loss {healthy(s):.4f}" for s in range(100)]
    again = [f"step {s} loss {healthy(s) if s < 60 else NAN:.4f}" for s in range(50, 80)]
    rest = [] if ends else [f"step {s} loss {healthy(s):.4f}" for s in range(80, 150)]
    found = scanned(tmp_path, [*first, *again, *rest])
    (told,) = nonfinite(found)
    assert (told["state"], told["step"]) == ("open" if ends else "resolved", 60)


def test_a_log_that_ends_at_its_first_nan_is_faulty(tmp_path: Path) -> None:
    found = scanned(tmp_path, [*(f"step {s} loss {healthy(s):.4f}" for s in range(80)), "step 80 loss nan"])
    (told,) = nonfinite(found)
    assert (told["state"], told["peak_severity"], told["step"]) == ("open", "warning", 80)


def test_of_several_losses_at_one_step_the_one_that_is_nan_is_said_to_be(tmp_path: Path) -> None:
    losses = ((e, healthy(e) if (e, b) <= (50, 0) else NAN) for e in range(60) for b in range(3))
    (told,) = nonfinite(scanned(tmp_path, (f"step {e} loss {loss:.4f}" for e, loss in losses)))
    assert "is nan" in told["summary"]


def test_the_step_of_a_nan_is_counted_over_epochs_and_batches(tmp_path: Path) -> None:
    losses = ((e, b, healthy(b) if e < 5 else NAN) for e in range(10) for b in range(0, 100, 5))
    found = scanned(tmp_path, (f"[{e}/10][{b}/100]\tLoss_D: {1 + v:.4f}\tLoss_G: {2 + v:.4f}" for e, b, v in losses))
    (told,) = nonfinite(found)
    assert told["step"] == 500


@pytest.mark.parametrize(("norm", "loss", "said"), [
    (NAN, 0.0, "0 in its place"), (math.inf, NAN, "an overflow"), (NAN, NAN, "was not finite"),
])  # fmt: skip
def test_why_gradients_are_not_finite_is_said_as_far_as_a_log_tells(
    tmp_path: Path, norm: float, loss: float, said: str
) -> None:
    rows = [f"step {s} loss {healthy(s)} grad_norm {1.0 if s < 59 else norm}" for s in range(60)]
    rows += [f"step {s} loss {loss} grad_norm {norm}" for s in range(60, 90)]
    (told,) = nonfinite(scanned(tmp_path, rows))
    (why,) = told["causes"]
    assert said in why["cause"]
    assert why["confidence"] <= 0.7


@pytest.mark.parametrize("piece_bytes", [8 << 20, 1500])
@pytest.mark.parametrize(("nulls", "said"), [(range(60, 100), 40), (range(99, 100), 0), (range(20, 60), 0), ((), 0)])
def test_records_without_a_loss_at_the_end_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int, nulls: Iterable[int], said: int
) -> None:
    monkeypatch.setattr("diagd.daemon.artifacts.reading.PIECE_BYTES", piece_bytes)
    records = ({"step": s, "loss": None if s in nulls else healthy(s), "val_loss": None} for s in range(100))
    found = scanned(tmp_path, map(json.dumps, records), "a.jsonl")
    notes = [note for note in found.report["notes"] if "null" in note]
    assert [f"the last {said} records of a.jsonl have no loss" in note for note in notes] == [True] * bool(said)
