"""What half precision does to a training, as seen in a rank; and what one step does to single numbers."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.probes.jobs import SCRIPTS, boxes, run

from diagd.daemon.agent.signals import SignalReader
from diagd.probes import dtypes, overflow, roundings
from diagd.probes.box.writer import BoxWriter
from diagd.probes.signals import SIGNALS

Told = dict[str, list[tuple[int, float]]]


def signals(folder: Path) -> tuple[Told, dict[str, tuple[int, str]]]:
    """The only rank's scalars and facts."""
    news = SignalReader(next(folder.glob("*.signals")), 0, 1).news()
    assert news is not None
    found: Told = {}
    for name, step, value in zip(news.names, news.steps, news.values, strict=True):
        found.setdefault(news.strings[name], []).append((int(step), float(value)))
    return found, {news.strings[name]: (step, news.strings[text]) for name, step, text in news.facts}


def test_each_failure_is_seen_in_a_real_training(tmp_path: Path) -> None:
    done = run(SCRIPTS / "half_precision.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    ends: dict[str, int] = json.loads(done.stdout)
    told, facts = signals(tmp_path)
    (box,) = boxes(tmp_path)
    assert box.live["PROBE_ERRORS"] == 0, box.identity

    # Not where the cache was emptied, and before the other training has ended.
    assert facts["autocast/swapped"][1] == "Sequential.0"
    assert ends["emptied"] < box.live["STALE_CAST_STEP"] <= ends["swapped"]

    still = {name.removeprefix("roundoff/still/"): values for name, values in told.items() if "/still/" in name}
    assert still["Sequential.1.weight"][-1][1] == 1.0
    assert all(values[-1][1] < 0.5 for name, values in still.items() if not name.endswith("Sequential.1.weight"))
    assert told["roundoff/lost/Sequential.1.weight"][-1][1] == 1.0

    (first, *_) = told["overflow/value"]
    assert first[0] == ends["overflowed"]
    assert first[1] > 65504
    operation, dtype, names = facts["overflow/at"][1].split("\t")
    assert (operation, dtype) == ("Bmm", "float16")
    assert names.startswith("Scores.")

    assert [value for _, value in told["scaler/skipped"]] == [1.0] * 5
    assert [value for _, value in told["scaler/scale"]] == [4.0, 2.0, 1.0, 0.5, 0.25]
    on = dict(told["autocast/on"])
    assert [on[n] for n in (2, ends["swapped"], ends["swapped"] + 2)] == [1.0, 1.0, 0.0]


class Sgd:
    """One step on parameters in bfloat16, as seen by the probe."""

    def __init__(self, values: list[float], gradients: list[float], lr: float, **more: Any) -> None:
        parameter = torch.nn.Parameter(torch.tensor(values, dtype=torch.bfloat16))
        parameter.grad = torch.tensor(gradients, dtype=torch.bfloat16)
        self.optimizer = torch.optim.SGD([parameter], lr=lr, **more)
        rows = roundings.rows(self.optimizer, 8)
        with torch.no_grad():
            sample = roundings.before(rows)
            assert sample is not None
            self.optimizer.step()
            seen = roundings.after(self.optimizer, sample)
            assert seen is not None
            counts = roundings.sums(seen, sample.before, seen.felt)
        felt, still, lost, lucky, flushed, now, size = (row[0] for row in counts.tolist())
        assert (felt, flushed) == (now, 0)
        self.felt, self.still, self.lost, self.lucky, self.size = felt, still, lost, lucky, size


def test_an_update_below_half_the_distance_to_the_next_number_is_lost() -> None:
    # Above 1 the numbers lie 2^-7 apart; an element without a gradient does not count.
    seen = Sgd([1.0, 1.0, 1.0], [-0.003, -0.005, 0.0], 1.0)
    assert (seen.felt, seen.still, seen.lost) == (2, 1, 1)


def test_zero_is_moved_by_anything() -> None:
    seen = Sgd([0.0, 0.0], [1e-6, -1e-9], 1.0)
    assert (seen.felt, seen.still, seen.lost, seen.lucky) == (2, 0, 0, 0)


def test_an_update_is_counted_as_momentum_makes_it() -> None:
    seen = Sgd([1.0], [0.5], 0.001, momentum=0.9)
    assert seen.size == pytest.approx(0.0005 / 2**-8, rel=0.01)


def test_parameters_in_full_precision_are_not_looked_at() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(4))], lr=0.1)
    assert roundings.rows(optimizer, 8) == []


