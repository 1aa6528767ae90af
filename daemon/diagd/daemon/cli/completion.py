"""`diagd completion SHELL`."""

import click

_WHERE = {
    "bash": "~/.local/share/bash-completion/completions/diagd",
    "zsh": "~/.zfunc/_diagd",
    "fish": "~/.config/fish/completions/diagd.fish",
}


@click.command("completion")
@click.argument("shell", type=click.Choice(list(_WHERE)))
def command(shell: str) -> None:
    """Print the completion script for SHELL: bash, zsh or fish.

    \b
    For this session:  eval "$(diagd completion bash)"
    For good:
      bash  diagd completion bash > ~/.local/share/bash-completion/completions/diagd
      zsh   diagd completion zsh > ~/.zfunc/_diagd      (a folder on your fpath)
      fish  diagd completion fish > ~/.config/fish/completions/diagd.fish
    """
    from click.shell_completion import get_completion_class

    from diagd.daemon.cli.main import cli

    found = get_completion_class(shell)
    assert found is not None  # noqa: S101 - click knows all three
    click.echo(found(cli, {}, "diagd", "_DIAGD_COMPLETE").source())
