"""What was left in a checkpoint, as the ranks tell it."""

import pytest
from tests.detectors.scalars import signals
from tests.detectors.states import Job, job

from diagd.daemon.detectors.finding import Severity


def told(name: str, text: str, ranks: tuple[int, ...] = (0, 1)) -> Job:
    made = job(2).train(0, 1).passes(1.0)
    for rank in ranks:
        made.state.signals.put_fact(rank, f"checkpoint/{name}", 3, text)
    return made


@pytest.mark.parametrize(
    ("name", "text", "names", "said"),
    [
        ("names", "14 of 16|module.|file|fc.weight,fc.bias", ("fc.weight", "fc.bias"), "checkpoint's names begin with"),
        ("names", "4 of 4|net.|model|net.fc.weight", ("net.fc.weight",), "model's names begin with 'net.'"),
        ("optimizer", "last.pt|12", ("optimizer state",), "state of 12 parameters"),
        ("schedule", "last.pt|400", ("lr", "scheduler"), "stands at 400"),
    ],
)
def test_it_is_said_what_was_left(name: str, text: str, names: tuple[str, ...], said: str) -> None:
    found = told(name, text).finds()
    assert (found.kind, found.severity, found.ranks) == ("divergence.checkpoint", Severity.WARNING, (0, 1))
    assert (found.names, found.step, found.causes[0].key) == (names, 3, name)
    assert said in found.summary


def test_only_the_ranks_that_left_it_are_named() -> None:
    assert told("optimizer", "last.pt|12", (1,)).finds().ranks == (1,)


def resumed(before: float, after: float, took: int = 60) -> Job:
    made = job(1).train(0).passes(1.0)
    losses = [2.0 * (before / 2.0) ** (step / took) for step in range(1, took)] + [after * 0.9**s for s in range(40)]
    signals(made.state, 0, "loss", range(1, len(losses) + 1), losses)
    signals(made.state, 0, "checkpoint/took", [took], [1.0])
    return made


@pytest.mark.parametrize(("before", "after", "said"), [
    (0.1, 2.1, True),
    (0.1, 1.4, True),
    (0.1, 0.8, False),  # an older checkpoint
    (1.2, 2.0, False),  # it had not learned much
    (0.1, 0.1, False),
])  # fmt: skip
def test_weights_with_which_the_run_begins_anew_are_worth_knowing(before: float, after: float, said: bool) -> None:
    made = resumed(before, after)
    found = [f for f in made.find() if f.kind == "divergence.checkpoint"]
    assert [(f.severity, f.step, f.causes[0].key) for f in found] == ([(Severity.INFO, 60, "fallen")] if said else [])
    late = resumed(before, after)
    late.state.signals._series[0].pop("checkpoint/took")
    assert not [f for f in late.find() if f.kind == "divergence.checkpoint"]


def went_back(after: float, written: int = 60, moments: bool = True) -> Job:
    made = resumed(0.1, after)
    signals(made.state, 0, "checkpoint/reread", [60], [float(written)])
    if moments:
        signals(made.state, 0, "checkpoint/restored", [60], [1.0])
    return made


@pytest.mark.parametrize(("after", "written", "moments", "said"), [
    (0.8, 60, True, True),
    (2.1, 60, True, True),  # by this rule, which knows when it was written
    (0.8, 60, False, False),  # weights alone: it may go on with other data
    (0.11, 60, True, False),
    (0.8, 18, True, False),  # from when the loss was so
    (0.8, 4, True, False),  # what it was then is not known
])  # fmt: skip
def test_a_run_that_takes_its_own_file_back_goes_on_as_it_was(
    after: float, written: int, moments: bool, said: bool
) -> None:
    found = [f for f in went_back(after, written, moments).find() if f.kind == "divergence.checkpoint"]
    assert [(f.severity, f.step, f.causes[0].key) for f in found] == (
        [(Severity.WARNING, 60, "restored")] if said else []
    )
    if said:
        assert "wrote before step 60" in found[0].summary


@pytest.mark.parametrize(("given", "said"), [("Net.a=1f:2e,Net.b=3:4", False), ("Net.a=1f:2e,Net.b=3:9", True)])
def test_where_weights_and_moments_are_what_they_were_other_data_is_no_fault(given: str, said: bool) -> None:
    made = went_back(2.1)
    made.state.signals.put_fact(0, "checkpoint/kept", 58, "Net.a=1f:2e,Net.b=3:4")
    made.state.signals.put_fact(0, "checkpoint/given", 60, given)
    assert any(f.kind == "divergence.checkpoint" for f in made.find()) is said


