"""What a checkpoint holds and the run did not take: tensors under other names, moments, the schedule's position."""

from collections.abc import Iterator

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.scene import Scene

_SURE = 0.9  # seen in the rank itself; that it was not meant so is left open


def checkpoint(scene: Scene) -> Iterator[Finding]:
    """One finding for each thing that was left in the file, for all ranks that left it there."""
    for name, tell in (("names", _names), ("optimizer", _optimizer), ("schedule", _schedule)):
        facts = {rank: fact for rank in scene.state.ranks() if (fact := _fact(scene, rank, name)) is not None}
        if facts:
            ranks = tuple(sorted(facts))
            step, text = facts[ranks[0]]
            yield tell(ranks, step, text.split("|"))


def _fact(scene: Scene, rank: int, name: str) -> tuple[int, str] | None:
    fact = scene.state.signals.fact(rank, f"checkpoint/{name}")
    return fact if fact is not None and fact[1].count("|") == (3 if name == "names" else 1) else None


def _names(ranks: tuple[int, ...], step: int, told: list[str]) -> Finding:
    count, prefix, where, names = told
    have, lack = ("checkpoint's", "model's") if where == "file" else ("model's", "checkpoint's")
    text = (
        f"{words.ranks_text(ranks)} loaded a checkpoint that left {count} tensors of the model as they were:"
        f" the {have} names begin with '{prefix}', the {lack} do not"
    )
    seen = f"load_state_dict(strict=False) found them missing, and the same ones with '{prefix}' unexpected: {names}"
    return _finding("names", ranks, step, text, seen, tuple(names.split(",")))


def _optimizer(ranks: tuple[int, ...], step: int, told: list[str]) -> Finding:
    file, count = told
    text = (
        f"{words.ranks_text(ranks)} resumed from {file} with the weights alone: the optimizer's state of {count}"
        " parameters that it holds was not loaded, so moments begin at zero"
    )
    seen = f"this run goes on from {file}, and no optimizer's load_state_dict was called before step {step}"
    return _finding("optimizer", ranks, step, text, seen, ("optimizer state",))


def _schedule(ranks: tuple[int, ...], step: int, told: list[str]) -> Finding:
    file, position = told
    text = (
        f"{words.ranks_text(ranks)} resumed from {file}, whose learning-rate schedule stands at {position}, and began"
        " the schedule anew"
    )
    seen = f"no scheduler's load_state_dict was called before step {step}, and none stands at {position} or behind it"
    return _finding("schedule", ranks, step, text, seen, ("lr", "scheduler"))


def _finding(key: str, ranks: tuple[int, ...], step: int, text: str, seen: str, names: tuple[str, ...]) -> Finding:
    why = {
        "names": "the model was saved inside a wrapper and is loaded without it, or the other way round",
        "optimizer": "the script loads the model and not the optimizer",
        "schedule": "the script loads the model and not the scheduler",
    }[key]
    cause = Cause(key, why, _SURE, Basis.OBSERVATION, (Evidence(seen, "probe", ranks[0], step),))
    return Finding(
        "divergence.checkpoint", Severity.WARNING, ranks, words.shortened(text), (cause,), names=names, step=step,
        sure=True, goes_on=True, key=key,
    )  # fmt: skip
