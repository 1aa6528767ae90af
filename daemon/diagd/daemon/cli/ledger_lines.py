"""What `diagd ledger compare` says, in lines: tensors of which the same is said together."""

import textwrap
from collections import Counter

from diagd.daemon.analyze.ledgers import Comparison

SHOWN = 20  # tensors of each kind
_INDENT = 14
_WIDTH = 120
_STEPS = 4

Listed = list[tuple[str, str]]


def lines(found: Comparison) -> list[str]:
    """Those that are not equal, by what is said of them, and the counts, with the steps that equal ones are of."""
    told = []
    for title, listed in (("differ", found.different), ("missing", found.missing), ("not compared", found.unknown)):
        told += _listed(title, listed)
    if found.other_moments and found.shared:
        steps = ", ".join(map(str, found.shared[:_STEPS])) + (", …" if len(found.shared) > _STEPS else "")
        told.append(f"--step N compares what both held after one step; both have sampled after {steps}")
    counts = f"{_equal(found.equal)}, {len(found.different)} differ, {len(found.missing)} missing"
    kind = f"{found.kind}: " if found.kind else ""
    return [*told, f"{kind}{counts}, {len(found.unknown)} not compared"]


def _listed(title: str, listed: Listed) -> list[str]:
    by_why: dict[str, list[str]] = {}
    for name, why in listed[:SHOWN]:
        by_why.setdefault(why, []).append(name)
    many = Counter(why for _, why in listed)
    told = []
    for why, names in by_why.items():
        if many[why] == 1:
            told.append(f"{title:{_INDENT}}{names[0]}: {why}")
            continue
        told.append(f"{title:{_INDENT}}{many[why]} tensors: {why}")
        told += textwrap.wrap(
            ", ".join(names) + (f" and {many[why] - len(names)} more" if many[why] > len(names) else ""),
            _WIDTH, initial_indent=" " * _INDENT, subsequent_indent=" " * _INDENT,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
    if len(listed) > SHOWN:
        told.append(f"{title:{_INDENT}}{len(listed)} in all (--json shows all)")
    return told


def _equal(listed: Listed) -> str:
    """How many, and as they were after which steps: each, where these are several."""
    whens = Counter(why for _, why in listed if why)
    count = f"{len(listed)} tensor{'s' * (len(listed) != 1)} equal"
    if not whens:
        return count
    if len(whens) == 1:
        return f"{count} ({next(iter(whens))})"
    return f"{count} ({', '.join(f'{many} {when}' for when, many in whens.most_common())})"
