"""`python -m tests.bench.faults`: the wide matrix of faults on real jobs; how fast and how well each is named.

    python -m tests.bench.faults [FOLDER OF CASES…] [--only NAME…] [--resume] [--at-once N] [--results DIR]

Writes faults.json after each case, and faults.md from it, to results/. Not a test: nothing fails, figures are kept.
"""

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench import machine
from tests.bench.figures import percentile
from tests.live.cases import Case, load_faults, load_handed
from tests.live.runner import Result, run_cases

from diagd.daemon.config.settings import AgentConfig

RESULTS = Path(__file__).resolve().parent / "results"
WINDOW_S = AgentConfig().look_s  # one look at all ranks
CONTROL = "healthy"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.faults", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "handed", nargs="*", type=Path, help="folders with cases of a folder each (case.toml, train.py)"
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="cases with one of these in their name")
    parser.add_argument("--resume", action="store_true", help="leave out what faults.json already holds")
    parser.add_argument(
        "--at-once", type=int, default=1, metavar="N", help="small jobs side by side: faster, less exact"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="write there instead")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    path = args.results / "faults.json"
    kept = read(path) if args.resume or args.only else {}
    cases = load_faults() + [case for root in args.handed for case in load_handed(root)]
    if args.only:
        cases = [case for case in cases if any(part in case.name for part in args.only)]
    if args.resume:
        cases = [case for case in cases if case.name not in kept]
    about = machine.described()
    not_run = lacking(cases)
    for name, lacks in not_run.items():
        print(f"NOT RUN {name}: {lacks} is not installed", flush=True)

    def done(result: Result) -> None:
        row = as_row(result)
        kept[result.case.name] = row
        print(shown(row, result.tail), flush=True)
        write(path, about, kept, not_run)

    print(f"{len(cases) - len(not_run)} cases", flush=True)
    run_cases([case for case in cases if case.name not in not_run], done, at_once=args.at_once)
    write(path, about, kept, not_run)
    print(f"\n{path.with_suffix('.md')}\n\n{render(about, list(kept.values()), not_run)}")


def lacking(cases: Sequence[Case]) -> dict[str, str]:
    """The cases that cannot be run here, and in words what for."""
    return {case.name: ", ".join(case.lacks) for case in cases if case.lacks}


def as_row(result: Result) -> dict[str, Any]:
    """What is kept of a case."""
    case, verdict = result.case, result.verdict
    return {
        "name": case.name,
        "kind": case.kinds[0] if case.kinds else CONTROL,
        "nproc": case.nproc,
        "handed": case.handed,
        "right": verdict.right,
        "detected": verdict.detected,
        "accepted": verdict.kind,
        "best": verdict.best,
        "culprits": verdict.culprits,
        "place": verdict.place,
        "verdict_s": None if result.verdict_s is None else round(result.verdict_s, 2),
        "false_alarms": verdict.false_alarms,
        "windows": round(result.watched_s / WINDOW_S),
        "exit_code": result.exit_code,
        "seconds": round(result.seconds, 1),
        "got": verdict.got,
        "faults": verdict.faults,
    }


def shown(row: dict[str, Any], tail: str = "") -> str:
    """One line for a case, and the output's end where it is not right."""
    mark = "ok   " if row["right"] else "WRONG"
    verdict = "" if row["verdict_s"] is None else f"verdict {row['verdict_s']:+.1f} s"
    note = "" if row["best"] in (None, True) else "not the best name"
    words = f"{mark} {row['name']:32} {row['seconds']:6.1f} s  {verdict:16} {note} {'; '.join(row['faults'])[:300]}"
    last = "".join(f"\n        {line}" for line in tail.splitlines()[-8:])
    return words.rstrip() + last


def read(path: Path) -> dict[str, dict[str, Any]]:
    """The rows of an earlier run, by name."""
    if not path.is_file():
        return {}
    return {row["name"]: row for row in json.loads(path.read_text(encoding="utf-8"))["cases"]}


def write(path: Path, about: dict[str, str], rows: dict[str, dict[str, Any]], not_run: Mapping[str, str]) -> None:
    """Keep all rows, as JSON and as a page; and which cases could not be run, for what they lack."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"machine": about, "cases": list(rows.values()), "not_run": dict(not_run)}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(render(about, list(rows.values()), not_run), encoding="utf-8")


def render(about: dict[str, str], rows: Sequence[dict[str, Any]], not_run: Mapping[str, str]) -> str:
    """The page."""
    known = {row["name"] for row in rows}  # from an earlier run, somewhere else
    missed = [f"- {name}: {lacks} is not installed" for name, lacks in not_run.items() if name not in known]
    faults = [row for row in rows if row["kind"] != CONTROL]
    kinds = sorted({row["kind"] for row in faults})
    body = [_line(kind, [row for row in faults if row["kind"] == kind]) for kind in kinds]
    if faults:
        body.append(_line("all", faults))
    head = [
        "best name",
        "cases",
        "detected",
        "right name",
        "best name",
        "culprits",
        "place",
        "verdict s, median",
        "95 %",
    ]
    wrong = [row for row in rows if not row["right"]]
    return "\n\n".join(
        [
            "# Faults on real jobs",
            f"Measured by `make bench-faults`: {machine.line(about)}.",
            "Each job runs under `diagd run --hang-after 10 --on-hang abort`; all else is the default. Seconds count "
            "from the line that the job prints just before the fault to the incident in report.json. `right name` is "
            "any of the accepted ones.",
            machine.table(head, body),
            _healthy([row for row in rows if row["kind"] == CONTROL]),
            "Not right:\n\n" + "\n".join(f"- {row['name']}: {'; '.join(row['faults'])}" for row in wrong)
            if wrong
            else "Every case that was run is right.",
            *(["Not run:\n\n" + "\n".join(missed)] if missed else []),
        ]
    ) + "\n"  # fmt: skip


def seconds_to_verdict(rows: Sequence[dict[str, Any]]) -> list[float]:
    """Of the faults that were named rightly; an incident from before the line counts as at once."""
    return [max(row["verdict_s"], 0.0) for row in rows if row["verdict_s"] is not None and row["accepted"]]


def _line(name: str, rows: Sequence[dict[str, Any]]) -> list[str]:
    taken = seconds_to_verdict(rows)
    times = [f"{statistics.median(taken):.1f}", f"{percentile(taken, 0.95):.1f}"] if taken else ["-", "-"]
    asked = ("detected", "accepted", "best", "culprits", "place")
    return [name, str(len(rows)), *(_share([row[key] for row in rows]) for key in asked), *times]


def _share(values: Sequence[bool | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known)}/{len(known)}" if known else "-"


def _healthy(rows: Sequence[dict[str, Any]]) -> str:
    windows, alarms = sum(row["windows"] for row in rows), sum(row["false_alarms"] for row in rows)
    rate = f"{1000 * alarms / windows:.2f}" if windows else "-"
    return (
        f"Healthy jobs: {len(rows)}, {windows} windows of {WINDOW_S:g} s observed, {alarms} false alarms: "
        f"{rate} in 1,000 windows."
    )


if __name__ == "__main__":
    main()
