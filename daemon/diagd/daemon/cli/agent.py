"""`diagd agent`: the node's service."""

from pathlib import Path

import click


@click.command("agent")
@click.option("--aggregator", metavar="HOST:PORT", required=True, help="Where to report.")
@click.option(
    "--root",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The folder that holds the jobs' run directories. [default: this user's in /dev/shm]",
)
@click.option("--node", metavar="NAME", help="This node's name. [default: the host's]")
@click.option("--host", metavar="ADDRESS", help="Listen here; 0.0.0.0 for all. [default: 127.0.0.1]")
@click.option(
    "--http-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="For /metrics of the agent, such as 9471. [default: none]",
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Settings, a diagd.toml; repeatable.",
)
def command(
    aggregator: str, root: Path | None, node: str | None, host: str | None, http_port: int | None,
    config: tuple[Path, ...],
) -> int:  # fmt: skip
    """Watch all jobs of this node that were started under diagd, and report to an aggregator.

    `diagd run` brings its own; this is for nodes on which jobs are started by others.
    """
    from diagd.daemon.agent.discovery import roots
    from diagd.daemon.cli.service import serve

    arguments = ["--aggregator", aggregator, "--root", str(root or roots()[0])]
    arguments += ["--node", node] if node else []
    arguments += ["--host", host] if host else []
    arguments += ["--http-port", str(http_port)] if http_port is not None else []
    for path in config:
        arguments += ["--config", str(path)]
    return serve("diagd.daemon.agent.main", arguments)
