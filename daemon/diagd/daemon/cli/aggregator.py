"""`diagd aggregator`: the job's service."""

from pathlib import Path
from typing import Any

import click


@click.command("aggregator")
@click.option("--host", metavar="ADDRESS", help="Listen here; 0.0.0.0 for all. [default: 127.0.0.1]")
@click.option("--grpc-port", type=click.IntRange(0, 65535), metavar="PORT", help="For agents. [default: 9473]")
@click.option("--http-port", type=click.IntRange(0, 65535), metavar="PORT", help="For /metrics, web. [default: 9472]")
@click.option(
    "--store",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Keep incidents in this SQLite file.",
)
@click.option(
    "--report-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write each job's report below this folder.",
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Settings, a diagd.toml; repeatable.",
)
def command(config: tuple[Path, ...], **options: Any) -> int:
    """Take the reports of the agents of jobs on several nodes, find what is wrong, and serve it.

    A job on one node needs none: `diagd run` brings its own. For a job of several, start it on every node with
    `diagd run --aggregator HOST:9473 -- …`.
    """
    from diagd.daemon.cli.service import serve

    arguments = [f"--config={path}" for path in config]
    for name, value in options.items():
        if value is not None:
            arguments.append(f"--{name.replace('_', '-')}={value}")
    return serve("diagd.daemon.aggregator.standalone", arguments)
