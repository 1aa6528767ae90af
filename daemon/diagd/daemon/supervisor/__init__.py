"""What `diagd run` starts: the job and, as its sibling, the watch process; signals and exit codes pass through."""

from diagd.daemon.supervisor.place import Place, find_place, job_id_of
from diagd.daemon.supervisor.run import ABORTED, Outcome, Plan, supervise
from diagd.daemon.supervisor.runfile import read_run_file
from diagd.daemon.supervisor.start import CannotStart

__all__ = [
    "ABORTED",
    "CannotStart",
    "Outcome",
    "Place",
    "Plan",
    "find_place",
    "job_id_of",
    "read_run_file",
    "supervise",
]
