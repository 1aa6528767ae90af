"""Short hashes of a batch's rows."""

from collections.abc import Iterator

import pytest
import torch

from diagd.probes import rows
from diagd.probes.rows import EVERY, FIRST, LOOKS, ROWS, SEEN
from diagd.probes.signals import SIGNALS

Told = list[tuple[int | None, dict[int, list[str]]]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    found: Told = []

    def tell(name: str, text: str, step: int | None = None) -> None:
        looks = dict(look.split("=") for look in text.split(";"))
        found.append((step, {int(at): [h[i : i + 4] for i in range(0, len(h), 4)] for at, h in looks.items()}))

    monkeypatch.setattr(SIGNALS, "fact", tell)
    SEEN.__init__()  # type: ignore[misc]
    yield found
    SEEN.__init__()  # type: ignore[misc]


def batch(first: int, count: int = 30, width: int = 5) -> list[torch.Tensor]:
    """A batch of samples from `first` on: inputs and targets."""
    numbers = torch.arange(first, first + count)
    return [torch.sin(numbers[:, None] * torch.arange(1.0, width + 1)), numbers % 3]


def test_some_steps_in_a_row_are_told_at_once(told: Told) -> None:
    for step in range(40):
        rows.look(batch(step * 30), step)
        rows.look(batch(7), step)  # a second one of the same step
    ((at, looks),) = told
    assert at == FIRST + LOOKS
    assert list(looks) == list(range(FIRST + 1, FIRST + LOOKS + 1))
    assert {len(hashes) for hashes in looks.values()} == {ROWS}
    assert len({one for hashes in looks.values() for one in hashes}) > ROWS * LOOKS * 0.98


@pytest.mark.parametrize("width", [1, 5, 200])  # of the last, the middle of a row is left out
def test_a_sample_has_the_same_hash_wherever_it_stands(told: Told, width: int) -> None:
    for step in range(FIRST, FIRST + LOOKS):
        rows.look(batch(3 * step, width=width), step)
    ((_, looks),) = told
    first, second = looks[FIRST + 1], looks[FIRST + 2]
    assert first[3:] == second[:-3]
    assert len(set(first)) == ROWS


def test_it_is_looked_at_again_much_later(told: Told) -> None:
    for step in range(EVERY + FIRST, EVERY + FIRST + LOOKS):
        rows.look(batch(step), step)
    assert [step for step, _ in told] == [EVERY + FIRST + LOOKS]


@pytest.mark.parametrize(
    "value",
    [torch.zeros(()), torch.zeros(3, 4), torch.zeros(8, 9).t(), torch.zeros(8, 4, device="meta"), [], "text"],
)
def test_what_has_no_rows_to_read_is_passed_over(told: Told, value: object) -> None:
    for step in range(FIRST, FIRST + LOOKS):
        rows.look(value, step)
    assert told == []


def test_the_tokens_of_packed_samples_are_no_rows_of_a_batch(told: Told) -> None:
    for step in range(FIRST, FIRST + LOOKS):
        rows.look(torch.arange(step, step + 30) % 64, step)
    assert told == []
