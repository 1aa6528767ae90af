"""Second moments in half precision, whose decay changes nothing.

Multiplied by beta2, a number v loses (1 - beta2) v. Two numbers of bfloat16 (8 significant bits) lie at least 2^-8 v
apart, so a loss below 2^-9 v rounds back to v (IEEE 754, round to nearest): with beta2 0.999, as it is by default, that
holds of every v. The moment then rises with large gradients and never falls, and steps stay as small as it was high.
Training often works all the same, so it is worth knowing and no more.
"""

import re
from collections.abc import Iterator
from functools import cache

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.job import JobState

SECOND = ".exp_avg_sq"
HALF_STEP = {"bfloat16": 2.0**-9, "float16": 2.0**-12}  # the least that a number can lose, in relation to itself
NAMES = 8
_BETAS = re.compile(r"\bbetas=[(\[][\d.e-]+,([\d.e-]+)")


def half_moments(scene: Scene) -> Iterator[Finding]:
    """One finding for all ranks and tensors."""
    state = scene.state
    betas = cache(lambda rank: _beta(state, rank))
    dtypes: dict[str, str] = {}
    ranks: set[int] = set()
    for entry in state.tensors.entries:
        if entry.kind == "state" and entry.name.endswith(SECOND):
            for rank, info in entry.infos.items():
                half = HALF_STEP.get(info.dtype)
                if half is not None and (beta := betas(rank)) is not None and 1 - beta < half:
                    dtypes[entry.name.removesuffix(SECOND)] = info.dtype
                    ranks.add(rank)
    if ranks:
        yield _finding(state, tuple(sorted(ranks)), dtypes)


def _beta(state: JobState, rank: int) -> float | None:
    """The least decay of any optimizer's second moments, the fastest."""
    facts = (text for name, (_, text) in state.signals.facts(rank).items() if name.startswith("optimizer/"))
    found = [float(match[1]) for text in facts if (match := _BETAS.search(text))]
    return min(found, default=None)


def _finding(state: JobState, ranks: tuple[int, ...], dtypes: dict[str, str]) -> Finding:
    names, dtype = list(dtypes), next(iter(dtypes.values()))
    beta = _beta(state, ranks[0])
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    text = (
        f"the optimizer of {words.ranks_text(ranks)} keeps its second moments in {dtype} ({shown}), where a decay of"
        f" {beta:g} rounds back to what was: they rise and never fall"
    )
    why = f"(1 - {beta:g}) of a number is less than half of what two numbers of {dtype} differ by"
    seen = Evidence(f"exp_avg_sq of {len(names)} parameters is {dtype}, beta2 is {beta:g}", "ledger", ranks[0])
    return Finding(
        "precision.underflow", Severity.INFO, ranks, words.shortened(text),
        (Cause("decay", why, 0.8, Basis.OBSERVATION, (seen,)),), names=(*names[:NAMES], "exp_avg_sq", dtype),
        step=1, sure=True, goes_on=True, key="decay",
    )  # fmt: skip
