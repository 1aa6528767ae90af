"""Incidents and facts of runs, kept beyond the life of a process."""
