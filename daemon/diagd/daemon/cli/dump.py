"""`diagd dump`."""

import click


@click.command("dump", short_help="Collect stacks and state of a job's ranks, also of one that runs without diagd.")
def command() -> int:
    """Not here yet."""
    return 1