def test_an_optimizer_that_keeps_full_precision_beside_a_parameter_is_left_alone() -> None:
    parameter = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    parameter.grad = torch.ones(4, dtype=torch.bfloat16)
    optimizer = torch.optim.SGD([parameter], lr=1e-4)
    optimizer.state[parameter] = {"master": torch.ones(4)}
    sample = roundings.before(roundings.rows(optimizer, 8))
    assert sample is not None
    assert roundings.after(optimizer, sample) is None


FREQUENCIES = 10_000.0 ** -(torch.arange(0, 64, 2) / 64)


@pytest.mark.parametrize(
    ("name", "values", "what"),
    [
        ("Net.freqs", FREQUENCIES, "frequencies"),
        ("Net.rotary.inv_freq", FREQUENCIES * torch.linspace(0.1, 1, 32), "frequencies"),  # scaled, for long contexts
        ("Net.position", torch.arange(512.0), "positions"),
        ("Net.short", torch.arange(200.0), ""),
        ("Net.decay", torch.linspace(1, 0.1, 32), ""),
        ("Net.ones", torch.ones(64), ""),
        ("Net.discounts", 0.97 ** torch.arange(64.0), ""),
        ("Net.slopes", 2.0 ** -torch.arange(1.0, 9.0), ""),
        ("Net.running_mean", torch.randn(64, generator=torch.Generator().manual_seed(0)), ""),
    ],
)
def test_buffers_are_known_by_what_they_hold(name: str, values: torch.Tensor, what: str) -> None:
    assert dtypes._what(name, values.bfloat16().double().tolist(), "torch.bfloat16") == what


def test_frequencies_in_float16_are_known_too_though_the_last_are_rounded_more() -> None:
    assert dtypes._what("Net.f", FREQUENCIES.half().double().tolist(), "torch.float16") == "frequencies"


def exponential(layer: torch.nn.Module) -> torch.Tensor:
    """Inf in float16 where nothing is multiplied with anything."""
    loss: torch.Tensor = (layer(torch.ones(2, 8).half()) * 0 + 12).exp().float().mean()
    return loss


def masked(layer: torch.nn.Module) -> torch.Tensor:
    """Every position is masked, which is NaN and no overflow."""
    x = layer(torch.ones(2, 8).half())
    loss: torch.Tensor = (x @ x.t() + torch.full((2, 2), -torch.inf).half()).softmax(-1).float().mean()
    return loss


def infinite_data(layer: torch.nn.Module) -> torch.Tensor:
    """Inf that came in with the batch."""
    loss: torch.Tensor = layer(torch.full((2, 8), torch.inf).half()).float().mean()
    return loss


@pytest.mark.parametrize(("forward", "found"), [(exponential, True), (masked, False), (infinite_data, False)])
def test_only_what_float16_itself_has_made_infinite_is_its_overflow(
    forward: Any, found: bool, recording: BoxWriter, tmp_path: Path
) -> None:
    overflow.forget()
    loss = forward(torch.nn.Linear(8, 8).half())
    assert not torch.isfinite(loss)
    SIGNALS.record("loss", loss.item())
    overflow.before_backward(loss)
    told, facts = signals(tmp_path)
    assert ("overflow/value" in told, "overflow/at" in facts) == (found, found)


def test_a_parameter_that_is_looked_at_can_be_swapped_and_its_model_can_be_deleted() -> None:
    model = torch.nn.Linear(4, 4, dtype=torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = roundings.rows(optimizer, 8)
    other = torch.nn.Parameter(torch.ones(4, 4, dtype=torch.bfloat16))
    torch.utils.swap_tensors(model.weight, other)  # type: ignore[no-untyped-call]  # refuses what is referred to weakly
    del optimizer
    assert [row.parameter() for row in rows] == [None, None]


class Rms(torch.nn.Module):
    """A norm by hand, whose squares are computed in float16."""

    def __init__(self, size: float) -> None:
        super().__init__()
        self.stem, self.out = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)
        torch.nn.init.constant_(self.stem.weight, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        held = self.stem(x).half()
        root = torch.rsqrt((held * held).mean(-1, keepdim=True).float() + 1e-6)
        found: torch.Tensor = self.out(held.float() * root)
        return found


@pytest.mark.parametrize(("size", "told"), [(200.0, True), (1.0, False)])
def test_a_norm_that_divides_by_inf_is_told_though_all_it_gives_is_finite(
    recording: BoxWriter, size: float, told: bool
) -> None:
    overflow.forget()
    model = Rms(size)
    loss = model(torch.ones(3, 4)).square().mean()
    assert torch.isfinite(loss)
    SIGNALS.record("loss", 1.0, 1)
    for _ in range(2):
        overflow.before_backward(loss)
    _, facts = signals(recording.path.parent)
    assert ("overflow/at" in facts) is told
    if told:
        assert facts["overflow/at"][1].startswith("Rsqrt\tfloat16\t")
    overflow.forget()