@pytest.mark.parametrize(("after", "said"), [(0.2, False), (0.9, True)])
def test_a_loss_beyond_its_noise_with_most_of_what_was_gained_is_the_same_run(after: float, said: bool) -> None:
    made = job(1).train(0).passes(1.0)
    losses = [2.0 * 0.9**step for step in range(30)] + [0.1 + 0.001 * (step % 3) for step in range(29)] + [after] * 20
    signals(made.state, 0, "loss", range(1, len(losses) + 1), losses)
    for name, value in (("reread", 60.0), ("restored", 1.0)):
        signals(made.state, 0, f"checkpoint/{name}", [60], [value])
    assert [f.causes[0].key for f in made.find() if f.kind == "divergence.checkpoint"] == (["restored"] if said else [])


def test_what_did_not_come_back_as_it_was_is_named() -> None:
    made = went_back(0.8)
    made.state.signals.put_fact(0, "checkpoint/changed", 60, "4 of 6|Net.2.weight<Net.10.weight,Net.3.bias")
    (found,) = [f for f in made.find() if f.kind == "divergence.checkpoint"]
    assert found.names[:2] == ("Net.2.weight", "Net.3.bias")
    assert "4 of 6 parameters did not come back as they were: Net.2.weight holds what Net.10.weight" in found.summary


@pytest.mark.parametrize(("after", "changed", "said"), [
    (0.8, "2 of 9|Net.gate", True),
    (0.8, "9 of 9|Net.gate", False),  # another model, or other weights on purpose
    (0.11, "2 of 9|Net.gate", False),
])  # fmt: skip
def test_weights_alone_that_came_back_in_part_are_told_where_the_loss_shows_it(
    after: float, changed: str, said: bool
) -> None:
    made = went_back(after, moments=False)
    made.state.signals.put_fact(0, "checkpoint/changed", 60, changed)
    found = [f for f in made.find() if f.kind == "divergence.checkpoint" and f.severity is Severity.WARNING]
    assert [f.causes[0].key for f in found] == (["restored"] if said else [])


def test_names_that_do_not_match_and_a_run_that_begins_anew_are_told_with_them() -> None:
    made = resumed(0.1, 2.1)
    made.state.signals.put_fact(0, "checkpoint/strays", 60, "text_module.fc.weight,text_module.fc.bias|text_fc.weight")
    (found,) = [f for f in made.find() if f.kind == "divergence.checkpoint"]
    assert (found.severity, found.causes[0].key) == (Severity.WARNING, "strays")
    assert found.names[:3] == ("text_module.fc.weight", "text_module.fc.bias", "text_fc.weight")
    healthy = resumed(0.1, 0.1)  # a new head on a loaded body, say
    healthy.state.signals.put_fact(0, "checkpoint/strays", 60, "head.weight|fc.weight")
    assert not [f for f in healthy.find() if f.kind == "divergence.checkpoint"]


@pytest.mark.parametrize(("name", "text"), [("names", ""), ("loaded", "Net"), ("names", "cut off at a strange place")])
def test_of_what_was_loaded_nothing_is_said(name: str, text: str) -> None:
    assert not told(name, text).find()


def test_moments_at_another_parameters_place_are_told_with_whose_they_were() -> None:
    made = job(1).train(0).passes(1.0)
    text = "12 of 13|exp_avg|Net.a.weight<Net.b.weight,Net.a.bias<Net.b.bias"
    made.state.signals.put_fact(0, "checkpoint/moved", 60, text)
    (found,) = [f for f in made.find() if f.kind == "divergence.checkpoint"]
    assert (found.severity, found.step, found.causes[0].key) == (Severity.WARNING, 60, "moved")
    assert "of 12 of 13 parameters" in found.summary
    assert "exp_avg of Net.a.weight is what that of Net.b.weight" in found.summary
    assert found.names[:3] == ("Net.a.weight", "Net.a.bias", "exp_avg")
    broken = job(1).train(0).passes(1.0)
    broken.state.signals.put_fact(0, "checkpoint/moved", 60, "cut off")
    assert not [f for f in broken.find() if f.kind == "divergence.checkpoint"]


def test_weights_that_are_loaded_from_the_models_own_tensors_are_told_with_the_line() -> None:
    made = job(2).train(0, 1).passes(1.0)
    for rank in (0, 1):
        text = "Net|21|8|enc.weight,enc.bias,head.weight|/job/train.py\t31\tupdate"
        made.state.signals.put_fact(rank, "checkpoint/itself", 61, text)
    (found,) = [f for f in made.find() if f.kind == "divergence.checkpoint"]
    assert (found.ranks, found.severity, found.causes[0].key) == ((0, 1), Severity.WARNING, "itself")
    assert "of Net before step 61 that gave nothing back" in found.summary
    assert [place.frame.function for place in found.locations] == ["update", "update"]
    made.state.signals.put_fact(0, "checkpoint/itself", 61, "Net|0|8|enc.weight|/job/train.py\t31\tswap")
    (found,) = [f for f in made.find() if f.kind == "divergence.checkpoint"]
    assert "hold the other weights that were loaded since it was taken" in found.summary
