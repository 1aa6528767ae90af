"""`diagd doctor`."""

import json
from pathlib import Path

import click


@click.command("doctor")
@click.option(
    "--python",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PATH",
    help="The Python that trains. [default: the `python` on PATH]",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(python: Path | None, as_json: bool) -> int:
    """Say what of diagd works on this machine, what does not, and what to do about it.

    diagd runs without most of these; each line says what is lost. Exits with 1 where something needed is missing.
    """
    from diagd.daemon.cli.checks import State, all_checks

    checks = all_checks(python)
    if as_json:
        shown = [{"name": c.name, "state": c.state.value, "found": c.found, "help": c.help} for c in checks]
        click.echo(json.dumps(shown, indent=2))
    else:
        width = max(len(check.name) for check in checks)
        colours = {State.OK: "green", State.ABSENT: None, State.DEGRADED: "yellow", State.MISSING: "red"}
        for check in checks:
            state = click.style(f"{check.state.value:<8}", fg=colours[check.state])
            click.echo(f"{state}  {check.name:<{width}}  {check.found}")
            for line in check.help.splitlines():
                click.echo(f"{'':<{width + 12}}{line}")
    return 1 if any(check.state is State.MISSING for check in checks) else 0
