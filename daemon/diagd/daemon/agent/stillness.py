"""Since when a process does nothing that can be seen: of one that is no rank yet, its numbers are not sent."""

from diagd.daemon.state.model import GROWTH, MARK_S, Facts


class Stillness:
    """One process's."""

    def __init__(self) -> None:
        self.since_s = 0.0  # 0 before the first look
        self._marks: dict[str, tuple[float, float]] = {}  # total -> what it was, and when

    def note(self, fact: Facts, now_s: float) -> None:
        """Take the numbers of a look: the same growth counts as a sign of life that counts as one of a rank's."""
        grown = [self._grew(name, getattr(fact, name), rate, least, now_s) for name, (_, rate, least) in GROWTH.items()]
        if any(grown) or not self.since_s:
            self.since_s = now_s

    def _grew(self, name: str, value: float, rate: float, least: float, now_s: float) -> bool:
        mark, marked_s = self._marks.get(name, (value, now_s))
        grew = value - mark > rate * (now_s - marked_s) + least
        if grew or name not in self._marks or now_s - marked_s > MARK_S:
            self._marks[name] = value, now_s
        return grew
