"""The words for each kind: what it looks like, how it comes about, what to do. They stand in TOML files."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

FILES = ("catalog.toml", "training.toml")


@dataclass(frozen=True, slots=True)
class Fix:
    """What to do about a cause, what it should change, how to see that it did, and what next if it did not."""

    action: str
    expected: str
    verify: str
    if_not: str
    will_not_fix: str = ""

    def as_json(self) -> dict[str, str]:
        """As report.schema.json has it."""
        said = {"action": self.action, "expected": self.expected, "verify": self.verify, "if_not": self.if_not}
        return {**said, **({"will_not_fix": self.will_not_fix} if self.will_not_fix else {})}


@dataclass(frozen=True, slots=True)
class Entry:
    """One kind's page."""

    kind: str
    title: str
    symptom: str
    mechanism: str
    causes: dict[str, Fix]

    def fix(self, key: str) -> Fix:
        """The fix for a cause; the first of the page where the cause has none of its own."""
        return self.causes.get(key) or next(iter(self.causes.values()))


@cache
def _pages() -> dict[str, Entry]:
    folder = files("diagd.daemon.incidents")
    raw = {
        kind: page
        for name in FILES
        for kind, page in tomllib.loads(folder.joinpath(name).read_text(encoding="utf-8")).items()
    }
    return {
        kind: Entry(
            kind, page["title"], page["symptom"], page["mechanism"], {k: Fix(**f) for k, f in page["fix"].items()}
        )
        for kind, page in raw.items()
    }


def entry(kind: str) -> Entry:
    """The page of a kind.

    Raises:
        KeyError: There is no such kind.
    """
    return _pages()[kind]


KINDS: tuple[str, ...] = tuple(_pages())  # all kinds that diagd reports
