"""What lines of training logs say."""

import math

import pytest

from diagd.probes.box.metric_steps import Steps
from diagd.probes.box.metric_text import MAX_LINE, Reader, from_mapping

# line -> step, metrics
LINES: dict[str, tuple[int | None, dict[str, float]]] = {
    "step 120/300 | loss 1.23 | lr 3e-4": (120, {"loss": 1.23, "lr": 3e-4}),
    "Epoch [1/10], Step [100/600], Loss: 0.1234": (100, {"Epoch": 1, "Loss": 0.1234}),
    "[12/300] loss=0.5012 gnorm=3.210": (None, {"loss": 0.5012, "gnorm": 3.21}),
    "ep 3 it 20 loss 0.4 acc 0.93": (20, {"ep": 3, "loss": 0.4, "acc": 0.93}),
    "step 1,200 loss 2.13, lr 1e-4": (1200, {"loss": 2.13, "lr": 1e-4}),
    "Step [12,300/1,000,000] loss: 2.1": (12300, {"loss": 2.1}),
    "step 3,loss 0.5,acc 0.2": (3, {"loss": 0.5, "acc": 0.2}),
    "steps 30 loss 0.2": (30, {"loss": 0.2}),
    '{"_step": 40, "loss": 0.1}': (40, {"loss": 0.1}),
    "step 12 loss 0.5 |g| 3.21": (12, {"loss": 0.5, "|g|": 3.21}),
    "step=7, kl=0.0000, reward=-1": (7, {"kl": 0, "reward": -1}),
    "step 3/300: loss 0.5, lr 1.0e-3": (3, {"loss": 0.5, "lr": 1e-3}),
    "{'loss': 0.3, 'learning_rate': 1e-05, 'epoch': 0.1}": (None, {"loss": 0.3, "learning_rate": 1e-5, "epoch": 0.1}),
    "{'loss': '0.3001', 'epoch': '0.1'}": (None, {"loss": 0.3001, "epoch": 0.1}),
    '{"step": 10, "lm loss": 1.5, "note": null, "hist": [1, 2, 3]}': (10, {"lm loss": 1.5}),
    '{"step": 3, "train": {"loss": 0.5}, "val": {"loss": 0.7}}': (3, {"train/loss": 0.5, "val/loss": 0.7}),
    " iteration        1/     100 | consumed samples:   8 | learning rate: 1.5E-04 | lm loss: 1.04E+01 |": (
        1, {"consumed samples": 8, "learning rate": 1.5e-4, "lm loss": 10.4},
    ),
    "2026-11-28 10:00:00,123 - INFO - trainer - step 10 - loss: 0.5 - lr: 0.001": (10, {"loss": 0.5, "lr": 0.001}),
    "\x1b[32mINFO\x1b[0m \x1b[1mloss\x1b[0m=\x1b[36m0.25\x1b[0m": (None, {"loss": 0.25}),
    "Epoch 0:  10%|█    | 10/100 [00:01<00:09,  9.50it/s, v_num=0, train_loss=0.123]": (
        None, {"Epoch": 0, "v_num": 0, "train_loss": 0.123},
    ),
    " 35%|███▌  | 35/100 [00:03<00:06, 10.1it/s, loss=0.21, lr=1e-4]": (None, {"loss": 0.21, "lr": 1e-4}),
    "Epoch: [0]  [ 10/500]  eta: 0:05:10  lr: 0.01  loss: 1.2345 (1.3456)  time: 0.5": (
        None, {"Epoch": 0, "lr": 0.01, "loss": 1.2345, "time": 0.5},
    ),
    "100/100 [=========] - 1s 2ms/step - loss: 0.5 - accuracy: 0.9": (None, {"loss": 0.5, "accuracy": 0.9}),
    "|    approx_kl            | 0.0123   |": (None, {"approx_kl": 0.0123}),
    "│ loss │ 0.5 │": (None, {"loss": 0.5}),
    "Train Epoch: 1 [640/60000 (1%)]\tLoss: 0.543210": (None, {"Train Epoch": 1, "Loss": 0.54321}),
    "Iter(train) [  50/1000]  lr: 1.0e-03  eta: 0:01:30  loss: 0.53  loss_cls: 0.3": (
        50, {"lr": 1e-3, "loss": 0.53, "loss_cls": 0.3},
    ),
    "iter 10: loss 3.2, time 23.00ms, mfu 5.1%": (10, {"loss": 3.2, "mfu": 5.1}),
    "loss=tensor(0.5123, device='cuda:0') best=np.float64(0.3)": (None, {"loss": 0.5123, "best": 0.3}),
    "val loss: 0.3 val acc: 85.3%": (None, {"val loss": 0.3, "val acc": 85.3}),
    "step 3 reward 0.5 sample [3, 4, 4]": (3, {"reward": 0.5}),
    "took 3.2s loss 0.5": (None, {"loss": 0.5}),
    "train.py:48 - loss 0.5": (None, {"loss": 0.5}),
    "[W1129 reducer.cpp:335] Warning: loss 0.5": (None, {"loss": 0.5}),
}  # fmt: skip
NOTHING = (
    "saved checkpoint to /tmp/x/step_100.pt in 3.2 s", "parameters: 124,439,808", "", "no number here", "{}",
    "2026-11-28 10:00:00", "0.5", "[rank 3]", "found 3 of nan", "a" * 9 + "=1" + " " * MAX_LINE,
    "[rank0]:[W1129 07:00:01.0001 /csrc/c10d/reducer.cpp:335] Warning: Grad strides",
)  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_a_line_says_its_metrics_and_its_step(line: str) -> None:
    found = Reader().read(line)
    assert found is not None
    assert (found.step, {value.name: value.value for value in found.values}) == LINES[line]


