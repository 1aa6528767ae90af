"""The job's state: arrays over ranks for what every rank has, details only where something is unusual."""
