"""How much is drawn of the generators that modules share; and what data workers note of it."""

import os
import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.probes import test_inputs
from tests.probes.test_inputs import step
from torch.utils.data import DataLoader, Dataset

from diagd.probes import host_randomness, randomness, reading, torch_stand, worker_notes
from diagd.probes.guard import Probe
from diagd.probes.host_randomness import GENERATORS, MAX_LOST, RESEEDED
from diagd.probes.worker_notes import Note

Told = dict[str, dict[int, Any]]
told = test_inputs.told  # a fixture


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    def forget() -> None:
        host_randomness.WATCH.__init__()  # type: ignore[misc]
        reading.READING.__init__()  # type: ignore[misc]

    np.random.seed(3)
    random.seed(3)
    forget()
    yield
    forget()


def drawn(name: str, draw: Callable[[], object]) -> int:
    number = GENERATORS.index(name)
    before = host_randomness.stands()[number]
    draw()
    after = host_randomness.stands()[number]
    assert before is not None
    assert after is not None
    return host_randomness.drawn(name, before, after)


@pytest.mark.parametrize(("count", "words"), [(0, 0), (1, 2), (312, 624), (313, 626), (20_000, 40_000)])
def test_words_are_counted_through_any_number_of_blocks(count: int, words: int) -> None:
    assert drawn("numpy", lambda: np.random.rand(count)) == words
    assert drawn("random", lambda: [random.random() for _ in range(count)]) == words


def test_to_look_draws_nothing() -> None:
    np.random.rand(5)
    state = np.random.get_state(), random.getstate()
    drawn("numpy", lambda: np.random.rand(1000))
    np.random.set_state(state[0])
    assert drawn("numpy", lambda: None) == 0
    assert random.getstate() == state[1]
    first = host_randomness.stands()[0]
    assert first is not None
    assert (first.key, first.place) == (state[0][1].tobytes(), state[0][2])  # type: ignore[index]


def test_a_generator_that_is_set_anew_is_not_searched_for_ever() -> None:
    for seed in range(MAX_LOST + 1):
        assert drawn("numpy", lambda seed=seed: np.random.seed(seed)) == RESEEDED  # type: ignore[misc]
    assert drawn("numpy", lambda: np.random.rand(1000)) == RESEEDED
    assert drawn("random", lambda: random.getrandbits(32 * 700)) == 700


def test_another_kind_of_generator_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np.random.mtrand, "_rand", np.random.RandomState(np.random.PCG64(1)))
    monkeypatch.setattr(random, "_inst", SimpleNamespace())
    assert host_randomness.stands() == (None, None)


def test_a_steps_draws_are_told_apart_by_where_they_are_drawn(told: Callable[[], Told]) -> None:
    host_randomness.begin()
    host_randomness.tell(1)
    assert told() == {}  # nothing was ever drawn
    host_randomness.begin()
    np.random.rand(3)
    host_randomness.begin()  # that was for a batch
    np.random.rand(5)
    host_randomness.at_forward()
    host_randomness.at_input((torch.ones(2, 4), torch.ones(99, dtype=torch.int64)), 2)
    np.random.rand(7)
    host_randomness.tell(2)
    found = told()
    assert (found["data/drawn_numpy"], found["data/drawn_inside_numpy"]) == ({2: 10.0}, {2: 14.0})
    assert found["data/elements"] == {2: 8.0}
    assert "data/rng_random" not in found


