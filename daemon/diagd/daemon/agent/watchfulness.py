"""What of a look is worth sending, and how soon the next one is due."""

from collections.abc import Sequence

from diagd.daemon.state.model import Detail, Facts, Status

LONG_WAIT_S = 1.0  # an operation that blocks longer makes a rank suspicious
# Details are read at every look, since detectors weigh one rank's against another's; but where there are very many
# groups that may take no more than this share of a core.
SHARE = 0.005
SUSPICIOUS_SHARE = 0.1
REFRESH_EVERY_S = 30.0
LATE_NEWS_S = 3.0  # an exit code may be seen only some time after the process is gone
STEADY_AFTER_S = 60.0  # most faults show early; what has run so long without a sign of one is looked at less often
STEADY_LOOKS = 4.0  # times the usual distance of two looks, as long as
SETTLED_AFTER_S = 10.0  # and what has run for so long half as often as at first, where looks take
SETTLED_LOOKS = 2.0
COSTLY_SHARE = 0.008  # of a core or more, as with eight ranks
GLANCE_PART = 0.5  # of the distance of two looks: from there on, a glance shows each time that all ranks get on
OWN_TRACING_S = 3.5  # a dump traces a rank for up to 2.5 s
_ORDINARY = (Status.RUNNING, Status.BLOCKED)


class Watchfulness:
    """Decides of which ranks the detail is to be read now, and which of what was read is news."""

    def __init__(self) -> None:
        self._pids: dict[int, int] = {}
        self._status: dict[int, Status] = {}
        self._gone_s: dict[int, float] = {}
        self._sent: dict[int, Detail] = {}
        self._read_s = 0.0
        self._refreshed_s = 0.0
        self._cost_s = 0.0
        self._calm_since_s = 0.0
        self.suspicious = False
        self.looks = 1.0  # times the usual distance of two looks

    def due(self, facts: Sequence[Facts], now_s: float, look_share: float = 0.0) -> list[int]:
        """The ranks whose detail is to be read now: all that may have changed, as often as that is cheap.

        `look_share` is what looks at their usual distance take of a core.
        """
        unusual = any(self._is_unusual(f) for f in facts)
        changed = {f.rank for f in facts if self._is_changed(f, now_s)}
        self.suspicious = any(_is_suspicious(f, now_s) for f in facts)
        if self.suspicious or unusual or not self._calm_since_s or any(_passes(f) for f in facts):
            self.disturbed(now_s)
        calm_s = now_s - self._calm_since_s
        settled = calm_s >= SETTLED_AFTER_S and look_share >= COSTLY_SHARE
        self.looks = STEADY_LOOKS if calm_s >= STEADY_AFTER_S else SETTLED_LOOKS if settled else 1.0
        share = SUSPICIOUS_SHARE if self.suspicious else SHARE
        if now_s - self._read_s >= self._cost_s / share:
            self._read_s = now_s
            return [f.rank for f in facts if f.rank in changed or not self._is_old_news(f, now_s)]
        return sorted(changed)

    def news(self, details: Sequence[Detail], now_s: float, cost_s: float) -> list[Detail]:
        """Those that differ from what was sent before; now and then all, for an aggregator that has lost them."""
        self._cost_s = cost_s
        refresh = now_s - self._refreshed_s >= REFRESH_EVERY_S
        if refresh:
            self._refreshed_s = now_s
        found = [d for d in details if refresh or self._sent.get(d.rank) != d]
        self._sent.update((d.rank, d) for d in found)
        return found

    def disturbed(self, now_s: float) -> None:
        """Something was out of the ordinary."""
        self._calm_since_s, self.looks = now_s, 1.0

    def forget_sent(self) -> None:
        """Take all as news: another aggregator listens now."""
        self._sent.clear()

    def _is_unusual(self, fact: Facts) -> bool:
        """Whether it is another process, or otherwise than at work or in an operation, which each rank is by turns."""
        known = self._status.get(fact.rank)
        return self._pids.get(fact.rank) != fact.pid or known not in _ORDINARY or fact.status not in _ORDINARY

    def _is_changed(self, fact: Facts, now_s: float) -> bool:
        changed = self._pids.get(fact.rank) != fact.pid or self._status.get(fact.rank) != fact.status
        if changed and fact.status.gone:
            self._gone_s[fact.rank] = now_s
        self._pids[fact.rank], self._status[fact.rank] = fact.pid, fact.status
        return changed

    def _is_old_news(self, fact: Facts, now_s: float) -> bool:
        return fact.status.gone and now_s - self._gone_s.get(fact.rank, now_s) > LATE_NEWS_S


def _is_suspicious(fact: Facts, now_s: float) -> bool:
    waits = fact.wait_s > 0 and now_s - fact.wait_s > LONG_WAIT_S
    return waits or fact.status not in _ORDINARY or fact.finalizing or fact.main_state in "TtDZ"


def _passes(fact: Facts) -> bool:
    """Whether it sends and receives: so many operations that some would be overwritten before they are read."""
    return any(key.startswith("held_s|") for key in fact.extra)


class Tracing:
    """Hides the moments in which a look of diagd's own (py-spy, for native frames) holds a rank still.

    A debugger holds it for longer, and then it counts as stopped.
    """

    def __init__(self) -> None:
        self._before: dict[int, Facts] = {}
        self._since_s: dict[int, float] = {}

    def hide(self, facts: Sequence[Facts], now_s: float) -> None:
        """Let a rank that has just been traced look as it did before."""
        for fact in facts:
            if fact.main_state != "t":
                self._since_s.pop(fact.rank, None)
                self._before[fact.rank] = fact
                continue
            since_s = self._since_s.setdefault(fact.rank, now_s)
            before = self._before.get(fact.rank)
            if before is not None and before.pid == fact.pid and now_s - since_s < OWN_TRACING_S:
                fact.status, fact.main_state = before.status, before.main_state
