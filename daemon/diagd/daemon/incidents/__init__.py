"""Findings become incidents here, and only here: hysteresis, merging, severity, resolution, and the words."""
