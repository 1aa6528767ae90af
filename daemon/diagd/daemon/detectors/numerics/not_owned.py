"""Parameters with gradients that are in no optimizer, and why: each way is a rule of its own."""

from diagd.daemon.detectors.finding import Severity
from diagd.daemon.detectors.numerics.counted import COUNTS, Counts, Dead

FEW = 1 / 3  # of those that an optimizer owns


def replaced(counts: Counts) -> Dead | None:
    """The optimizer holds what no module holds any more, and what has come in its place is in none."""
    idle, strangers, unowned = (counts.always(what) for what in ("strangers_idle", "strangers", "unowned"))
    if not idle or idle < max(counts.last("strangers", COUNTS)) or not unowned:
        return None
    owned = counts.last("owned")[-1]
    if owned and unowned > 2 * idle and not counts.always("unowned_behind"):
        return None  # of another model, which is there for its gradients alone
    names = counts.names("unowned")
    shown = ", ".join(names[:3])
    text = (
        f"the optimizer does not own {unowned:.0f} parameters of the model ({shown}): they have gradients and stand"
        f" still; in their place it owns {idle:.0f} tensors that no module holds any more and that have no gradient"
    )
    if not owned:
        text = f"no step updates the model: {text}"
    return Dead(
        "replaced", Severity.CRITICAL, text,
        "the optimizer was made before the model's parameters were replaced (a new head, a wrapper that flattens them)",
        (*names, "optimizer"), counts.since("unowned"), 0.95,
        (f"{unowned:.0f} parameters with a gradient in no optimizer, unchanged between two counts: {', '.join(names)}",
         f"{idle:.0f} of {strangers:.0f} tensors in the optimizer that are in no module have no gradient"),
    )  # fmt: skip


def copied(counts: Counts) -> Dead | None:
    """The optimizer holds one copy of the model, and another one is trained with."""
    fed, bare, owned = counts.always("copies_fed"), counts.always("bare"), counts.last("owned")
    if not fed or not owned or bare < owned[-1]:
        return None
    names = counts.names("without_gradient")
    text = (
        f"no step updates the model: the {bare:.0f} parameters in the optimizer have no gradient, and {fed:.0f} of"
        " another copy of the same model have one and are in no optimizer"
    )
    return Dead(
        "replaced", Severity.CRITICAL, text,
        "the optimizer was made with one copy of the model, and the forward pass goes through another (a deepcopy, a"
        " model that was built or loaded anew)",
        (*names, "optimizer"), counts.since("copies_fed"), 0.95,
        (f"{fed:.0f} parameters with a gradient in a copy in no optimizer, none of the {bare:.0f} in the owned one",),
    )  # fmt: skip


def unlisted(counts: Counts) -> Dead | None:
    """Parameters in a plain list or dictionary of the model: they take part, and nobody is given them.

    A network that is loaded and kept there on purpose, so that it does not train, is worth knowing at most.
    """
    found, news = counts.always("unlisted", COUNTS), counts.last("unlisted_fresh")
    if not found:
        return None
    names = counts.names("unlisted")
    text = (
        f"{found:.0f} parameters of the model lie in a plain list or dictionary ({', '.join(names[:3])}): they have"
        " gradients and stand still, no optimizer and no checkpoint has them"
    )
    return Dead(
        "unlisted", Severity.WARNING if news and news[-1] else Severity.INFO, text,
        "modules in a list or dictionary are no part of the model for torch: nn.ModuleList, nn.ModuleDict or"
        " nn.ParameterList makes them one",
        names, counts.since("unlisted"), 0.9,
        (f"{found:.0f} parameters with a gradient in no optimizer, unchanged between counts: {', '.join(names)}",),
    )  # fmt: skip


def forgotten(counts: Counts) -> Dead | None:
    """Parameters with gradients that are in no optimizer, behind others that are, or in one module with them.

    In front of all others they may be left as they are on purpose, where they are few that is worth knowing.
    """
    unowned, behind = counts.always("unowned", COUNTS + 1), counts.always("unowned_behind", COUNTS + 1)
    fed = min((a - b for a, b in zip(counts.last("strangers"), counts.last("strangers_idle"), strict=False)), default=0)
    if not unowned or fed:  # its own copies with gradients: master weights
        return None
    sure = behind or counts.always("unowned_beside", COUNTS + 1)
    if not sure and unowned > FEW * counts.last("owned")[-1]:
        return None
    names = counts.names("unowned")
    if _step_elsewhere(counts, names):
        return None
    text = (
        f"{unowned:.0f} parameters have gradients and are in no optimizer: {', '.join(names[:3])} stand still while the"
        f" rest of the model trains"
    )
    return Dead(
        "forgotten", Severity.WARNING if sure else Severity.INFO, text,
        "the optimizer was not given all parameters that are to train",
        names, counts.since("unowned"), 0.85,
        (f"{unowned:.0f} parameters with a gradient in no optimizer, unchanged between counts: {', '.join(names)}",),
    )  # fmt: skip


def _step_elsewhere(counts: Counts, names: tuple[str, ...]) -> bool:
    """Whether they are in the optimizer of another rank, where ranks step a part each."""
    known = {name for one in counts.scene.state.tensors.entries if one.kind == "parameter" for name in (one.name,)
             if any(info.owned for info in one.infos.values())}  # fmt: skip
    return bool(names) and known.issuperset(name.rstrip("…") for name in names)
