"""`diagd aggregator`: the job's service."""

import click


@click.command("aggregator", short_help="Take reports of agents and judge them (a service).")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 for all.")
@click.option("--grpc-port", type=click.IntRange(0, 65535), default=9473, show_default=True, help="For agents.")
@click.option("--http-port", type=click.IntRange(0, 65535), default=9472, show_default=True, help="For /metrics, web.")
def command(host: str, grpc_port: int, http_port: int) -> int:
    """Take the reports of the agents of jobs on several nodes, find what is wrong, and serve it.

    A job on one node needs none: `diagd run` brings its own.
    """
    from diagd.daemon.cli.service import serve

    arguments = ["--host", host, "--grpc-port", str(grpc_port), "--http-port", str(http_port)]
    return serve("diagd.daemon.aggregator.main", arguments)
