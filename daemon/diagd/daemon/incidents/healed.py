"""Tensors that ranks held apart and hold alike again, as a broadcast of the script's makes them."""

from diagd.daemon.detectors.finding import GOES_ON
from diagd.daemon.incidents.incident import Incident
from diagd.daemon.state.job import JobState
from diagd.daemon.state.ledger import Entry
from diagd.daemon.steps import since_text

ONCE, TWICE = 1, 2  # comparisons in a row: what no wrapper keeps equal may be averaged now and then, and part again
MOST = 300  # characters of a summary (report.schema.json)
_OF = {
    "divergence.parameter": "parameter",
    "divergence.frozen": "parameter",
    "divergence.buffer": "buffer",
    "divergence.optimizer": "state",
}


def is_healed(incident: Incident, state: JobState) -> bool:
    """Whether all that it names was found to be equal on all ranks again."""
    entries = _told_of(incident, state)
    return bool(entries) and all(one.agreement.equal >= (ONCE if one.peers else TWICE) for one in entries)


def with_end(incident: Incident, state: JobState) -> str:
    """The incident's summary, with the steps since which what it names is equal again where it is."""
    entries = _told_of(incident, state)
    if not entries or not all(one.agreement.equal for one in entries):
        return incident.summary
    first = max(one.agreement.last_unequal for one in entries) + 1
    last = max(one.agreement.equal_since for one in entries)
    end = f"; equal again {since_text(first, last)}"
    return incident.summary.partition(GOES_ON)[0][: MOST - len(end)] + end


def _told_of(incident: Incident, state: JobState) -> list[Entry]:
    """The tensors by which it is known that ranks differ; none where it is known by something else."""
    kind = _OF.get(incident.kind)
    if kind is None or incident.attempt != state.attempt:
        return []
    named, ranks = set(incident.names), set(incident.ranks)
    told = [e for e in state.tensors.entries if e.kind == kind and e.name in named and ranks <= set(e.infos)]
    return told if {one.name for one in told} == named and all(one.agreement.parts for one in told) else []
