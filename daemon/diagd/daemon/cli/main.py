"""The group of commands, and the wall between errors and the person."""

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from diagd.daemon.errors import DiagdError

# The verbs and what help says of each, in its order; each is a file in this folder that holds `command`. What they say
# stands here, since to read it there help would have to load them all.
COMMANDS = {
    "run": "Run a command, and say what is wrong with the job and why.",
    "preflight": "Run a job's first steps, check them, and end it.",
    "dump": "Collect all that can be known of a job's ranks, also of one run without diagd.",
    "status": "Show what each rank of a running job does.",
    "top": "Watch the ranks of a running job, live.",
    "incidents": "List the incidents of a job, running or finished.",
    "analyze": "Say from dumps or a recording why a job hung.",
    "scan": "Say from logs and metrics what is wrong with a training.",
    "replay": "Judge a recorded run again.",
    "ledger": "Save what the tensors of a job hold, and compare it.",
    "explain": "Explain a kind of incident and what to do about it.",
    "doctor": "Say what works on this machine, what does not, and what to do.",
    "selftest": "Plant each fault into a small job, and see that diagd finds it.",
    "agent": "Watch this node's jobs and report to an aggregator (a service).",
    "aggregator": "Take reports of agents and judge them (a service).",
    "completion": "Print a shell's completion script.",
    "version": "Say which version this is.",
}

EPILOG = """\b
Exit codes:
  0 well      1 a problem was found      2 wrong usage      3 partial
  4 cannot reach      85 diagd could not start      86 diagd ended the job
  `diagd run` ends with the job's own code (128+N for signal N) but for 85 and 86.
"""


class Commands(click.Group):
    """Loads a verb's file when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb of that name."""
        if cmd_name not in COMMANDS:
            return None
        found = import_module(f"diagd.daemon.cli.{cmd_name}").command
        assert isinstance(found, click.Command)  # noqa: S101 - the table and the folder are ours
        found.short_help = COMMANDS[cmd_name]  # for a shell's completion
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs as the table has them: none is loaded."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb, or an error that names the nearest one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(_unknown(args[0]), ctx)
        return super().resolve_command(ctx, args)


def _unknown(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.6)
    if near:
        return f"There is no command {name!r}. Did you mean `diagd {near[0]}`?"
    return f"There is no command {name!r}. To run it as a job: diagd run -- {name} …"


def _version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if wanted:
        ctx.exit(ctx.invoke(import_module("diagd.daemon.cli.version").command))


@click.group(
    cls=Commands,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Say which it is.")
@click.option("-v", "--verbose", is_flag=True, help="Show a traceback where something goes wrong.")
def cli(verbose: bool) -> None:
    """Say why a distributed PyTorch job hangs, crawls, drifts apart, runs out of memory or learns nothing: which rank
    is at fault, where in the code, and what to do.

    \b
    Put `diagd run --` before the command that starts your training:
      diagd run -- torchrun --nproc-per-node 8 train.py
    A job that already hangs, also one that was started without diagd:
      diagd dump
    """


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)
_CLICKS_EPIPE = 1  # where click itself meets a closed pipe it ends so, also outside of its standalone mode


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code is for sys.exit."""
    code = _run(argv)
    _give_up_unwritten()
    return code


def _run(argv: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        result = cli.main(arguments, prog_name="diagd", standalone_mode=False)
        if arguments[:1] != ["run"] and sys.stdout is not None:
            sys.stdout.flush()  # of `run` the exit code is the job's, whatever becomes of our own words
        return result if isinstance(result, int) else 0
    except click.ClickException as exc:
        exc.show()
        return exc.exit_code
    except click.exceptions.Exit as exc:
        return exc.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("diagd: interrupted", err=True)
        return 130
    except DiagdError as exc:
        _show(exc.message, exc.help, arguments)
        return exc.exit_code
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        return _unread()
    except OSError as exc:
        if exc.errno not in _FULL or exc.filename is not None:
            return _failed(exc, arguments)
        _unread()
        _show(f"standard output cannot be written: {exc.strerror}", "", arguments)
        return 1
    except SystemExit as exc:
        if exc.code != _CLICKS_EPIPE:
            raise
        return _unread()
    except Exception as exc:  # noqa: BLE001 - a person gets one line, not a traceback
        return _failed(exc, arguments)


def _failed(exc: Exception, arguments: Sequence[str]) -> int:
    _show(f"{type(exc).__name__}: {exc}", "this is a fault of diagd's own; `diagd -v …` shows where", arguments)
    return 1


def _unread() -> int:
    _to_nowhere(1)  # or the interpreter fails at its end as well
    return 141


def _give_up_unwritten() -> None:
    """What a full disk or a closed pipe does not take: the interpreter would end with 120 for it, whatever the code."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            _to_nowhere(number)


def _to_nowhere(number: int) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def _show(message: str, help: str, arguments: Sequence[str]) -> None:
    if _verbose(arguments):
        import traceback

        traceback.print_exc()
    click.echo(f"diagd: {message}", err=True)
    for line in help.splitlines():
        click.echo(f"  {line}", err=True)


def _verbose(arguments: Sequence[str]) -> bool:
    """Whether -v stands before the verb: behind `run` it may be the job's."""
    for word in arguments:
        if word in ("-v", "--verbose"):
            return True
        if not word.startswith("-"):
            return False
    return False