class Augmented(Dataset[float]):
    """Draws once for each sample."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> float:
        return float(np.random.rand())


@pytest.fixture
def reads() -> Iterator[None]:
    made = Probe("reading", 0, True)
    reading.install(made, torch.utils.data._utils.fetch)
    yield
    reading.remove()
    assert made.errors == 0


def test_what_a_dataset_draws_is_told_for_each_sample(told: Callable[[], Told], reads: None) -> None:
    step(0)
    batches = iter(DataLoader(Augmented(), batch_size=8))
    next(batches)
    next(batches)  # one for a step is enough
    with torch.no_grad():
        step(1)
        next(batches)
    found = told()
    assert (found["data/read_drawn_numpy"], found["data/read_samples"]) == ({1: 2.0}, {1: 8.0})
    assert found["data/read_by_numpy"] == {1: reading.MAIN}


@pytest.mark.parametrize(("init", "by"), [(None, reading.WORKERS), (lambda _: np.random.seed(1), reading.ALIKE)])
def test_forked_workers_tell_it_through_their_rank(
    told: Callable[[], Told],
    reads: None,
    init: Callable[[int], None] | None,
    by: int,
) -> None:
    step(0)
    batches = iter(
        DataLoader(Augmented(), batch_size=8, num_workers=2, worker_init_fn=init, multiprocessing_context="fork")
    )
    for number in range(1, 5):
        next(batches)
        reading.arrived(batches, number, number)
    found = told()
    assert found["data/read_drawn_numpy"] == dict.fromkeys(range(1, 5), 2.0)
    assert found["data/read_by_numpy"][3] == by
    assert len(set(found["data/read_seed"].values())) == 1


class Masked(Augmented):
    """Draws three numbers of torch's generator for each sample."""

    def __getitem__(self, index: int) -> float:
        return float(torch.rand(3).sum())


def test_what_workers_draw_of_torchs_generator_is_told_and_in_the_rank_by_others(
    told: Callable[[], Told], reads: None
) -> None:
    step(0)
    next(iter(DataLoader(Masked(), batch_size=8)))
    batches = iter(DataLoader(Masked(), batch_size=8, num_workers=2, multiprocessing_context="fork"))
    for number in range(1, 5):
        next(batches)
        reading.arrived(batches, number, number + 1)
    found = told()
    assert found["data/read_drawn_torch"] == dict.fromkeys(range(2, 6), 3.0)
    assert len(set(found["data/read_torch"].values())) == 4
    assert found["data/read_by_torch"][4] == reading.WORKERS


@pytest.mark.parametrize("count", [3, 600, 700])
def test_words_of_torchs_generator_are_counted_at_least_to_the_next_block(count: int) -> None:
    before = torch_stand.stand()
    torch.rand(count)
    after = torch_stand.stand()
    assert before is not None
    assert after is not None
    assert 0 < torch_stand.drawn(before, after) <= count


def test_a_note_of_another_batch_loader_or_process_is_not_taken(reads: None) -> None:
    info, note = SimpleNamespace(id=1, seed=41), Note(3, 8, tuple(range(worker_notes.VALUES)))
    worker_notes.put(info, note)
    assert worker_notes.get(1, 41, 3) is None  # it is noted for the parent of whoever writes
    assert worker_notes.WORKERS > 1
    original, os.getppid = os.getppid, os.getpid
    try:
        worker_notes.put(info, note)
    finally:
        os.getppid = original
    assert worker_notes.get(1, 41, 3) == note
    assert worker_notes.get(1, 42, 3) is None
    assert worker_notes.get(1, 41, 3 + worker_notes.NOTES) is None
    assert worker_notes.get(0, 41, 3) is None


def test_the_watch_on_steps_looks_at_these_generators_too(told: Callable[[], Told]) -> None:
    step(0)
    randomness._stepped(None)
    randomness.at_fetch()
    randomness.at_forward()
    random.random()
    step(1)
    randomness._stepped(None)
    assert told()["data/drawn_inside_random"] == {1: 2.0}


def test_a_worker_notes_its_first_batches_and_then_few(reads: None) -> None:
    batches = iter(DataLoader(Augmented(), batch_size=1, num_workers=1, multiprocessing_context="fork"))
    seed, noted = int(batches._base_seed), []
    for number in range(1, 52):
        next(batches)
        if worker_notes.get(0, seed, number) is not None:
            noted.append(number)
    del batches
    # The worker is up to two batches ahead, but only 16 places were written before it read the 33rd.
    assert noted == [*range(1, worker_notes.NOTES + 1), reading.EVERY + 1]
