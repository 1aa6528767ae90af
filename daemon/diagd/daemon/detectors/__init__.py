"""Pure functions from a job's state to findings."""
