"""`diagd scan`: verdicts from what training has logged."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.artifacts import written

from diagd.daemon.analyze import scan as scanning
from diagd.daemon.analyze.scan import Scanned, scan
from diagd.daemon.cli.main import main
from diagd.daemon.errors import DiagdError

Loss = Callable[[int], float]


def noise(step: int) -> float:
    return random.Random(step).gauss(0.0, 1.0)


def healthy(step: int) -> float:
    return 0.4 + 3.0 / (1 + step / 40) * (1 + 0.03 * noise(step))


def spiked(step: int) -> float:
    return healthy(step) * (60 if 150 <= step < 156 else 1)


def diverged(step: int) -> float:
    return healthy(step) if step < 200 else 0.5 * 1.08 ** (step - 200)


def lines(loss: Loss, steps: int = 300) -> str:
    said = (
        f"step {s}/{steps} | loss {loss(s):.4f} | grad_norm {1 + 0.1 * noise(-s):.3f} | lr 3e-4\n" for s in range(steps)
    )
    return "".join(said)


def records(loss: Loss, steps: int = 300) -> str:
    made = ({"step": s, "loss": loss(s), "grad_norm": 1 + 0.1 * noise(-s), "lr": 3e-4} for s in range(steps))
    return "".join(json.dumps(record) + "\n" for record in made)


def table(loss: Loss, steps: int = 300) -> str:
    rows = (f"{s},{loss(s)},{1 + 0.1 * noise(-s)},0.0003\n" for s in range(steps))
    return "step,loss,grad_norm,lr\n" + "".join(rows)


def kinds(found: Scanned) -> set[str]:
    return {i["kind"] for i in found.report["incidents"] if i["peak_severity"] != "info"}


@pytest.mark.parametrize(("name", "write"), [("a.log", lines), ("a.jsonl", records), ("a.csv", table)])
def test_a_loss_that_leaves_is_found_in_a_file_of_any_kind(
    tmp_path: Path, name: str, write: Callable[[Loss], str]
) -> None:
    (tmp_path / name).write_text(write(diverged))
    (found,) = scan([tmp_path / name])
    assert "training.loss_divergence" in kinds(found)
    assert found.faulty
    assert found.report["schema"] == "diagd.report/1"


def test_a_loss_that_leaves_is_found_in_event_files_and_wandb_runs(tmp_path: Path) -> None:
    scalars = [written.event(s, written.scalar("train/loss", diverged(s))) for s in range(300)]
    written.event_file(tmp_path / "events.out.tfevents.1", scalars)
    written.wandb_file(tmp_path / "run-1.wandb", ({"train/loss": diverged(s)} for s in range(300)))
    for name in ("events.out.tfevents.1", "run-1.wandb"):
        (found,) = scan([tmp_path / name])
        assert kinds(found) == {"training.loss_divergence"}


def test_a_spike_that_came_and_went_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(lines(spiked, 600))
    (found,) = scan([tmp_path / "a.log"])
    assert kinds(found) == {"training.loss_spike"}
    (spike,) = (i for i in found.report["incidents"] if i["kind"] == "training.loss_spike")
    assert 150 <= spike["step"] < 156


@pytest.mark.parametrize("steps", [12, 300, 3000])
def test_a_healthy_run_is_nothing_to_speak_of(tmp_path: Path, steps: int) -> None:
    for name, write in (("a.log", lines), ("b.jsonl", records), ("c.csv", table)):
        (tmp_path / name).write_text(write(healthy, steps))
    assert [kinds(found) for found in scan([tmp_path / n for n in ("a.log", "b.jsonl", "c.csv")])] == [set()]


@pytest.mark.parametrize(("steps", "few"), [(12, True), (23, True), (24, False)])
def test_too_few_samples_to_judge_are_said_to_be(tmp_path: Path, steps: int, few: bool) -> None:
    (tmp_path / "a.log").write_text(lines(healthy, steps))
    (found,) = scan([tmp_path / "a.log"])
    assert any("too few for most rules" in note for note in found.report["notes"]) == few


@pytest.mark.parametrize(("more", "said"), [("", True), (" grad_norm 0.4", False)])
def test_what_is_not_judged_without_a_norm_of_gradients_is_said(tmp_path: Path, more: str, said: bool) -> None:
    (tmp_path / "a.log").write_text("".join(f"step {n} loss {2.3 + n % 7 / 1000}{more}\n" for n in range(200)))
    (found,) = scan([tmp_path / "a.log"])
    assert any("stands still, is not judged" in note for note in found.report["notes"]) is said


@pytest.mark.parametrize(("norm", "said", "kind"), [
    (lambda s: 1 + 0.1 * noise(-s), "", ""),
    (lambda s: min(1.0, 1.3 + 0.5 * noise(-s)), "after clipping", ""),
    (lambda s: 1 + 0.1 * noise(-s) if s < 100 else 3000 + 100 * noise(s), "before clipping", ""),
    (lambda s: 1 + 0.1 * noise(-s) if s < 100 else 1e5 + 1e4 * noise(s), "", "numerics.gradient_explosion"),
])  # fmt: skip
def test_logged_norms_are_judged_or_why_they_are_not_is_said(tmp_path: Path, norm: Loss, said: str, kind: str) -> None:
    (tmp_path / "a.csv").write_text(
        "step,loss,grad_norm\n" + "".join(f"{s},{healthy(s)},{norm(s)}\n" for s in range(300))
    )
    (found,) = scan([tmp_path / "a.csv"])
    assert kinds(found) == ({kind} if kind else set())
    notes = [note for note in found.report["notes"] if "clipping" in note]
    assert [said in note for note in notes] == [True] * bool(said)


def test_of_a_long_run_not_all_is_fed_and_what_is_far_off_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "FED", 500)
    (tmp_path / "a.csv").write_text(table(lambda s: healthy(s) * (60 if 2503 <= s < 2508 else 1), 5000))
    fed: list[int] = []
    put = scanning._Feed._put

    def counting(feed: Any, samples: Any) -> None:
        fed.append(len(samples[0, "loss"][0]))
        put(feed, samples)

    monkeypatch.setattr(scanning._Feed, "_put", counting)
    (found,) = scan([tmp_path / "a.csv"])
    assert sum(fed) <= 1000  # every tenth, and the first ones, from which the loss falls
    assert kinds(found) == {"training.loss_spike"}


@pytest.mark.parametrize("write", [lines, records])
def test_a_loss_that_is_no_number_any_more_is_found(tmp_path: Path, write: Callable[[Loss], str]) -> None:
    (tmp_path / "a.log").write_text(write(lambda s: healthy(s) if s < 200 else float("nan")))
    (found,) = scan([tmp_path / "a.log"])
    (nan,) = (i for i in found.report["incidents"] if i["peak_severity"] != "info")
    assert (nan["kind"], nan["step"]) == ("numerics.nonfinite", 200)


def test_dicts_that_a_trainer_prints_without_a_step_are_read_from_the_first_line_on(tmp_path: Path) -> None:
    losses = [3 * 0.98**line if line < 80 else float("nan") for line in range(120)]
    printed = [{"loss": loss, "learning_rate": 5e-05, "epoch": line / 50} for line, loss in enumerate(losses)]
    (tmp_path / "train.log").write_text("\n".join(map(str, printed)))
    (found,) = scan([tmp_path / "train.log"])
    (nan,) = (i for i in found.report["incidents"] if i["peak_severity"] != "info")
    assert nan["kind"] == "numerics.nonfinite"


def test_where_the_log_says_no_step_the_line_is_told_and_never_a_step(tmp_path: Path) -> None:
    said = "".join(f"an hour, {n} minutes\nloss: {3 * 0.98**n if n < 80 else float('nan')}\n" for n in range(120))
    (tmp_path / "a.log").write_text(said)
    (found,) = scan([tmp_path / "a.log"])
    (nan,) = found.report["incidents"]
    assert nan["summary"] == "the loss of rank 0 is nan from line 162 on"  # of the file: every second says a loss
    assert (nan["step"], [e["step"] for cause in nan["causes"] for e in cause["evidence"]]) == (None, [None])
    assert found.report["ranks"][0]["step"] is None
    assert "up to line 240" in found.headline


def test_what_a_line_counts_is_told_as_its_step(tmp_path: Path) -> None:
    said = "".join(f"[{10 * n}/2000] loss: {3 * 0.98**n if n < 80 else float('nan')}\n" for n in range(120))
    (tmp_path / "a.log").write_text(said)
    (found,) = scan([tmp_path / "a.log"])
    assert found.report["incidents"][0]["summary"] == "the loss of rank 0 is nan from step 800 on"
    assert "up to step 1190" in found.headline


def test_a_loss_that_is_printed_as_the_same_again_and_again_may_not_be_it(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(lines(lambda s: 0.01 + 3 * 0.9**s))
    (tmp_path / "b.jsonl").write_text(records(lambda s: max(0.01 + 3 * 0.9**s, 0.5)))
    printed, written_down = scan([tmp_path / "a.log"]), scan([tmp_path / "b.jsonl"])
    assert [kinds(found) for found in printed] == [set()]
    assert [kinds(found) for found in written_down] == [{"training.loss_plateau"}]


@pytest.mark.parametrize(("falls", "state"), [(False, "open"), (True, "resolved")])
def test_a_loss_that_stood_still_and_falls_again_is_over_at_the_end(tmp_path: Path, falls: bool, state: str) -> None:
    def loss(step: int) -> float:
        return 2.3 * (1 + 0.02 * noise(step)) * (0.995 ** max(step - 300, 0) if falls else 1.0)

    (tmp_path / "a.log").write_text(lines(loss, 420))
    (found,) = scan([tmp_path / "a.log"])
    assert [(i["kind"], i["state"]) for i in found.report["incidents"]] == [("training.loss_plateau", state)]
    assert found.report["ranks"][0]["state"] == "running"


def test_a_fine_tuning_that_falls_slowly_is_nothing_to_speak_of(tmp_path: Path) -> None:
    for seed in range(4):
        path = tmp_path / f"{seed}.log"
        path.write_text(lines(lambda s: 1.1 - 0.0008 * s + 0.05 * noise(s + 1000 * seed), 200))  # noqa: B023
        (found,) = scan([path])
        assert found.report["incidents"] == []


def test_two_runs_in_one_file_are_judged_by_themselves(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(records(healthy) + records(diverged))
    one, two = scan([tmp_path / "a.jsonl"])
    assert (kinds(one), kinds(two)) == (set(), {"training.loss_divergence"})
    assert two.report["job"]["id"] == "a.jsonl (run 2 of 2)"


def test_each_run_of_a_folder_has_a_report(tmp_path: Path) -> None:
    for name, loss in (("one", healthy), ("two", diverged)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "m.jsonl").write_text(records(loss))
    assert [(found.report["job"]["id"], found.faulty) for found in scan([tmp_path])] == [
        ("m.jsonl", False),
        ("m.jsonl", True),
    ]


def test_the_users_own_names_count(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(records(diverged).replace('"loss"', '"badness"'))
    assert [kinds(found) for found in scan([tmp_path])] == [set()]
    assert [kinds(found) for found in scan([tmp_path], names={"badness": "loss"})] == [{"training.loss_divergence"}]


def test_nothing_to_scan_is_an_error_that_says_what_would_be(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("hello\n")
    with pytest.raises(DiagdError, match="holds no metrics") as wrong:
        scan([tmp_path / "a.log"])
    assert "event file" in wrong.value.help
    (tmp_path / "train.py").write_text("loss = 3\nlr = 0.1\n")
    with pytest.raises(DiagdError, match="holds no metrics") as program:
        scan([tmp_path / "train.py"])
    assert "no log" in program.value.help
    with pytest.raises(DiagdError, match="no such file"):
        scan([tmp_path / "none"])


def test_progress_is_told_up_to_the_end(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(lines(healthy))
    told: list[tuple[int, int]] = []
    scan([tmp_path], progress=lambda done, of: told.append((done, of)))
    size = (tmp_path / "a.log").stat().st_size
    assert told[-1] == (size, size)
    assert told == sorted(told)


def test_the_command_says_what_it_found_by_its_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad, cut = tmp_path / "good.log", tmp_path / "bad.log", tmp_path / "events.out.tfevents.1"
    good.write_text(lines(healthy))
    bad.write_text(lines(diverged))
    written.event_file(cut, [written.event(s, written.scalar("loss", healthy(s))) for s in range(300)])
    cut.write_bytes(cut.read_bytes()[:-3])
    assert [main(["scan", str(path)]) for path in (good, bad, cut, tmp_path / "none")] == [0, 1, 3, 2]
    said = capsys.readouterr()
    assert "good.log: 3 metrics up to step 299 of rank 0: no fault found." in said.out
    assert "training.loss_divergence" in said.out
    assert "events.out.tfevents.1 is cut off" in said.out
    assert "no such file" in said.err


def test_the_report_is_printed_or_written_for_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a.csv", "b.csv"):
        (tmp_path / "in" / name).write_text(table(diverged))
    assert main(["scan", str(tmp_path / "in"), "--json"]) == 2
    assert "a.csv, b.csv" in capsys.readouterr().err
    command = ["scan", str(tmp_path / "in"), "--json", "--job", "b.csv", "--report", str(tmp_path / "out")]
    assert main(command) == 1
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((tmp_path / "out/report.json").read_text())
    assert report["job"]["id"] == "b.csv"
    assert "loss" in (tmp_path / "out/report.html").read_text()


@pytest.mark.parametrize(
    ("loss", "found"),
    [
        (lambda s: 2.3026, ["training.loss_plateau"]),
        (lambda s: 2.3026 if s else 2.3031, []),  # it has moved
        (lambda s: 0.0, []),  # cancelled, or fully fitted
        (lambda s: 0.0012, []),  # written too coarsely
        (lambda s: 2.3026 * (1 + 0.001 * noise(s)), []),  # without a norm its noise says nothing
    ],
)
def test_a_loss_that_no_sample_has_moved_is_told_also_without_a_norm(
    tmp_path: Path, loss: Loss, found: list[str]
) -> None:
    (tmp_path / "a.log").write_text("".join(f"iter {s}: loss={loss(s):.4f}\n" for s in range(150)))
    (one,) = scan([tmp_path / "a.log"])
    assert [i["kind"] for i in one.report["incidents"]] == found
    assert one.faulty is bool(found)
