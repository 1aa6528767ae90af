"""How a verdict is known, in a line: the cause, and the facts that say most."""

from collections.abc import Mapping, Sequence
from typing import Any

from diagd.daemon.ranks import rank_ranges
from diagd.daemon.report.lines import cut, one_line

Json = Mapping[str, Any]
_FACTS = 2
_MAX_CAUSE = 300
_MAX = 460  # of all together; the facts have half of it in any case


def because_text(cause: Json, culprits: Sequence[int]) -> str:
    """The cause and, in brackets, two facts, of which one is a culprit's own where there is such a one."""
    text = cut(one_line(cause["cause"]), _MAX_CAUSE)
    facts = _shown(_facts(cause["evidence"]), culprits)
    return f"{text} [{'; '.join(_fitted(facts, max(_MAX - len(text), _MAX // 2)))}]"


def _facts(evidence: Sequence[Json]) -> dict[tuple[str, str], list[int]]:
    """The ranks of each fact, which is there once though several have it."""
    found: dict[tuple[str, str], list[int]] = {}
    for one in evidence:
        ranks = found.setdefault((one_line(one["what"]), one["source"]), [])
        if one.get("rank") is not None:
            ranks.append(one["rank"])
    return found


def _shown(facts: Mapping[tuple[str, str], Sequence[int]], culprits: Sequence[int]) -> list[tuple[str, str]]:
    chosen = list(facts)[:_FACTS]
    own = [fact for fact, ranks in facts.items() if set(ranks) & set(culprits)]
    if own and not set(own) & set(chosen):
        chosen[-1] = own[0]
    apart = len({tuple(facts[fact]) for fact in chosen}) > 1
    return [(_with_ranks(what, facts[what, source]) if apart else what, f" ({source})") for what, source in chosen]


def _with_ranks(what: str, ranks: Sequence[int]) -> str:
    return f"{rank_ranges(ranks, named=True)}: {what}" if ranks and not what.startswith("rank") else what


def _fitted(texts: Sequence[tuple[str, str]], room: int) -> list[str]:
    """Each with its source and as much of it as there is room for; what a short one leaves is the others'."""
    fitted = {}
    order = sorted(range(len(texts)), key=lambda place: len(texts[place][0]))
    for left, place in zip(range(len(texts), 0, -1), order, strict=True):
        what, source = texts[place]
        fitted[place] = cut(what, room // left - len(source)) + source
        room -= len(fitted[place])
    return [fitted[place] for place in range(len(texts))]
