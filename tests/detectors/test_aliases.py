"""Names as the script has them, in what is said."""

import pytest
from tests.detectors.states import job

from diagd.daemon.detectors.aliases import aliased
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity

CAUSE = Cause("changed", "Net (copy).a moved", 0.9, Basis.OBSERVATION, (Evidence("digest of Net (copy).a", "ledger"),))
FOUND = Finding(
    "divergence.frozen", Severity.WARNING, (0,), "Net (copy).a differs", (CAUSE,), names=("Net (copy).a", "b")
)


@pytest.mark.parametrize(("told", "name"), [
    (("Net (copy)\tteacher", "Net (copy)\tteacher"), "teacher.a"),
    (("Net (copy)\tteacher", ""), "teacher.a"),  # one rank has not told
    (("Net (copy)\tteacher", "Net (copy)\tema"), "Net (copy).a"),
    (("Net (copy)\tm\nNet\tm", "Net (copy)\tm"), "Net (copy).a"),  # of which of them it is said would not be known
    (("Other\tm", "Other\tm"), "Net (copy).a"),
])  # fmt: skip
def test_a_model_is_called_as_all_ranks_call_it(told: tuple[str, str], name: str) -> None:
    made = job(2).train(0, 1).passes(1)
    for rank, text in enumerate(told):
        if text:
            made.state.signals.put_fact(rank, "models/aliases", 1, text)
    found = aliased(made.state, FOUND)
    assert found.names == (name, "b")
    assert (found.summary, found.causes[0].text) == (f"{name} differs", f"{name} moved")
    assert found.causes[0].evidence[0].what == f"digest of {name}"
