"""Files of every kind as columns of metrics, also broken ones."""

import gzip
import json
import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from tests.artifacts import written

from diagd.daemon.artifacts import reading
from diagd.daemon.artifacts.columns import Piece
from diagd.daemon.artifacts.merging import Notes, merged
from diagd.daemon.artifacts.reading import Reading
from diagd.daemon.artifacts.sources import RunFiles, runs_of
from diagd.daemon.artifacts.stepping import Stepping
from diagd.daemon.artifacts.text import read_log

Series = dict[tuple[int, int, str], list[tuple[int, float]]]  # run, rank, metric -> step, value


def read(run: RunFiles) -> tuple[Series, Notes]:
    notes, found = Notes(), Series()
    with Reading(run.size) as using:
        for stretch in merged(run.streams, using, notes, lambda count: None):
            for (rank, name), (steps, values) in stretch.samples.items():
                pairs = zip(steps.tolist(), values.tolist(), strict=True)
                found.setdefault((stretch.run, rank, name), []).extend(pairs)
    return found, notes


def only(path: Path) -> tuple[Series, Notes]:
    (run,), problems = runs_of([path])
    assert problems == {}
    return read(run)


def test_a_log_a_json_and_a_csv_say_the_same(tmp_path: Path) -> None:
    steps = range(5)
    (tmp_path / "a.log").write_text("".join(f"INFO step {s} loss {s / 2}\n" for s in steps))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"step": s, "loss": s / 2}) + "\n" for s in steps))
    (tmp_path / "a.csv").write_text("step,loss\n" + "".join(f"{s},{s / 2}\n" for s in steps))
    wanted = {(0, 0, "loss"): [(s, s / 2) for s in steps]}
    assert [only(tmp_path / name)[0] for name in ("a.log", "a.jsonl", "a.csv")] == [wanted] * 3


def test_an_event_file_is_read_with_scalars_of_both_forms(tmp_path: Path) -> None:
    events = [written.event(s, written.scalar("loss/train", s / 2), written.tensor("lr", 0.5)) for s in range(3)]
    path = written.event_file(
        tmp_path / "events.out.tfevents.1.host.1.0", [*events, written.event(3, written.histogram("h"))]
    )
    found, notes = only(path)
    assert found == {(0, 0, "loss/train"): [(0, 0.0), (1, 0.5), (2, 1.0)], (0, 0, "lr"): [(0, 0.5), (1, 0.5), (2, 0.5)]}
    assert notes.lines() == []


def test_an_event_file_that_is_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    path = written.event_file(
        tmp_path / "events.out.tfevents.1", [written.event(s, written.scalar("loss", s)) for s in range(9)]
    )
    path.write_bytes(path.read_bytes()[:-5])
    found, notes = only(path)
    assert [step for step, _ in found[0, 0, "loss"]] == list(range(8))
    assert notes.lines() == ["events.out.tfevents.1 is cut off"]


def test_event_files_of_restarts_follow_one_another(tmp_path: Path) -> None:
    for number, steps in ((1, range(50)), (2, range(40, 60))):
        events = [written.event(s, written.scalar("loss", number)) for s in steps]
        written.event_file(tmp_path / f"events.out.tfevents.{number}.host", events)
    found, notes = only(tmp_path)
    assert [step for step, _ in found[0, 0, "loss"]] == [*range(50), *range(49, 60)]  # the last one again, and on
    assert any("a restart" in line for line in notes.lines())


def test_a_wandb_run_is_read_over_the_ends_of_its_blocks(tmp_path: Path) -> None:
    history = [{"train/loss": s / 2, "_timestamp": 1.7e9, "note": "x" * 900, "_step": s} for s in range(100)]
    found, _ = only(written.wandb_file(tmp_path / "run-1.wandb", history))
    assert found == {(0, 0, "train/loss"): [(s, s / 2) for s in range(100)]}


