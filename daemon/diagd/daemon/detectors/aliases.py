"""Names of tensors as the script knows them, where the ledger has a model by a class that says little."""

from dataclasses import replace

from diagd.daemon.detectors.finding import Finding
from diagd.daemon.state.job import JobState

FACT = "models/aliases"


def aliased(state: JobState, finding: Finding) -> Finding:
    """The same with the script's own variable in place of a title, in all that is said."""
    known = {f"{title}.": f"{name}." for title, name in _agreed(state).items()}
    if not known or not any(name.startswith(tuple(known)) for name in finding.names):
        return finding

    def said(text: str) -> str:
        for title, name in known.items():
            text = text.replace(title, name)
        return text

    causes = tuple(
        replace(cause, text=said(cause.text), evidence=tuple(replace(e, what=said(e.what)) for e in cause.evidence))
        for cause in finding.causes
    )
    return replace(finding, summary=said(finding.summary), names=tuple(map(said, finding.names)), causes=causes)


def _agreed(state: JobState) -> dict[str, str]:
    """Title and variable, of those that all ranks that tell of them call alike, each variable but one model."""
    told: dict[str, set[str]] = {}
    for rank in state.signals.ranks("loss") or tuple(state.ranks()):
        fact = state.signals.fact(rank, FACT)
        for line in fact[1].splitlines() if fact is not None else ():
            title, _, name = line.partition("\t")
            told.setdefault(title, set()).add(name)
    agreed = {title: names.pop() for title, names in told.items() if len(names) == 1 and "" not in names}
    return {title: name for title, name in agreed.items() if list(agreed.values()).count(name) == 1}
