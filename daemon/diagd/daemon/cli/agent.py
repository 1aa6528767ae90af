"""`diagd agent`: the node's service."""

import click


@click.command("agent", short_help="Watch this node's jobs and report to an aggregator (a service).")
@click.option("--aggregator", metavar="HOST:PORT", help="Where to report.", required=True)
@click.option("--port", type=click.IntRange(0, 65535), default=9471, show_default=True, help="For /metrics.")
def command(aggregator: str, port: int) -> int:
    """Watch all jobs of this node that were started under diagd, and report to an aggregator.

    `diagd run` brings its own; this is for nodes on which jobs are started by others.
    """
    from diagd.daemon.cli.service import serve

    return serve("diagd.daemon.agent.service", ["--aggregator", aggregator, "--port", str(port)])
