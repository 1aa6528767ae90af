#!/bin/sh
# Runs a real job of 3 ranks with a planted fault under `diagd run`; ends with 0 when diagd has found it.
set -u
cd "$(dirname "$0")/../.." || exit 1
report=.demo
rm -rf "$report"
export OMP_NUM_THREADS=1

set -- .venv/bin/diagd run --report "$report" --hang-after 10 --on-hang abort -- \
    .venv/bin/torchrun --standalone --nproc-per-node 3 deploy/demo/train.py
echo "\$ $*"
"$@"
code=$?
echo
if [ "$code" -ne 86 ]; then
    echo "expected diagd to end the hung job with exit code 86, got $code" >&2
    exit 1
fi
echo "That was the demo: the job hung; diagd said why (\"diagd: critical …\" above) and ended it (exit code 86)."
echo "The traceback after that is torchrun's own, of being ended."
echo "The report: $report/report.html, and for programs $report/report.json"
