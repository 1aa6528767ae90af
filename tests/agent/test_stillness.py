"""Since when a process that is no rank yet does nothing."""

import pytest

from diagd.daemon.agent.stillness import Stillness
from diagd.daemon.state.model import IO_NOISE_BYTES_PER_S, RSS_NOISE_BYTES, Facts


def looked_at(**totals: float) -> Stillness:
    """At once, and after nine more seconds in which the total came by and by."""
    stillness = Stillness()
    for second in range(10):
        fact = Facts(0, **{name: value * second / 9 for name, value in totals.items()})  # type: ignore[arg-type]
        stillness.note(fact, 100.0 + second)
    return stillness


def test_a_process_that_does_nothing_is_still_since_it_was_first_seen() -> None:
    assert Stillness().since_s == 0.0
    assert looked_at().since_s == 100.0


def test_after_a_long_rest_a_short_burst_is_a_sign_all_the_same() -> None:
    stillness = Stillness()
    for second in range(60):
        stillness.note(Facts(0, main_cpu_s=0.0), 100.0 + second)
    stillness.note(Facts(0, main_cpu_s=0.4), 160.0)
    assert stillness.since_s == 160.0


@pytest.mark.parametrize(
    ("total", "noise", "sign"),
    [("main_cpu_s", 0.05, 2.0), ("other_cpu_s", 0.1, 2.0), ("children_cpu_s", 0.02, 2.0),
     ("io_bytes", 6 * IO_NOISE_BYTES_PER_S, 90 * IO_NOISE_BYTES_PER_S),
     ("rss_bytes", RSS_NOISE_BYTES // 2, 20 * RSS_NOISE_BYTES)],
)  # fmt: skip
def test_each_sign_of_life_ends_it_and_noise_does_not(total: str, noise: float, sign: float) -> None:
    assert looked_at(**{total: noise}).since_s == 100.0
    assert looked_at(**{total: sign}).since_s >= 108.0
