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
