"""`python -m tests.bench.healthy`: trainings of many kinds in which nothing is wrong, and what diagd says of them.

    python -m tests.bench.healthy [--only NAME…] [--results DIR]

Writes healthy.json after each run, and healthy.md from it, to results/. Not a test: nothing fails, figures are kept.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench import machine
from tests.live.job import LiveJob

SCRIPTS = Path(__file__).resolve().parents[1] / "healthy"
RESULTS = Path(__file__).resolve().parent / "results"
LIMIT_S = 120.0
MARKS = {"info": "i", "warning": "W", "critical": "C"}
PASSING = ("slow.",)  # on a busy machine a run is slow, and to say so is right


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.healthy", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these trainings")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="write there instead")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    path = args.results / "healthy.json"
    runs: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["runs"] if path.is_file() and args.only else {}
    about = machine.described()
    path.parent.mkdir(parents=True, exist_ok=True)
    for script in sorted(SCRIPTS.glob("*.py")):
        if args.only and script.stem not in args.only:
            continue
        runs[script.stem] = run = watch(script)
        print(f"{script.stem:20} {run['seconds']:5.1f} s, {run['steps']} steps  {said(run)}", flush=True)
        path.write_text(json.dumps({"machine": about, "runs": runs}, indent=1) + "\n", encoding="utf-8")
        path.with_suffix(".md").write_text(render(about, runs), encoding="utf-8")
    print(f"\n{path.with_suffix('.md')}")


def watch(script: Path) -> dict[str, Any]:
    """One run under diagd, to its end."""
    with LiveJob([sys.executable, script.name], [script]) as job:
        exit_code = job.finish(LIMIT_S)
        report = job.report() or {"incidents": [], "ranks": []}
    lines = [line.at_s for line in job.lines]
    return {
        "about": (script.read_text(encoding="utf-8").partition('"""')[2].partition('"""')[0]),
        "exit_code": exit_code,
        "seconds": round(lines[-1] - lines[0], 1) if lines else 0.0,
        "steps": max((rank.get("step") or 0 for rank in report["ranks"]), default=0),
        "fired": [[i["kind"], i["peak_severity"], i["step"], i["summary"]] for i in report["incidents"]],
    }


def said(run: Mapping[str, Any]) -> str:
    """What was said, for one line."""
    return "; ".join(f"{kind} {severity} at {step}: {text}" for kind, severity, step, text in run["fired"])


def alarms(runs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Each warning and critical incident that is no matter of speed, as "kind in run"."""
    return [
        f"{kind} in {name}"
        for name, run in sorted(runs.items())
        for kind, severity, _, _ in run["fired"]
        if severity != "info" and not kind.startswith(PASSING)
    ]


def render(about: dict[str, str], runs: Mapping[str, Mapping[str, Any]]) -> str:
    """The page."""
    kinds = sorted({kind for run in runs.values() for kind, *_ in run["fired"]})
    rows = []
    for name, run in sorted(runs.items()):
        fired = {kind: MARKS[severity] for kind, severity, *_ in run["fired"]}
        rows.append([name, run["about"], str(run["steps"]), *(fired.get(kind, "") for kind in kinds)])
    steps, wrong = sum(run["steps"] for run in runs.values()), alarms(runs)
    return "\n\n".join(
        [
            "# Healthy trainings",
            f"Measured by `make bench-healthy`: {machine.line(about)}.",
            "Each script of tests/healthy runs once under `diagd run` with the defaults. i is an incident that is worth"
            " knowing, W a warning, C a critical one; kinds that no run has are left out. On a busy machine slow.* is"
            " true.",
            machine.table(["run", "what it is", "steps", *kinds], rows),
            f"{len(runs)} runs, {steps} steps, {len(wrong)} false alarms" + (": " + "; ".join(wrong) if wrong else "."),
        ]
    ) + "\n"  # fmt: skip


if __name__ == "__main__":
    main()