def test_a_trainers_state_is_read_and_of_several_the_last(tmp_path: Path) -> None:
    for folder, last in (("checkpoint-10", 10), ("checkpoint-20", 20)):
        (tmp_path / folder).mkdir()
        history = [{"loss": 0.5, "epoch": s / 10, "step": s} for s in range(1, last + 1)]
        state = {"best_metric": None, "log_history": [*history, {"eval_loss": 0.7, "step": last}]}
        (tmp_path / folder / "trainer_state.json").write_text(json.dumps(state))
    (run,), _ = runs_of([tmp_path])
    found, _ = read(run)
    assert [step for step, _ in found[0, 0, "loss"]] == list(range(1, 21))
    assert found[0, 0, "eval_loss"] == [(20, 0.7)]


def test_what_is_broken_in_between_is_passed_over_and_said(tmp_path: Path) -> None:
    lines = [
        '{"step": 1, "loss": 0.5}',
        '{"step": 2, "lo',
        "null",
        "",
        "text",
        '{"step": 3, "loss": NaN, "big": 1%s}' % ("0" * 400),
    ]
    (tmp_path / "m.jsonl").write_bytes("\n".join(lines).encode() + b'\n\xff\xfe\n{"step": 4, "loss": 0.25')
    found, notes = only(tmp_path / "m.jsonl")
    assert [step for step, _ in found[0, 0, "loss"]] == [1, 3]
    assert math.isnan(found[0, 0, "loss"][1][1])
    assert found[0, 0, "big"] == [(3, math.inf)]
    assert notes.lines() == ["lines of m.jsonl that were passed over: 5 no JSON object"]


