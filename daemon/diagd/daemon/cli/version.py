"""`diagd version`."""

import sys

import click


@click.command("version")
def command() -> None:
    """Say which version of diagd this is, and which Python runs it."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        ours = version("diagd")
    except PackageNotFoundError:  # run from a checkout
        ours = "not installed"
    click.echo(f"diagd {ours} (Python {sys.version.split()[0]})")
