"""Counters that stand still in half precision."""

from tests.detectors.states import job

from diagd.daemon.detectors.finding import Severity


def test_they_are_named_with_their_dtype_and_where_they_stand() -> None:
    made = job(2).train(0, 1)
    for rank in range(2):
        made.state.signals.put_fact(rank, "buffers/stuck", 384, "Net.gate.num_updates\tbfloat16")
    found = made.passes(1).finds()
    assert (found.kind, found.severity, found.ranks) == ("precision.underflow", Severity.WARNING, (0, 1))
    assert found.names == ("Net.gate.num_updates", "bfloat16")
    assert "256 + 1 is 256" in found.summary
    assert found.explains == ()


def test_a_job_without_any_says_nothing() -> None:
    assert job(2).train(0, 1).passes(1).find() == ()


def test_statistics_that_are_written_and_stay_are_worth_knowing() -> None:
    made, said = job(2).train(0, 1), "Net.level_mean\tbfloat16\t48\nNet.level_var\tbfloat16\t48"
    for rank in range(2):
        made.state.signals.put_fact(rank, "buffers/standing", 96, said)
    found = made.passes(1).finds()
    assert (found.kind, found.ranks, found.severity) == ("precision.underflow", (0, 1), Severity.INFO)
    assert found.names == ("Net.level_mean", "Net.level_var", "bfloat16")
