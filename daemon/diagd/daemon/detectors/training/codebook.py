"""A codebook of which hardly any code is used.

The perplexity and the share of codes that one batch uses are bounded by the number of vectors in the batch, so that a
low share alone may be the batch's: a collapse is a low share with a perplexity of a few codes. Usage is low at many
healthy starts and then rises: nothing is said while it does.
"""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors.finding import Basis, Finding, Severity
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import Curve, figure, lasting
from diagd.daemon.detectors.training.run import Metric, Run, words_of
from diagd.daemon.detectors.training.saying import cause, finding, seen

LEAST = 40  # samples from the beginning on
LASTS = 20  # samples
USED = 0.1  # of the codes
HARDLY = 0.03  # of the codes, where no perplexity is logged
PERPLEXITY = 3.0  # of that many codes in use, whatever the batch
FALLEN = 0.3  # of its best, where it is also a FEW codes
OF_ITS_BEST = 0.1  # the perplexity or the number of codes in use, compared with what they were
FEW = {"codebook_active": 8.0, "codebook_perplexity": 6.0}  # codes: hardly a batch has fewer vectors than that
LARGE = 64  # codes
ONE_CODE = 0.5  # of all vectors
RISES = 1.25  # times what it was before the last samples: it is on its way up
_CODES = frozenset({"codebook", "codebooks", "quantizer", "quantize", "quantiser", "quant", "vq", "rvq", "codes"})
_LOGGED = ("codebook_perplexity", "codebook_usage", "codebook_active", "codebook_top_share", "codebook_dead")


def collapse(scene: Scene) -> Iterator[Finding]:
    """All that a run logs of its codebook, as one finding."""
    run = Run(scene)
    size = _size(run)
    low = [
        (m, text) for wanted in _LOGGED for m in run.metrics(wanted)
        if (text := _low(m, wanted) or _few(m, wanted, size))
    ]  # fmt: skip
    if not low:
        return
    kinds = {text.split("|")[0] for _, text in low}
    says = [text.split("|")[1] for _, text in low]
    perplexity = run.metric("codebook_perplexity")
    held_up = perplexity is not None and "perplexity" not in kinds and float(perplexity.curve.values[-1]) > 10
    severity = Severity.INFO if held_up or kinds == {"share"} else Severity.WARNING
    metric = low[0][0]
    text = f"most of the codebook is not used: {', '.join(says[:3])}"
    text += "; with few vectors in a batch that may be the batch's doing" if severity is Severity.INFO else ""
    evidence = [seen(said, m.rank) for (m, _), said in zip(low, says, strict=True)]
    why = cause("codes", "codes far from what the encoder puts out are never the nearest, so they get no gradient and"
                " stay where they are", 0.8, *evidence, basis=Basis.RESEARCH)  # fmt: skip
    yield finding("training.codebook_collapse", severity, run.ranks, text, why,
                  names=(*dict.fromkeys(m.name for m, _ in low), "codebook"), step=metric.curve.last_step)  # fmt: skip


def _low(metric: Metric, wanted: str) -> str:
    """What is low about it, as kind|text; empty where it is not."""
    curve = metric.curve
    if len(curve.steps) < LEAST or _rises(curve):
        return ""
    values, last = curve.values, curve.values[-LASTS:]
    best = float(np.sort(values)[-max(len(values) // 10, 1)])
    few = max(OF_ITS_BEST * best, min(FEW.get(wanted, 0.0), FALLEN * best))
    if wanted == "codebook_perplexity" and (last < max(PERPLEXITY, few)).all():
        return f"perplexity|{metric.name} {figure(last[-1])}"
    if wanted == "codebook_usage":
        scale = 100.0 if values.max() > 1 else 1.0
        if lasting(values < USED * scale) >= LASTS:
            kind = "hardly" if last[-1] < HARDLY * scale else "share"
            return f"{kind}|{metric.name} {figure(last[-1])}{' %' if scale > 1 else ''}"
    if wanted == "codebook_active" and (last <= max(2.0, few)).all():
        return f"active|{metric.name} {figure(last[-1])}"
    if wanted == "codebook_top_share" and values.max() <= 1 and (last > ONE_CODE).all():
        return f"top|{metric.name} {figure(last[-1])}"
    if wanted == "codebook_dead" and values.max() <= 1 and (last > 1 - USED).all():
        return f"dead|{metric.name} {figure(last[-1])}"
    return ""


def _few(metric: Metric, wanted: str, size: int) -> str:
    """The same, of a codebook of so many codes (0: not known), where it was so from the start."""
    curve, most = metric.curve, min(FEW.get(wanted, 0.0), HARDLY * size)
    if size < LARGE or len(curve.steps) < LEAST or _rises(curve) or not (curve.values <= most).all():
        return ""
    return f"{wanted.removeprefix('codebook_')}|{metric.name} {figure(curve.values[-1])} of a codebook of {size}"


def _size(run: Run) -> int:
    """How many codes the model's codebook has: by its name, or as the only embedding there is; 0 where neither is."""
    tables = {
        entry.name: next(iter(entry.infos.values())).shape
        for entry in run.state.tensors.entries
        if entry.kind in ("parameter", "buffer") and len(next(iter(entry.infos.values())).shape) == 2
    }
    parts = {name: set(words_of(name.partition(".")[2])) for name in tables}  # not by the name of the model's class
    named = [name for name, words in parts.items() if words & _CODES]
    embeddings = [name for name, words in parts.items() if words & {"embedding", "embed", "embeddings"}]
    # Projections into and out of a codebook are called after it too.
    found = [name for name in named if {"codebook", "embedding", "embed", "codes"} & parts[name]] or (
        embeddings if len(embeddings) == 1 else []
    )
    return min((tables[name][0] for name in found), default=0)


def _rises(curve: Curve) -> bool:
    before, now = curve.values[-2 * LASTS : -LASTS], curve.values[-LASTS // 2 :]
    return float(np.median(now)) > RISES * float(np.median(before))
