"""Metrics that training has left in files, judged by the live road's detectors as if they came now.

They are fed in the order of their steps and judged again and again, so that what came and went is found too. Of a run
with more samples than can be judged so, every second, third, … sample is fed, and all those that are far off or not
finite.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from diagd.daemon.aggregator.judging import Judge, default_judge
from diagd.daemon.aggregator.reporting import job_report
from diagd.daemon.analyze.feeding import to_feed
from diagd.daemon.analyze.left_open import left_open
from diagd.daemon.analyze.nonfinite import KIND, NonFinite
from diagd.daemon.analyze.places import Places
from diagd.daemon.artifacts.columns import Floats, Ints, Key
from diagd.daemon.artifacts.merging import Notes, merged
from diagd.daemon.artifacts.reading import Reading
from diagd.daemon.artifacts.sources import RunFiles, runs_of
from diagd.daemon.artifacts.stepping import Stretch
from diagd.daemon.detectors.finding import Finding, Severity
from diagd.daemon.errors import DiagdError
from diagd.daemon.incidents.incident import Incident
from diagd.daemon.incidents.over import GONE_S
from diagd.daemon.ranks import rank_ranges
from diagd.daemon.state.job import JobState
from diagd.daemon.state.metrics_names import PREFIX, canonical, find, resolution
from diagd.daemon.state.model import Detail, Facts

USAGE = 2
FED = 30_000  # samples of one metric that are fed in all
FIRST, MOST = 16, 32
LEAST = 10  # samples of a run that is spoken of where there are others
# What the probes measure under diagd, and what of the script's own stands in for it here. A norm that is logged is most
# often what clipping returned.
MEASURED = {
    "loss": ("loss",),
    "grad_norm": ("grad_norm", "clip_norm"),
    "lr": ("lr/0",),
    "loss_scale": ("scaler/scale",),
}
SILENT = ("training.", "numerics.", "precision.", "divergence.", "memory.")  # of the rest nothing is known
LOOKS = 2  # before the end, of which one shows that what it finds still stands
_TICK_S = 1.0  # between two judgements on the clock that incidents are told

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Scanned:
    """One run's report."""

    report: dict[str, Any]
    headline: str
    partial: bool  # something of it could not be read

    @property
    def faulty(self) -> bool:
        """Whether a fault was found, also one that was over in the end."""
        return any(i["peak_severity"] != "info" for i in self.report["incidents"])


def scan(
    paths: Sequence[Path], *, names: Mapping[str, str] | None = None, progress: Progress = lambda done, of: None
) -> list[Scanned]:
    """Judge each run that the files hold.

    Args:
        names: The user's own table of metrics, see `state.metrics_names`.
        progress: Told bytes read, and bytes in all.

    Raises:
        DiagdError: There is no such file, or no metric in them.
    """
    for path in paths:
        if not path.exists():
            raise DiagdError(f"{path}: there is no such file or folder", help=_HELP, exit_code=USAGE)
    runs, problems = runs_of(paths)
    total, done = sum(run.size for run in runs), 0

    def told(count: int) -> None:
        nonlocal done
        done += count
        progress(min(done, total), total)

    found: list[Scanned] = []
    with Reading(total) as reading:
        for run in runs:
            found += _run(run, reading, names or {}, told)
    progress(total, total)
    if not found:
        said = [f"{path} {why}" for path, why in problems.items()]
        raise DiagdError(f"{paths[0]}: holds no metrics", help="\n".join([_HELP, *said[:5]]), exit_code=USAGE)
    for path, why in problems.items():
        found[0].report["notes"].append(f"{path} {why}")
        found[0].partial = True
    return found


_HELP = "name a log, a .jsonl or .csv of metrics, an event file, a trainer_state.json, a .wandb file, or their folder"


