"""`python -m tests.bench`: what diagd costs, and how fast it is.

    python -m tests.bench [--only steps micro light digests eight offline scan startup verdicts healthy] [--quick]

Writes results/bench.json and, from it, results/bench.md; what is left out by --only keeps its earlier figures. Not a
test: nothing fails, figures are kept. Run it on a machine that does nothing else.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench import digests, eight, faults, healthy, light, machine, micro, offline, scanning, startup, steps
from tests.bench.figures import percentile

RESULTS = Path(__file__).resolve().parent / "results"


class Section(NamedTuple):
    """One benchmark: how to measure it, quickly or well, and its rows in the table."""

    measure: Callable[[bool], dict[str, Any]]
    shown: Callable[[dict[str, Any]], list[list[str]]]


def measure_verdicts(quick: bool) -> dict[str, Any]:
    """From the matrix of faults, which is measured by itself."""
    rows = list(faults.read(RESULTS / "faults.json").values())
    taken = faults.seconds_to_verdict([row for row in rows if row["kind"] != faults.CONTROL])
    if not taken:
        return {"cases": 0}
    return {"cases": len(taken), "median_s": statistics.median(taken), "p95_s": percentile(taken, 0.95)}


def shown_verdicts(result: dict[str, Any]) -> list[list[str]]:
    """Rows of the table."""
    if not result["cases"]:
        return [["from fault to verdict", "not measured", "run `make bench-faults`"]]
    figure = f"median {result['median_s']:.1f} s, 95 % {result['p95_s']:.1f} s"
    return [["from fault to verdict", figure, f"median < 6 s, 95 % < 12 s; {result['cases']} cases, see faults.md"]]


def measure_healthy(quick: bool) -> dict[str, Any]:
    """From the healthy trainings, which are run by themselves."""
    path = RESULTS / "healthy.json"
    runs = json.loads(path.read_text(encoding="utf-8"))["runs"] if path.is_file() else {}
    return {"runs": len(runs), "steps": sum(run["steps"] for run in runs.values()), "alarms": healthy.alarms(runs)}


def shown_healthy(result: dict[str, Any]) -> list[list[str]]:
    """Rows of the table."""
    if not result["runs"]:
        return [["false alarms in healthy trainings", "not measured", "run `make bench-healthy`"]]
    figure = f"{len(result['alarms'])} in {result['runs']} runs of {result['steps']} steps"
    return [["false alarms in healthy trainings", figure, "none; see healthy.md"]]


SECTIONS = {
    "steps": Section(lambda quick: steps.measure(24 if quick else 480), steps.shown),
    "micro": Section(lambda quick: micro.measure(10 if quick else 40), micro.shown),
    "light": Section(lambda quick: light.measure(2500 if quick else 6000), light.shown),
    "digests": Section(lambda quick: digests.measure(3 if quick else 20), digests.shown),
    "verdicts": Section(measure_verdicts, shown_verdicts),
    "healthy": Section(measure_healthy, shown_healthy),
    "eight": Section(lambda quick: eight.measure(8 if quick else 30, 2 if quick else 7), eight.shown),
    "offline": Section(lambda quick: offline.measure(64 if quick else 1024), offline.shown),
    "scan": Section(lambda quick: scanning.measure(100 if quick else 1000), scanning.shown),
    "startup": Section(lambda quick: startup.measure(5 if quick else 20), startup.shown),
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS), help="these benchmarks")
    parser.add_argument("--quick", action="store_true", help="a first impression, written to no file")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    path = RESULTS / "bench.json"
    about = machine.described()
    kept = {} if args.quick or not path.is_file() else json.loads(path.read_text(encoding="utf-8"))
    for name in args.only:
        print(f"{name} …", flush=True)
        began = time.monotonic()
        result = SECTIONS[name].measure(args.quick)
        kept[name] = {"machine": about, "took_s": round(time.monotonic() - began), "result": result}
        for row in SECTIONS[name].shown(result):
            print("   " + " | ".join(row), flush=True)
        if not args.quick:
            write(path, kept)
    if not args.quick:
        print(f"\n{path.with_suffix('.md')}")


def write(path: Path, kept: dict[str, Any]) -> None:
    """Keep all figures, as JSON and as a page."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    ordered = {name: kept[name] for name in SECTIONS if name in kept}
    rows = [row for name, found in ordered.items() for row in SECTIONS[name].shown(found["result"])]
    machines = {name: machine.line(found["machine"]) for name, found in ordered.items()}
    same = len(set(machines.values())) == 1
    where = next(iter(machines.values())) if same else "\n\n" + "\n".join(f"- {n}: {m}" for n, m in machines.items())
    text = f"# What diagd costs\n\nMeasured by `make bench`: {where}.\n\n"
    text += "An interval in brackets holds the figure with 95 % (bootstrap over blocks).\n\n"
    text += machine.table(["what", "measured", "goal, and how it was obtained"], rows) + "\n"
    path.with_suffix(".md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