def test_a_csv_with_words_gaps_and_a_header_in_between_is_read(tmp_path: Path) -> None:
    text = 'step,loss,note\n1,0.5,"a, b"\n2,,x\nstep,loss,note\n3,inf,y\n4,0.25\n'
    (tmp_path / "m.csv").write_text("\ufeff" + text)
    found, notes = only(tmp_path / "m.csv")
    assert found == {(0, 0, "loss"): [(1, 0.5), (3, math.inf)]}
    assert notes.lines() == ["lines of m.csv that were passed over: 1 other columns than the header's"]


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "utf-8-sig"])
def test_logs_in_other_encodings_are_read(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.log").write_bytes("".join(f"é step {s} loss {s}.5\r\n" for s in range(3)).encode(encoding))
    found, _ = only(tmp_path / "a.log")
    assert found == {(0, 0, "loss"): [(s, s + 0.5) for s in range(3)]}


def test_compressed_and_rotated_logs_are_one_run(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.log.2.gz", "wt") as file:
        file.write("step 1 loss 1.0\n")
    (tmp_path / "a.log.1").write_text("step 2 loss 2.0\n")
    (tmp_path / "a.log").write_text("step 3 loss 3.0\n")
    found, _ = only(tmp_path)
    assert found == {(0, 0, "loss"): [(1, 1.0), (2, 2.0), (3, 3.0)]}


@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: data[:200_000] + b"xxxx" + data[200_004:]]
)
def test_a_compressed_log_that_is_cut_off_or_damaged_is_read_as_far_as_it_goes(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    text = "".join(f"step {step} loss {step * 7919 % 10_007}.{step * 104_729 % 10_007}\n" for step in range(60_000))
    (tmp_path / "a.log.gz").write_bytes(damage(gzip.compress(text.encode())))
    found, notes = only(tmp_path / "a.log.gz")
    assert [Path(name).name for name in notes.broken] == ["a.log.gz"]
    assert any(values for values in found.values())


def test_a_table_with_decimal_commas_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("step;loss\n1;2,25\n2;1,5\n")
    found, _ = only(tmp_path / "a.csv")
    assert found == {(0, 0, "loss"): [(1, 2.25), (2, 1.5)]}


def test_tables_of_one_form_are_told_apart_by_their_headers(tmp_path: Path) -> None:
    rows = "".join(
        f"| epoch | loss |\n| {n} | 0.{n} |\n| epoch | val loss |\n| {n} | 0.{n + 1} |\n" for n in range(1, 9)
    )
    (tmp_path / "a.log").write_text(rows)
    found, _ = only(tmp_path / "a.log")
    assert [value for _, value in found[0, 0, "loss"]] == [n / 10 for n in range(1, 9)]
    assert [value for _, value in found[0, 0, "val loss"]] == [float(f"0.{n + 1}") for n in range(1, 9)]


def test_what_is_no_text_is_no_log(tmp_path: Path) -> None:
    numbers = bytes(n * 7919 % 251 for n in range(5000))
    (tmp_path / "core.log").write_bytes(numbers)
    assert runs_of([tmp_path / "core.log"]) == ([], {})


def test_progress_bars_and_colours_are_read(tmp_path: Path) -> None:
    bars = "".join(
        f"\r {s * 10}%|{'█' * s}  | {s}/9 [00:01<00:02, 3.1it/s, loss={s}.5]" for s in range(4) for _ in range(3)
    )
    (tmp_path / "a.log").write_text(f"\x1b[1mstart\x1b[0m{bars}\n")
    found, _ = only(tmp_path / "a.log")
    assert found[0, 0, "loss"] == [(0, 0.5), (1, 1.5), (2, 2.5), (3, 3.5)]


COUNTS: dict[str, Callable[[int], str]] = {
    "brackets": lambda s: f"[{s}/900] loss: {s}.5",
    "a bar": lambda s: f" {s}%|##  | {s}/900 [00:01<00:02, 3.1it/s, loss={s}.5]",
    "a bar without an end": lambda s: f"{s}it [00:01, 3.1it/s, loss={s}.5]",
    "keras": lambda s: f"{s}/900 [====>....] - 1s 2ms/step - loss: {s}.5",
    "batch": lambda s: f"batch {s} | loss {s}.5",
    "batch of": lambda s: f"Batch {s}/900, Loss: {s}.5",
}


@pytest.mark.parametrize("form", COUNTS)
def test_what_lines_count_is_their_step_where_none_is_said(tmp_path: Path, form: str) -> None:
    steps = range(20, 420, 20)
    (tmp_path / "a.log").write_text("".join(f"hello\n{COUNTS[form](s)}\n" for s in steps))
    found, _ = only(tmp_path / "a.log")
    assert next(found[key] for key in found if key[2].lower() == "loss") == [(s, s + 0.5) for s in steps]


@pytest.mark.parametrize("line", [
    "Epoch [{e}][{b}/90] loss: {v}", "Epoch: [{e}]  [ {b}/90]  eta: 0:01  loss: {v} (0.5)",
    "Epoch {e}:  10%|##  | {b}/90 [00:01<00:02, 3.1it/s, loss={v}]", "Epoch [{e}/9], Step [{b}/90], loss: {v}",
    "Epoch {e} Batch {b}/90 loss {v}", "Epoch {e} Batch [{b}/90] loss {v}",
])  # fmt: skip
@pytest.mark.parametrize(("first", "before"), [(0, 0), (1, 0), (3, 180)])
def test_batches_of_epochs_are_steps_of_the_run(tmp_path: Path, line: str, first: int, before: int) -> None:
    """Batches 0, 40 and 80 of 90 are printed: the next epoch begins at 90, whatever is printed of the last one."""
    told = [(e, b) for e in range(first, first + 3) for b in (0, 40, 80)]
    (tmp_path / "a.log").write_text("".join(line.format(e=e, b=b, v=f"{e}.{b}") + "\n" for e, b in told))
    found, notes = only(tmp_path / "a.log")
    assert [step for step, _ in found[0, 0, "loss"]] == [before + (e - first) * 90 + b for e, b in told]
    assert any("as if epochs began with 1" in note for note in notes.lines()) is (first == 3)


def test_a_count_up_to_the_end_of_the_run_goes_on_over_its_epochs(tmp_path: Path) -> None:
    told = [(2, 100), (2, 140), (3, 180), (3, 220)]
    (tmp_path / "a.log").write_text("".join(f"Epoch [{e}][{b}/900] loss: 0.{b}\n" for e, b in told))
    assert [step for step, _ in only(tmp_path / "a.log")[0][0, 0, "loss"]] == [100, 140, 180, 220]


def test_a_count_is_no_step_where_steps_are_said_or_it_never_moves(tmp_path: Path) -> None:
    both = "".join(f"step {s} loss {s}.5\n[{s % 7}/7] loss: {s}.25\n" for s in range(10, 40))
    (tmp_path / "a.log").write_text(both)
    found, _ = only(tmp_path / "a.log")
    assert {step for step, _ in found[0, 0, "loss"]} == set(range(10, 40))
    (tmp_path / "b.log").write_text("".join(f"batch 32 loss {s}.5\n" for s in range(10)))
    assert [step for step, _ in only(tmp_path / "b.log")[0][0, 0, "loss"]] == list(range(1, 11))


def test_ranks_are_told_by_folder_name_field_and_prefix(tmp_path: Path) -> None:
    for rank in (0, 1):
        folder = tmp_path / "torchrun/attempt_0" / str(rank)
        folder.mkdir(parents=True)
        (folder / "stdout.log").write_text(f"step 1 loss {rank}.5\n")
        (tmp_path / "named").mkdir(exist_ok=True)
        (tmp_path / f"named/rank_{rank}.jsonl").write_text(json.dumps({"step": 1, "loss": rank + 0.5}) + "\n")
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed/a.log").write_text("[rank0]: step 1 loss 0.5\n[rank1]: step 1 loss 1.5\n")
    (tmp_path / "mixed/b.log").write_text("")
    wanted = {(0, 0, "loss"): [(1, 0.5)], (0, 1, "loss"): [(1, 1.5)]}
    assert only(tmp_path / "torchrun")[0] == wanted
    assert only(tmp_path / "named")[0] == wanted
    assert only(tmp_path / "mixed/a.log")[0] == wanted


@pytest.mark.parametrize(
    "line",
    [
        "rank {} step {} loss {}", "Rank {}: step {} loss {}", "[rank {}] step {} loss {}", "rank={} step={} loss={}",
        "RANK {} | step: {} | loss: {}", "2026-11-30 12:00:00,123 INFO [Rank {}/2] step {} loss {}",
        "[INFO] <global_rank {}> step {} loss {}", "  rank {}, step {}, loss {}", "GPU{}: step {} loss {}",
        "[gpu {}] step {} loss {}",
    ],
)  # fmt: skip
def test_the_rank_in_front_of_a_line_is_whose_it_is(line: str, tmp_path: Path) -> None:
    text = "".join(line.format(rank, step, f"{step}.{rank}") + "\n" for step in range(9) for rank in (0, 1))
    (tmp_path / "a.log").write_text(text)
    found, _ = only(tmp_path / "a.log")
    assert found == {(0, rank, "loss"): [(s, s + rank / 10) for s in range(9)] for rank in (0, 1)}


def test_what_diagd_has_said_in_a_log_is_no_metric_of_the_job(tmp_path: Path) -> None:
    lines = "".join(f"step {step} loss {step}.5\n" for step in range(9))
    own = (
        "diagd: critical numerics.nonfinite: the loss of rank 1 is nan from step 4 on\n"
        "       because   the batch holds such values already [loss nan (signals); loss 2.293 (signals)]\n"
        "  25        where     rank 1 in main, train.py:25 step 7 loss 9.0\n"
    )
    (tmp_path / "a.log").write_text(lines + own * 8)
    assert only(tmp_path / "a.log")[0] == {(0, 0, "loss"): [(step, step + 0.5) for step in range(9)]}


@pytest.mark.parametrize(
    "line", ["step 1 rank {} loss 0.5", "lora rank {} loss 0.5", "rank {}.5 loss 0.5", "franks {} loss 0.5"]
)
def test_a_rank_that_is_spoken_of_elsewhere_is_not_whose_the_line_is(line: str, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("".join(line.format(3) + "\n" for _ in range(9)))
    assert {rank for _, rank, _ in only(tmp_path / "a.log")[0]} == {0}


def test_files_that_belong_together_are_one_run_and_the_exact_one_counts(tmp_path: Path) -> None:
    (tmp_path / "out.log").write_text("".join(f"step {s} loss {s}.1 mfu 0.5\n" for s in range(3)))
    (tmp_path / "metrics.jsonl").write_text(
        "".join(json.dumps({"step": s, "loss": s + 0.125}) + "\n" for s in range(3))
    )
    found, _ = only(tmp_path)
    assert found == {
        (0, 0, "loss"): [(s, s + 0.125) for s in range(3)], (0, 0, "mfu"): [(s, 0.5) for s in range(3)],
    }  # fmt: skip


def test_files_of_one_kind_are_runs_of_their_own_and_other_files_none(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("step,loss\n1,0.5\n")
    (tmp_path / "config.json").write_text('{"lr": 0.1}')
    (tmp_path / "model.pt").write_bytes(b"step 1 loss 2\n")
    runs, _ = runs_of([tmp_path])
    assert [run.name for run in runs] == ["a.csv", "b.csv"]


def test_a_file_that_is_named_is_read_whatever_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "slurm-4711").write_text("step 1 loss 0.5\n")
    (tmp_path / "records").write_text('{"step": 1, "loss": 0.5}\n')
    for name in ("slurm-4711", "records"):
        assert only(tmp_path / name)[0] == {(0, 0, "loss"): [(1, 0.5)]}


def test_large_files_are_read_in_pieces_that_lose_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PIECE_BYTES", 97)
    (tmp_path / "a.log").write_text("".join(f"step {s} loss {s}.25 {'x' * (s % 60)}\n" for s in range(200)))
    found, _ = only(tmp_path / "a.log")
    assert found[0, 0, "loss"] == [(s, s + 0.25) for s in range(200)]


def test_several_processes_keep_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MANY_BYTES", 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    path = tmp_path / "a.csv"
    with path.open("w") as file:
        file.write("step,loss\n")
        file.writelines(f"{step},{step}.25\n" for step in range(1_200_000))
    assert path.stat().st_size > 2 * reading.PIECE_BYTES
    found, _ = only(path)
    assert [step for step, _ in found[0, 0, "loss"]] == list(range(1_200_000))


def stepped(lines: Iterable[str], piece_of: int = 7) -> tuple[dict[tuple[int, str], list[int]], list[str]]:
    stepping, found, every = Stepping(), dict[tuple[int, str], list[int]](), list(lines)
    for begin in range(0, len(every), piece_of):
        piece = Piece()
        read_log(every[begin : begin + piece_of], 0, piece)
        for stretch in stepping.stretches(piece):
            for (_, name), (steps, _) in stretch.samples.items():
                found.setdefault((stretch.run, name), []).extend(steps.tolist())
    return found, stepping.notes


def test_counters_that_begin_anew_with_each_epoch_are_continued() -> None:
    found, _ = stepped(f"epoch {e} step {s * 10} loss {5 - e}" for e in range(3) for s in range(10))
    assert found[0, "loss"] == list(range(0, 300, 10))


@pytest.mark.parametrize("form", ["[{e}/4][{b}/50] loss {v}", "({e}/4) [{b} / 50]\tloss: {v}"])
def test_batches_that_are_counted_within_epochs_are_one_count(form: str) -> None:
    found, _ = stepped(form.format(e=e, b=b, v=5 - e - b / 50) for e in range(4) for b in range(0, 50, 5))
    assert found[0, "loss"] == list(range(0, 200, 5))


def test_a_loss_that_goes_on_is_the_same_run_and_one_that_begins_anew_is_another() -> None:
    goes_on, _ = stepped(f"step {s} loss {5 - (e * 10 + s) / 10}" for e in range(3) for s in range(10))
    anew, _ = stepped(f"step {s} loss {5 - s / 10}" for e in range(2) for s in range(30))
    assert goes_on == {(0, "loss"): list(range(30))}
    assert anew == {(0, "loss"): list(range(30)), (1, "loss"): list(range(30))}


def test_steps_that_a_restart_repeats_are_left_out_and_said() -> None:
    lines = [f"step {s} loss {5 - s / 10}" for s in (*range(30), *range(20, 45))]
    found, notes = stepped(lines)
    assert sorted(set(found[0, "loss"])) == list(range(45))
    assert len(found[0, "loss"]) <= 46
    assert notes == ["goes back from step 29 to 20: a restart; what it repeats is left out"]


def test_metrics_without_a_step_stand_where_the_leading_one_is() -> None:
    lines = [f"step {s} loss 1.{s}" + ("\nval_acc 0.5" if s % 5 == 4 else "") for s in range(20)]
    assert stepped("\n".join(lines).split("\n"))[0][0, "val_acc"] == [4, 9, 14, 19]


def test_without_any_step_samples_are_counted() -> None:
    assert stepped([f"loss {s}.5" for s in range(20)])[0] == {(0, "loss"): list(range(1, 21))}


def test_a_dump_that_lies_beside_the_logs_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("step 1 loss 2.0\nstep 2 loss 1.0\n")
    dump = tmp_path / "dumps" / "001-ab"
    (dump / "rank0").mkdir(parents=True)
    for name in ("summary.txt", "summary.json", "rank0/stacks.txt"):
        (dump / name).write_text("step 1 loss 3.0\n")
    (tmp_path / "summary.txt").write_text("step 1 loss 4.0\nstep 2 loss 3.0\n")  # of the script's own
    runs, problems = runs_of([tmp_path])
    assert problems == {}
    told = sorted(source.path.name for run in runs for stream in run.streams for source in stream)
    assert told == ["summary.txt", "train.log"]


@pytest.mark.parametrize(("epochs", "steps"), [
    ([0, 1, 2, 3], [0, 1, 2, 3]), ([3, 4, 6, 7], [3, 4, 6, 7]), ([1, 1, 2, 2], [1, 2, 3, 4]),
    ([3, 2, 1, 0], [1, 2, 3, 4]),
])  # fmt: skip
def test_where_lines_say_their_epoch_and_no_step_that_is_the_step(
    tmp_path: Path, epochs: list[int], steps: list[int]
) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(f"INFO epoch {n}: train_loss=0.5 val_loss={1 + n / 8}\n" for n in epochs))
    series, _ = only(log)
    assert [step for step, _ in series[0, 0, "val_loss"]] == steps


def test_of_a_small_compressed_log_that_is_cut_off_all_before_that_is_read(tmp_path: Path) -> None:
    text = "".join(f"step {step} loss={1 / (step + 1):.6f}\n" for step in range(400))
    whole = gzip.compress(text.encode())
    (tmp_path / "a.log.gz").write_bytes(whole[: len(whole) * 3 // 4])
    found, notes = only(tmp_path / "a.log.gz")
    assert [Path(name).name for name in notes.broken] == ["a.log.gz"]
    assert len(found[0, 0, "loss"]) > 200


@pytest.mark.parametrize("keep", [0.9, 0.5])
def test_of_a_trainers_state_that_is_cut_off_the_whole_records_are_read(tmp_path: Path, keep: float) -> None:
    state = {
        "epoch": 2,
        "log_history": [{"loss": 3 / (step + 1), "step": step} for step in range(100)],
        "max_steps": 100,
    }
    text = json.dumps(state, indent=2)
    (tmp_path / "trainer_state.json").write_text(text[: int(keep * len(text))])
    found, notes = only(tmp_path / "trainer_state.json")
    steps = [step for step, _ in found[0, 0, "loss"]]
    assert steps == list(range(len(steps)))
    assert 0.8 * keep * 100 < len(steps) < 100
    assert "cut off or damaged after" in next(iter(notes.broken.values()))