def _run(run: RunFiles, reading: Reading, names: Mapping[str, str], told: Callable[[int], None]) -> list[Scanned]:
    """The runs in the files of one: a file may have been written by several, one after the other."""
    notes = Notes(lambda metric: canonical(metric, names) == "loss")
    feeds: list[_Feed] = []
    newest_s = max((source.path.stat().st_mtime for stream in run.streams for source in stream), default=0.0)
    try:
        for stretch in merged(run.streams, reading, notes, told):
            if not feeds or stretch.run != feeds[-1].run:
                feeds.append(_Feed(run.name, stretch.run, newest_s, names))
            feeds[-1].take(stretch)
    except OSError as exc:
        notes.broken[run.name] = f"not readable to its end ({exc.strerror or exc})"
    feeds = [feed for feed in feeds if feed.longest >= LEAST] or feeds[-1:]
    for number, feed in enumerate(feeds, 1):
        feed.end()
        if len(feeds) > 1:
            feed.state.job_id = f"{run.name} (run {number} of {len(feeds)})"
    return [feed.scanned(notes if feed is feeds[0] else Notes()) for feed in feeds]


@dataclass(slots=True)
class _Feed:
    """One run: takes its stretches in order, and judges."""

    name: str
    run: int
    newest_s: float
    names: Mapping[str, str]
    state: JobState = field(init=False)
    judge: Judge = field(init=False)
    book: Any = field(init=False)
    _places: Places = field(default_factory=Places)
    _losses: NonFinite = field(init=False)
    longest: int = 0  # samples of the metric that has the most
    # What the last looks found: evidence comes and goes with its samples, and one look that misses it ends nothing.
    _lately: deque[list[Finding]] = field(default_factory=lambda: deque(maxlen=LOOKS))
    _since: int = 0  # of those, since the last judgement
    _counts: dict[Key, int] = field(default_factory=dict)
    _stand_ins: dict[tuple[int, str], str] = field(default_factory=dict)  # rank and quantity -> metric

    def __post_init__(self) -> None:
        self.state = JobState(job_id=self.name, metric_names=self.names, now_s=self.newest_s)
        self.state.started_s = self.newest_s
        self._losses = NonFinite(self.names)
        self.judge = default_judge()
        self.book = self.judge.make_book([])

    def take(self, stretch: Stretch) -> None:
        """The next samples."""
        most = max(len(steps) for steps, _ in stretch.samples.values())
        every = max(1, math.ceil(most / stretch.share / FED))
        for key, decimals in stretch.decimals.items():
            if key in stretch.samples:
                self.state.signals.put_fact(key[0], PREFIX + key[1], 0, f"decimals {decimals}")
        kept = {key: to_feed(values, every) for key, (_, values) in stretch.samples.items()}
        self._places.note(stretch, kept)
        self._losses.take(stretch)
        thinned = {key: (s[kept[key]], v[kept[key]]) for key, (s, v) in stretch.samples.items()}
        for part in self._windows(thinned):
            self._put(part)

    def _windows(self, samples: dict[Key, tuple[Ints, Floats]]) -> Iterator[dict[Key, tuple[Ints, Floats]]]:
        """The samples between two judgements, by the steps of the metric that has the most."""
        lead = max(samples, key=lambda key: len(samples[key][0]))
        steps, at = samples[lead][0], 0
        begins = dict.fromkeys(samples, 0)
        while at < len(steps):
            at = min(at + self._window(), len(steps))
            last = at == len(steps)
            ends = {
                key: len(s) if last else int(np.searchsorted(s, steps[at - 1], side="right"))
                for key, (s, _) in samples.items()
            }  # fmt: skip
            yield {
                key: (s[begins[key] : ends[key]], v[begins[key] : ends[key]]) for key, (s, v) in samples.items()
            }  # fmt: skip
            begins = ends

    def _window(self) -> int:
        return int(np.clip(self.longest // FIRST, FIRST, MOST))

    def _put(self, samples: dict[Key, tuple[Ints, Floats]]) -> None:
        steps: dict[int, int] = {}
        for (rank, name), (places, values) in samples.items():
            if len(places):
                self.state.signals.put(rank, PREFIX + name, places, values)
                self._counts[rank, name] = self._counts.get((rank, name), 0) + len(places)
                self._stand_in(rank, name, places, values)
                steps[rank] = max(steps.get(rank, 0), int(places[-1]))
        longest = max(self._counts.values(), default=0)
        self._since += longest - self.longest
        self.longest = longest
        for rank, step in steps.items():
            before = int(self.state.columns.step[rank]) if rank in self.state.details else -1
            facts = Facts(rank, phase="other", step=max(step, before))
            self.state.apply([facts], [Detail(rank)] if before < 0 else [], self.state.now_s)
        if self._since >= self._window():
            self._judge()

    def _stand_in(self, rank: int, name: str, steps: Ints, values: Floats) -> None:
        """Where it is the first of its meaning, it is also what rules expect of the probes."""
        for quantity, signals in MEASURED.items():
            known = self._stand_ins.get((rank, quantity))
            if known is None and PREFIX + name in find(self.state, rank, quantity)[:1]:
                known = self._stand_ins[rank, quantity] = name
                # Whether the run began with weights from elsewhere, its logs do not say.
                self.state.signals.put_fact(rank, "loaded", 0, "not known")
            if known == name:
                for signal in signals:
                    self.state.signals.put(rank, signal, steps, values)

    def _is_unsure(self, finding: Finding) -> bool:
        """Whether it rests on equal values that may have been rounded to be so."""
        if (finding.kind, finding.key) != ("training.loss_plateau", "constant"):
            return False
        losses = ((rank, self._stand_ins.get((rank, "loss"), "")) for rank in finding.ranks)
        return any(resolution(self.state, rank, PREFIX + name) > 0 for rank, name in losses)

    def _judge(self) -> None:
        self._since = 0
        self.state.tick(self.state.now_s + _TICK_S)
        found = [finding for finding in self.judge.detect(self.state) if finding.kind.startswith(SILENT)]
        self._lately.append([finding for finding in found if not self._is_unsure(finding)])
        self.book.update(self._lately[-1], self.state)

    def end(self) -> None:
        """There are no more: judge twice, as what is not proven must be found again; what is gone by then is over."""
        lately = self._lately.copy()
        self._judge()
        self._judge()
        stands = {(finding.kind, finding.key): finding for found in (*lately, self._lately[-1]) for finding in found}
        over, standing = self._losses.findings(self._nonfinite_since())
        self.book.update([*self._lately[-1], *over, *standing], self.state)
        now_s = self.state.now_s
        self.state.now_s += GONE_S + _TICK_S  # for the book alone: no rank has been silent meanwhile
        self.book.update([*stands.values(), *standing], self.state)
        self.state.now_s = now_s

    def _nonfinite_since(self) -> int | None:
        """The first step at which the loss that is trained on, or its gradients, were found not to be finite."""
        steps = (i.step or 0 for i in self.book.incidents if i.kind == KIND and i.severity != Severity.INFO)
        return min(steps, default=None)

    def scanned(self, notes: Notes) -> Scanned:
        """The report."""
        incidents: list[Incident] = list(self.book.incidents)
        for incident in incidents:  # when a step was is not known
            incident.opened_s = self.newest_s
            incident.resolved_s = self.newest_s if incident.resolved_s is not None else None
        report = job_report(self.state, incidents)
        for row in report["ranks"]:
            row["last_seen_at"] = self.newest_s
        open_ = left_open(self.state, self.longest, {incident.kind for incident in incidents})
        report["notes"] = [*notes.lines(), *open_, *report["notes"]]
        names = {name for _, name in self._counts}
        last = max((int(self.state.columns.step[rank]) for rank in self.state.ranks()), default=0)
        lead = max(self._counts, key=lambda key: self._counts[key], default=None)
        for row in report["ranks"] if not self._places.knows_steps(lead) else ():
            row["step"] = None
        for incident in report["incidents"]:
            self._places.tell(incident, self._metric_of(incident) or lead)
        count = f"{len(names)} metric{'s' * (len(names) != 1)}"
        ranks, place = rank_ranges(self.state.ranks(), named=True), self._places.word(lead, last)
        headline = f"{self.state.job_id}: {count} up to {place} of {ranks}"
        return Scanned(report, headline, bool(notes.broken))

    def _metric_of(self, incident: Mapping[str, Any]) -> Key | None:
        """The metric that it speaks of first."""
        for name in incident["names"]:
            for rank in incident["ranks"]:
                for metric in (name, self._stand_ins.get((rank, name), "")):
                    if (rank, metric) in self._counts:
                        return rank, metric
        return None
