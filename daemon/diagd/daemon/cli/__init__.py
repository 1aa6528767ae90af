"""The `diagd` command: one file a verb; nothing heavy is imported before the verb needs it."""

from diagd.daemon.cli.main import main

__all__ = ["main"]