@pytest.mark.parametrize("line", NOTHING)
def test_what_is_no_metric_is_left_alone(line: str) -> None:
    assert Reader().read(line) is None


def test_the_same_form_with_other_numbers_is_read_alike() -> None:
    reader = Reader()
    for step in range(2000):
        found = reader.read(f"step {step} loss {step / 7:.3f}")
        assert found is not None
        assert (found.step, found.values[0].value) == (step, round(step / 7, 3))


@pytest.mark.parametrize("text", ["nan", "NaN", "inf", "-inf", "Infinity"])
def test_values_that_are_not_finite_are_kept(text: str) -> None:
    for line in (f"step 3 loss {text}", f"loss: {text}", f"{{'loss': {text}}}", f"{{'loss': {text}, 'a': {{}}}}"):
        found = Reader().read(line)
        assert found is not None
        value = found.values[0].value
        assert math.isnan(value) if "a" in text else value == float(text)


def test_a_word_before_nan_is_no_metric_where_the_line_speaks_of_their_number() -> None:
    found = Reader().read(" iteration 5 | lm loss: 2.5 | number of nan iterations:   0 |")
    assert found is not None
    assert all(math.isfinite(value.value) for value in found.values)


def test_printed_numbers_are_rounded_and_those_of_programs_are_not() -> None:
    line = Reader().read("loss 0.1234 lr 3e-4 n 5 x 0.12345678901234")
    said = Reader().read("{'loss': 0.1234}")
    assert line is not None
    assert said is not None
    assert [value.decimals for value in (*line.values, *said.values)] == [4, None, None, None, None]


def test_objects_are_flattened_and_only_numbers_are_taken() -> None:
    said = {"a": {"b": 1, "c": {"d": "2.5"}}, "text": "x", "flag": True, "none": None, "list": [1], "global_step": 7}
    found = from_mapping(said)
    assert found is not None
    assert (found.step, {v.name: v.value for v in found.values}) == (7, {"a/b": 1.0, "a/c/d": 2.5})


def test_a_counter_that_begins_anew_with_each_epoch_is_continued() -> None:
    counter = Steps()
    assert [counter.place(step) for step in (0, 10, 20, 0, 10, 20, 0)] == [0, 10, 20, 30, 40, 50, 60]


def test_a_counter_that_only_grows_is_kept_as_it_is() -> None:
    counter = Steps()
    assert [counter.place(step) for step in (500, 500, 510, 900)] == [500, 500, 510, 900]


TABLES: dict[str, tuple[int | None, dict[str, float]]] = {
    "| epoch | step | train loss | acc |\n|-------|---|---|---|\n| 3 | 40 | 0.51 | 93.1% |": (
        40, {"epoch": 3, "train loss": 0.51, "acc": 93.1},
    ),
    "epoch     train_loss  valid_loss  time\n2         0.51        0.66        00:07": (
        None, {"epoch": 2, "train_loss": 0.51, "valid_loss": 0.66},
    ),
    "  Step  Loss   Note\nsaved to x.pt\n   20  0.25   ok": (20, {"Loss": 0.25}),
    "│ loss │ lr │\n│ 0.5 │ 1e-3 │\n│ loss │ gnorm │\n│ 0.4 │ 3.5 │": (None, {"loss": 0.4, "gnorm": 3.5}),
}  # fmt: skip


@pytest.mark.parametrize("text", TABLES)
def test_the_header_of_a_table_names_its_columns(text: str) -> None:
    reader = Reader()
    said = [reader.read(line) for line in text.splitlines()][-1]
    assert said is not None
    assert (said.step, {value.name: value.value for value in said.values}) == TABLES[text]


@pytest.mark.parametrize("text", [
    "| epoch | loss |\n| 3 | 0.5 | 7 |", "name    size\n3       0.5", "the loss  is low\n3 0.5", "| loss |\n| 0.5 |",
    "epoch  loss\n12 of 30",
])  # fmt: skip
def test_what_is_no_table_with_a_header_is_left_alone(text: str) -> None:
    reader = Reader()
    assert [reader.read(line) for line in text.splitlines()][-1] is None
