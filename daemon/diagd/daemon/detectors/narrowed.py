"""Which tensors deserve digests out of turn, and where in them the ranks differ, in words."""

from dataclasses import replace

from diagd.daemon.detectors import words
from diagd.daemon.detectors.differing import How, Parted
from diagd.daemon.detectors.finding import Evidence, Finding
from diagd.daemon.detectors.parting import at_one_step, suspected
from diagd.daemon.state.job import JobState
from diagd.daemon.state.ledger import Entry
from diagd.daemon.state.parts import Span, Where

SHOWN = 3  # runs of rows, and tensors
PLACE = 1 / 8  # of the parts: what differs in more of them is no single place any more


def suspects(state: JobState) -> list[Entry]:
    """Tensors in which ranks seem to differ that should not, in the order in which they parted."""
    return [one.entry for one in suspected(state) if at_one_step(state, one)]


def place(entry: Entry) -> str:
    """ "row 517 of 4096 (0.02 %)"; empty where the tensor was not looked at so closely."""
    where, total = entry.where, _total(entry)
    if where is None or not total:
        return ""
    noun = "element" if len(_shape(entry)) == 1 else "row"
    if where.rows == total:
        return f"all {where.parts} parts" if where.parts > 1 else f"all {total} {noun}s" if total > 1 else f"the {noun}"
    share = f"{total} ({_percent(where.rows / total)})"
    if len(where.spans) <= SHOWN:
        many = "s" if where.rows > 1 else ""
        return f"{noun}{many} {', '.join(map(_span, where.spans))} of {share}"
    return f"{where.rows} {noun}s of {share}, between {where.spans[0][0]} and {where.spans[-1][1] - 1}"


def evidence(entry: Entry) -> str:
    """What the close look showed, in a sentence; empty where there was none."""
    where, found = entry.where, place(entry)
    if where is None or not found:
        return ""
    sides = " | ".join(words.ranks_text(ranks) for ranks in where.classes)
    shard = " of the shard here" if "Shard" in entry.infos[min(entry.infos)].placement else ""
    text = f"{found}{shard} of {entry.name} {_verb(where)} after step {where.step}: {sides}"
    unequal = f"{where.unequal} of {where.parts} parts compared" if where.parts > 1 else "the part compared"
    return f"{text}; {unequal} {'are' if where.unequal > 1 else 'is'} unequal"


def with_places(finding: Finding, state: JobState, found: list[Parted]) -> Finding:
    """The same, with where in the tensors the ranks differ: of the first few that were looked at so closely.

    Of gradients, which are gone by then, in the weights that were made from them.
    """
    weights = {(one.name, one.together): one for one in state.tensors.entries if one.kind == "parameter" and one.where}
    entries = [weights.get((p.entry.name, p.entry.together)) if p.entry.kind == "gradient" else p.entry for p in found]
    said = [(one.where, text) for one in entries if one is not None and one.where and (text := evidence(one))]
    more = tuple(Evidence(text, "ledger", step=where.step) for where, text in said[:SHOWN])
    first = finding.causes[0]
    return replace(finding, causes=(replace(first, evidence=(*first.evidence, *more)), *finding.causes[1:]))


def reading(how: How, found: list[Parted]) -> str:
    """What the places say of the cause, for tensors that were equal; empty where not all were looked at."""
    wheres = [one.entry.where for one in found]
    if how is not How.CHANGED or not wheres or any(where is None for where in wheres):
        return ""
    if are_places(how, found):
        return ": there alone, as after a flipped bit, a stray write, or an update of those rows only"
    if all(where is not None and where.parts > 1 and where.unequal == where.parts for where in wheres):
        return ": throughout, as after another update or a load, not as after a flipped bit"
    return ""


def are_places(how: How, found: list[Parted]) -> bool:
    """Whether tensors that were equal differ in one place, or a few, alone."""
    wheres = [one.entry.where for one in found]
    return how is How.CHANGED and len(found) <= SHOWN and all(where is not None and is_place(where) for where in wheres)


def is_place(where: Where) -> bool:
    """Whether it is one place, or a few, in a tensor that is else the same."""
    return where.unequal <= max(where.parts * PLACE, 1) and where.parts > 1


def _verb(where: Where) -> str:
    return "differs" if where.rows == 1 else "differ"


def _span(span: Span) -> str:
    first, stop = span
    return f"{first}-{stop - 1}" if stop - first > 1 else str(first)


def _percent(part: float) -> str:
    percent = 100 * part
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.1g} %"


def _shape(entry: Entry) -> tuple[int, ...]:
    return entry.infos[min(entry.infos)].shape if entry.infos else ()


def _total(entry: Entry) -> int:
    shape = _shape(entry)
    return shape[0] if shape else 0
