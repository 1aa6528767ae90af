"""A link between two ranks or hosts that is slow: ranks come late to others because of it."""

from diagd.daemon.detectors import links, words
from diagd.daemon.detectors.finding import Basis, Cause, Finding, Severity
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.slow_finding import KEY
from diagd.daemon.detectors.slowness import CURRENT_S, Current


def slow_link(scene: Scene, steps: Current) -> Finding | None:
    """Two ranks, or hosts, between which all takes long though both are there."""
    if (link := links.slow_link(scene.state, steps)) is None:
        return None
    slowest_s = max(c.seconds for c in link.slow)
    said = (
        f"{links.what(link)} between {_pairs_text(link)} take up to {1000 * slowest_s:.0f} ms once both are there,"
        f" those of other pairs {1000 * link.quick_s:.1f} ms: the link {link.where} is slow"
    )
    said += f" ({link.not_known} is not known)" if link.not_known else ""
    waiting = tuple(r for r in sorted(steps.now) if r not in link.ranks)
    cause = Cause("link", f"the link {link.where} is slow", 0.85, Basis.OBSERVATION, link.evidence())
    return Finding(
        kind="slow.collective", severity=Severity.WARNING, ranks=link.ranks, waiting_ranks=waiting,
        summary=words.shortened(said + "."), causes=(cause,), step=scene.step(link.ranks),
        since_s=scene.state.now_s - CURRENT_S, goes_on=True, key=KEY,
    )  # fmt: skip


def _pairs_text(link: links.SlowLink) -> str:
    pairs = sorted({c.ranks for c in link.slow})
    return ", ".join(f"ranks {a} and {b}" for a, b in pairs[:3]) + (", …" if len(pairs) > 3 else "")
