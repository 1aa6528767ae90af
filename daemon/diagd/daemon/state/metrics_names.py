"""What a logged metric is, by the name that its script gave it: one table for all who read logged metrics.

Names are compared as words: `train/KL_Loss`, `kl loss` and `klLoss` are one. Words that say which split (`train`,
`val`) or which mean (`avg`, `step`) are taken off before the table is asked. A metric of a held-out split keeps `val_`
in front, where the split makes it another quantity: `val_loss`, `val_accuracy`.

Traps of single quantities, for who judges them: a mean of `advantage` is 0 wherever advantages are normalised, so look
at `advantage_std`; `kl` is 0 before the first update; `perplexity` is a language model's or a codebook's, and
`codebook_perplexity` finds both where other metrics of a codebook are logged beside it; what was read from printed text
is rounded, see `resolution`.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Protocol

from diagd.daemon.state.metric_spellings import DECORATION, HELD_OUT, NO_QUANTITY, SCOPES, SIGNS, SPELLINGS, TRAIN

PREFIX = "logged/"  # of what the script logs itself, among a rank's signals
_ROUNDED = "decimals "  # begins a fact under the signal's name, where its values were read from printed text


class Signals(Protocol):
    """What is needed of `state.signals`."""

    def names(self, rank: int, /) -> tuple[str, ...]:
        """All signals of a rank."""

    def fact(self, rank: int, name: str, /) -> tuple[int, str] | None:
        """The newest fact of that name: step and text."""


class HasSignals(Protocol):
    """What is needed of a JobState."""

    @property
    def signals(self) -> Signals:
        """Its series."""

    @property
    def metric_names(self) -> Mapping[str, str]:
        """The user's own table: metric as logged -> canonical name."""


CANONICAL: frozenset[str] = frozenset({*SPELLINGS, "norm", "loss_part"})
# Also as val_…: on another split these are other quantities.
SPLIT: frozenset[str] = frozenset({"loss", "accuracy", "perplexity", "entropy", "reward", "loss_part", "kl"})
LOSS_PARTS: frozenset[str] = frozenset(
    {"loss_part", "commitment_loss", "reconstruction_loss", "policy_loss", "value_loss", "entropy_loss"}
)
# Where one of these is logged, a plain `perplexity` or `usage` is the codebook's.
_CODEBOOK = frozenset({"commitment_loss", "codebook_usage", "codebook_active", "codebook_dead", "codebook_top_share"})

_BARE_USAGE = frozenset({("usage",), ("utilization",), ("utilisation",)})
_TABLE = {spelling: known for known, text in SPELLINGS.items() for spelling in text.split("|")}
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def canonical(name: str, own: Mapping[str, str] | None = None) -> str | None:
    """What a metric is; None where its name does not tell.

    Args:
        name: As logged, with or without the `logged/` in front.
        own: The user's own table, which comes first; an empty name there means: nothing that is known.

    Returns:
        One of CANONICAL, or `val_` and one of SPLIT. `loss_part` is some term of a loss, see `part`; `norm` the norm of
        something that is no gradient and no parameter.
    """
    plain = name.removeprefix(PREFIX)
    if own and plain in own:
        return own[plain] or None
    return _canonical(plain)[0]


def part(name: str) -> str:
    """Which term of the loss a metric is (`depth` of `loss_depth`); empty where it is none, or the whole loss."""
    return _canonical(name.removeprefix(PREFIX))[1]


def find(state: HasSignals, rank: int, wanted: str) -> tuple[str, ...]:
    """The signals of a rank that hold a quantity, those with the plainest names first.

    Args:
        wanted: A canonical name. `loss_part` finds all terms, also those that have a name of their own; `loss` also
            finds the one metric that is named like a term (`contrastive_loss`) where no other loss is logged.
    """
    known = _known(state, rank)
    if wanted in ("loss_part", "val_loss_part"):
        parts = LOSS_PARTS if wanted == "loss_part" else {"val_loss_part"}
        return _plainest(
            name for name, one in known.items() if one in parts or (one == "kl" and "loss" in _words(name))
        )
    found = _plainest(name for name, one in known.items() if one == wanted)
    if wanted.startswith("codebook_") and _CODEBOOK & set(known.values()):
        found += _of_codebook(state.signals.names(rank), wanted)
    if not found and wanted in ("loss", "val_loss"):
        terms = [name for name, one in known.items() if one == wanted + "_part"]
        return tuple(terms) if len(terms) == 1 else ()
    return found


