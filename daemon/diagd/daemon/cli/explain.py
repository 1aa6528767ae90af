"""`diagd explain KIND`."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from textwrap import fill
from typing import Any

import click
from click.shell_completion import CompletionItem

from diagd.daemon.errors import DiagdError

_WIDTH = 96


class Kind(click.ParamType[str]):
    """The name of a kind of incident."""

    name = "kind"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """As it is; the command itself says what is near to an unknown one."""
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """All kinds that begin so."""
        from diagd.daemon.incidents.catalog import KINDS

        return [CompletionItem(kind) for kind in KINDS if kind.startswith(incomplete)]


@click.command("explain")
@click.argument("kind", type=Kind(), required=False)
def command(kind: str | None) -> None:
    """Explain KIND, such as hang.rank_missing: what one sees, how it comes about, and what to do.

    Without KIND, list all kinds; with the first word of some, such as hang, list these.
    """
    from diagd.daemon.incidents.catalog import KINDS, entry

    listed = [name for name in KINDS if kind is None or name.startswith(f"{kind}.")]
    if kind is None or listed:
        width = max(map(len, listed))
        for name in listed:
            click.echo(f"{name:<{width}}  {entry(name).title}")
        return
    if kind not in KINDS:
        raise DiagdError(f"there is no kind {kind!r}", help=_suggestion(kind, KINDS), exit_code=2)
    found = entry(kind)
    causes = {key: {part: getattr(fix, part) for part in _PARTS} for key, fix in found.causes.items()}
    for line in _lines(found.kind, found.title, found.symptom, found.mechanism, causes):
        click.echo(line)


_PARTS = {"action": "do", "expected": "expect", "verify": "verify", "if_not": "if not"}


def _lines(
    kind: str, title: str, symptom: str, mechanism: str, causes: Mapping[str, Mapping[str, str]]
) -> Iterable[str]:
    yield click.style(kind, bold=True) + f": {title}"
    yield ""
    yield _paragraph("What you see", symptom)
    yield _paragraph("How it comes about", mechanism)
    for key, fix in causes.items():
        which = f": {key.replace('_', ' ')}" if len(causes) > 1 else ""
        yield click.style(f"What to do{which}", bold=True)
        for part, label in _PARTS.items():
            if fix[part]:
                yield fill(fix[part], _WIDTH, initial_indent=f"  {label:<8}", subsequent_indent=" " * 10)
        yield ""


def _paragraph(heading: str, text: str) -> str:
    indent = "  "
    return f"{click.style(heading, bold=True)}\n{fill(text, _WIDTH, initial_indent=indent, subsequent_indent=indent)}\n"


def _suggestion(kind: str, kinds: Sequence[str]) -> str:
    short = {name.partition(".")[2]: name for name in kinds}
    near = difflib.get_close_matches(kind, [*kinds, *short], n=3, cutoff=0.5)
    names = list(dict.fromkeys(short.get(name, name) for name in near))
    return f"did you mean {' or '.join(names[:4])}?" if names else "`diagd explain` lists all kinds"
