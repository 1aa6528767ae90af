"""From what was read to a report: the live road's detectors, incidents and report form."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagd.daemon.aggregator.judging import default_judge
from diagd.daemon.aggregator.replay import replay
from diagd.daemon.aggregator.reporting import job_report
from diagd.daemon.analyze import folder
from diagd.daemon.analyze.build import state_of
from diagd.daemon.analyze.compare import Comparison
from diagd.daemon.analyze.dumpfile import RankDump
from diagd.daemon.analyze.enrich import enrich
from diagd.daemon.analyze.gather import Gathered, Progress, gather
from diagd.daemon.analyze.groups import Groups
from diagd.daemon.analyze.plain import NotADump
from diagd.daemon.analyze.sources import Source
from diagd.daemon.analyze.walk import USAGE, told
from diagd.daemon.detectors.dumped import undecided, young
from diagd.daemon.detectors.scene import scene_of
from diagd.daemon.errors import DiagdError
from diagd.daemon.incidents.incident import Incident
from diagd.daemon.ranks import rank_ranges
from diagd.daemon.record.record import NotARecord, RecordReader
from diagd.daemon.state.job import JobState

HELP = "a flight recorder's dump is a pickle or JSON of one rank, with the rank in its name, such as trace_3"
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Analysis:
    """A job's report, and whether all that there is could be read and decided."""

    report: dict[str, Any]
    headline: str  # what was analysed
    partial: bool

    @property
    def faulty(self) -> bool:
        """Whether a fault was found: an incident that is no mere notice, also one that was over in the end."""
        return any(i["peak_severity"] != "info" for i in self.report["incidents"])


# The verbs with which a reason begins.
_OF_SEVERAL = {"has": "have", "is": "are", "was": "were", "holds": "hold", "asks": "ask", "does": "do"}


def analyze(
    source: Source, *, hang_after_s: float | None, world_size: int = 0, progress: Progress = lambda done, of: None
) -> list[Analysis]:
    """Judge what a source holds: one job, or each job of a recording.

    Raises:
        DiagdError: It holds nothing that can be judged.
    """
    if source.kind == "recording":
        return _recording(source.path, hang_after_s)
    usual_s = JobState().hang_after_s
    if source.kind == "folder":
        return [_folder(source.path, hang_after_s or folder.patience_s(source.path) or usual_s)]
    return [_dumps(source, hang_after_s or usual_s, world_size, progress)]


def _dumps(source: Source, hang_after_s: float, world_size: int, progress: Progress) -> Analysis:
    found = gather(source.files, progress)
    if not found.dumps:
        raise _nothing(found)
    if several := found.apart():
        raise DiagdError(
            f"{source.path}: holds dumps of the same ranks in several folders, each analysed alone",
            help="\n".join(f"diagd analyze {one}    {_ranks_text(found, one)}" for one in several[:_SHOWN]),
            exit_code=USAGE,
        )
    state, compared, groups = state_of(
        found.dumps, found.unread, job_id=source.path.name, hang_after_s=hang_after_s, world_size=world_size
    )
    problems = told(found.problems, found.ranks_in)
    return _judged(state, found.dumps, compared, groups, problems)


def _ranks_text(found: Gathered, place: Path) -> str:
    return rank_ranges(found.ranks_in[place], named=True)


def _nothing(found: Gathered) -> DiagdError:
    (path, why), *more = found.problems.items()
    others = f" (and {len(more)} more files that are none)" if more else ""
    return DiagdError(f"{path} {why}{others}", help=HELP, exit_code=USAGE)


def _folder(path: Path, hang_after_s: float) -> Analysis:
    try:
        dumps, extras, problems = folder.read(path)
    except NotADump as exc:
        raise DiagdError(f"{path} {exc}", exit_code=USAGE) from exc
    if not dumps:
        raise DiagdError(
            f"{path} holds no rank's operations, and stacks alone are not judged: of a job that runs under "
            "`diagd run`, a dump has both",
            help=f"compare where the ranks are yourself: {folder.places(path)}",
            exit_code=USAGE,
        )
    state, compared, groups = state_of(dumps, {}, job_id=path.name, hang_after_s=hang_after_s)
    enrich(state, extras)
    return _judged(state, dumps, compared, groups, [f"{name} {why}" for name, why in problems.items()])