def resolution(state: HasSignals, rank: int, signal: str) -> float:
    """By how much a value may be off because it was read from text with so many decimals; 0 where it is exact.

    A loss printed as 0.0000 is below 5e-5, and not known to be 0.
    """
    fact = state.signals.fact(rank, signal)
    if fact is None or not fact[1].startswith(_ROUNDED):
        return 0.0
    decimals = fact[1].removeprefix(_ROUNDED)
    return float(0.5 * 10.0 ** -int(decimals)) if decimals.isdecimal() else 0.0


def _of_codebook(names: Iterable[str], wanted: str) -> tuple[str, ...]:
    """Names that mean this only beside others of a codebook."""
    logged = [name for name in names if name.startswith(PREFIX)]
    if wanted == "codebook_perplexity":
        return tuple(name for name in logged if canonical(name) == "perplexity")
    return tuple(name for name in logged if wanted == "codebook_usage" and _words(name) in _BARE_USAGE)


def _known(state: HasSignals, rank: int) -> dict[str, str]:
    """Each signal of the rank that the script logs, with what it is."""
    found = {}
    for name in state.signals.names(rank):
        if name.startswith(PREFIX) and (one := canonical(name, state.metric_names)) is not None:
            found[name] = one
    return found


def _plainest(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=lambda name: (len(_words(name)), len(name), name)))


@lru_cache(maxsize=4096)
def _canonical(name: str) -> tuple[str | None, str]:
    """What it is, and which term of a loss."""
    if name in SIGNS:
        return SIGNS[name], ""
    every = _words(name)
    words = [word for word in every if word not in TRAIN and word not in HELD_OUT]
    held_out = len(words) < len(every) and any(word in HELD_OUT for word in every)
    for candidate in _candidates(words):
        known = _TABLE.get(" ".join(candidate))
        if known is not None:
            return _split(known, held_out), _part(candidate) if known in LOSS_PARTS or known == "kl" else ""
    plain = [word for word in words if word not in DECORATION] or words
    return _by_shape(plain, held_out)


def _candidates(words: list[str]) -> Iterable[list[str]]:
    """The name as it is, then with ever more taken off that may be decoration."""
    yield words
    plain = [word for word in words if word not in DECORATION]
    yield plain
    yield [word for word in plain if not (word.isdecimal() or word in SCOPES)]
    yield [word for word in plain if word not in SCOPES]


def _by_shape(words: list[str], held_out: bool) -> tuple[str | None, str]:
    """What a name that the table does not hold is, by the words in it."""
    if len(words) > 2 and _TABLE.get(" ".join(words[-2:])) == "clamp_share":
        return "clamp_share", ""  # of what is named in front of it
    if NO_QUANTITY & set(words) or not words:
        return None, ""
    if "lr" in words or _follow(words, "learning", "rate"):
        return "lr", ""
    if words[-1] in ("loss", "losses", "mse", "nll", "bce", "xent", "ce", "l1", "l2") or words[0] in ("loss", "losses"):
        return _split("loss_part", held_out), _part(words)
    if len(words) > 1 and words[0] == "l" and len(words) == 2:
        return _split("loss_part", held_out), words[1]
    if words[-1] == "norm" and not {"grad", "gradient", "gradients", "grads", "param", "weight"} & set(words):
        return "norm", ""
    if {"codebook", "code", "codes"} & set(words) and words[-1] in ("perplexity", "usage", "utilization"):
        return "codebook_perplexity" if words[-1] == "perplexity" else "codebook_usage", ""
    if words[-1] in ("acc", "accuracy"):
        return _split("accuracy", held_out), ""
    return None, ""


def _split(known: str, held_out: bool) -> str:
    return f"val_{known}" if held_out and known in SPLIT else known


def _part(words: list[str]) -> str:
    return " ".join(word for word in words if word not in ("loss", "losses"))


def _follow(words: list[str], first: str, second: str) -> bool:
    return (first, second) in pairwise(words)


@lru_cache(maxsize=4096)
def _words(name: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _WORDS.findall(name.removeprefix(PREFIX)))