def _judged(
    state: JobState, dumps: Mapping[int, RankDump], compared: Comparison, groups: Groups, problems: Sequence[str]
) -> Analysis:  # fmt: skip
    judge = default_judge()
    book = judge.make_book([])
    book.update(judge.detect(state), state)
    report = job_report(state, book.incidents)
    without = [rank for rank in range(state.world_size) if rank not in state.details]
    report["ranks"] = sorted([*report["ranks"], *(_lost(rank) for rank in without)], key=lambda row: int(row["rank"]))
    open_ends = list(undecided(scene_of(state))) if state.not_known else []
    open_ends += young(scene_of(state)) if not book.incidents else []
    left = [*_unknown(state), *open_ends]
    report["notes"] = [*left, *problems, *_membership(state, groups), *report["notes"]]
    report["analysis"] = {
        "ranks_without_dump": without, "unreadable": list(problems), "undecided": open_ends,
        "operations": compared.compared,
    }  # fmt: skip
    return Analysis(report, _headline(dumps, state, compared), partial=bool(left))


def _unknown(state: JobState) -> list[str]:
    """Of ranks of which nothing is known each reason once; what is not known of a group shows where someone waits."""
    ranks: dict[str, set[int]] = {}
    for (group, rank), why in state.not_known.items():
        if not group:
            ranks.setdefault(why, set()).add(rank)
    return [f"{rank_ranges(found, named=True)} {_of(found, why)}" for why, found in ranks.items()]


def _of(ranks: set[int], why: str) -> str:
    """What is said of one rank, in the form that fits their number."""
    verb, space, rest = why.partition(" ")
    return f"{_OF_SEVERAL.get(verb, verb)}{space}{rest}" if len(ranks) > 1 else why


def _membership(state: JobState, groups: Groups) -> list[str]:
    waited = {op.group for detail in state.details.values() for op in detail.recorder if op.retired is False}
    if not groups.unnamed & waited:
        return []
    names = ", ".join(sorted(groups.unnamed & waited)[:8])
    return [
        f"no dump names the members of group {names}, as always with gloo: taken are the ranks that have entries of it "
        "(how many ranks the job has, --world-size tells)"
    ]


def _lost(rank: int) -> dict[str, Any]:
    return {
        "rank": rank, "host": "", "pid": 0, "state": "lost", "step": None, "phase": "other", "exit": None,
        "last_seen_at": 0.0, "node": "", "attempt": 0,
    }  # fmt: skip


def _headline(dumps: Mapping[int, RankDump], state: JobState, compared: Comparison) -> str:
    backends = ", ".join(name for name, _ in Counter(d.backend for d in dumps.values()).most_common() if name)
    versions = ", ".join(sorted({d.version for d in dumps.values()} - {""}))
    form = f"flight recorder {versions}" if versions else "flight recorder"
    return (
        f"{len(dumps)} of {state.world_size} ranks ({', '.join(part for part in (backends, form) if part)}), "
        f"{compared.compared} operations"
    )


def _recording(path: Path, hang_after_s: float | None) -> list[Analysis]:
    jobs: dict[str, tuple[JobState, Sequence[Incident]]] = {}
    reader = RecordReader(path)
    try:
        for state, incidents in replay(reader):
            if hang_after_s:
                state.hang_after_s = hang_after_s
            jobs[state.job_id] = state, incidents
    except (OSError, NotARecord) as exc:
        raise DiagdError(f"{path}: {exc}", exit_code=USAGE) from exc
    if not jobs:
        raise DiagdError(
            f"{path}: {reader.damage or 'the recording is empty'}",
            help="" if reader.damage else "nothing had been reported yet",
            exit_code=USAGE,
        )
    reports = [job_report(state, incidents) for state, incidents in jobs.values()]
    cut = [bool(reader.damage) or state.ended_s is None for state, _ in jobs.values()]
    for report, is_cut in zip(reports, cut, strict=True):
        report["notes"] += [reader.damage or "the recording ends before the job does"] * is_cut
    return [
        Analysis(report, f"job {report['job']['id']}, {len(report['ranks'])} ranks", is_cut)
        for report, is_cut in zip(reports, cut, strict=True)
    ]
