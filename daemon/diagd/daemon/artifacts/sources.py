"""Which files there are, what each is, and which belong to one run."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from diagd.daemon.artifacts import documents, wandb

# What a file is; the earlier ones hold values as they were, the last one as they were printed.
EVENTS, WANDB, STATE, JSON, CSV, LOG = "events", "wandb", "document", "json", "csv", "log"
KINDS = (EVENTS, WANDB, STATE, JSON, CSV, LOG)
_SUFFIXES = {
    ".jsonl": JSON, ".ndjson": JSON, ".csv": CSV, ".tsv": CSV, ".log": LOG, ".txt": LOG, ".out": LOG, ".err": LOG,
    ".stdout": LOG, ".stderr": LOG, ".json": STATE, ".wandb": WANDB, ".gz": "",
}  # fmt: skip
# Lie beside logs and are none.
_OTHERS = (
    "requirements.txt", "config.json", "wandb-metadata.json", "wandb-summary.json", "package.json", "debug.log",
    "debug-internal.log", "debug-core.log",
)  # fmt: skip
_DUMPED, _OF_A_DUMP = "summary.txt", "summary.json"
_RANK_IN_NAME = re.compile(r"(?:^|[^a-z])(?:rank|gpu|proc|worker|node0_rank)[_-]?(\d{1,6})(?:\D|$)", re.IGNORECASE)
_RANK_FOLDER = re.compile(r"(?:rank[_-]?)?(\d{1,6})$", re.IGNORECASE)
_ROTATED = re.compile(r"\.(?:log|txt|out|jsonl|csv)\.(\d+)(?:\.gz)?$")
_HISTORY = re.compile(rf'"(?:{"|".join(documents.HISTORIES)})"\s*:\s*\[')
_PROGRAMS = frozenset({".py", ".pyi", ".ipynb", ".sh", ".c", ".h", ".cpp", ".cu", ".md", ".toml", ".yaml", ".yml"})
_HEAD = 65536


@dataclass(frozen=True, slots=True)
class Source:
    """One file."""

    path: Path
    kind: str
    rank: int
    size: int


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The files of one run: streams side by side, each of files that follow one another."""

    name: str
    streams: tuple[tuple[Source, ...], ...]

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(source.size for stream in self.streams for source in stream)


_TEXT = bytes(range(32, 256)) + b"\b\t\n\f\r\x1b"  # printable, of whatever encoding, and what steers a terminal
_BINARY = 0.05  # of a file's beginning is neither


def runs_of(paths: Sequence[Path]) -> tuple[list[RunFiles], dict[Path, str]]:
    """The runs that the paths hold, and the files of which none could be made, with the reason."""
    problems: dict[Path, str] = {}
    found: list[Source] = []
    for path in dict.fromkeys(paths):
        files = [path] if path.is_file() else _below(path)
        for file in files:
            if file == path and file.suffix.lower() in _PROGRAMS:
                problems[file] = "is a program's or a person's text, and no log"
                continue
            try:
                source = _source(file, named=file == path)
            except OSError as exc:
                problems[file] = f"cannot be read ({exc.strerror or exc})"
                continue
            if source is not None:
                found.append(source)
    found = _newest_states(list({source.path.resolve(): source for source in found}.values()))
    return [run for group in _grouped(found) for run in _runs(*group)], problems


def _below(folder: Path) -> list[Path]:
    """The files that may be a run's; a dump that diagd took beside them holds none."""
    below = sorted(folder.rglob("*"))
    dumps = {path.parent for path in below if path.name == _DUMPED and (path.parent / _OF_A_DUMP).is_file()}
    return [
        path for path in below
        if path.is_file() and not path.name.startswith(".") and path.name not in _OTHERS
        and dumps.isdisjoint(path.parents)
    ]  # fmt: skip


def _source(path: Path, named: bool) -> Source | None:
    """What the file is; None for one that nobody named and that looks like nothing of ours."""
    size = path.stat().st_size
    kind = EVENTS if "tfevents" in path.name else _SUFFIXES.get(path.suffix.lower(), "")
    if _ROTATED.search(path.name):
        kind = _SUFFIXES.get("." + path.name.split(".")[-2 - path.name.endswith(".gz")], LOG)
    elif path.suffix == ".gz":
        kind = _SUFFIXES.get(Path(path.stem).suffix.lower(), LOG)
    if not kind and not named:
        return None
    if kind in ("", STATE, LOG) and path.suffix != ".gz":
        kind = _by_head(path, kind)
    return Source(path, kind, _rank_of(path), size) if kind else None


def _by_head(path: Path, kind: str) -> str:
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if head.startswith(wandb.MAGIC):
        return WANDB
    if _is_binary(head):
        return ""
    text = head.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    if kind == STATE or text.startswith(("{", "[")):
        if kind == STATE and _HISTORY.search(text):
            return STATE
        first = text.split("\n", 1)[0].rstrip()
        if first.startswith("{") and first.endswith("}") and not _is_printed_dict(first):
            return JSON
        if kind == STATE:
            return STATE if text.startswith("[") else ""
    return kind or LOG


def _is_binary(head: bytes) -> bool:
    """Whether it is no text, by bytes that no text in one-byte characters has many of."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return False
    return len(head.translate(None, _TEXT)) > _BINARY * len(head)


def _is_printed_dict(line: str) -> bool:
    """Whether it is a dict as Python prints it, as transformers' Trainer does: its names are in other quotes."""
    return line.removeprefix("{").lstrip().startswith("'")


def _rank_of(path: Path) -> int:
    named = _RANK_IN_NAME.search(path.stem)
    if named is not None:
        return int(named[1])
    folder = _RANK_FOLDER.match(path.parent.name)  # as torchrun's --log-dir: attempt_0/3/stdout.log
    return int(folder[1]) if folder is not None and path.stem in ("stdout", "stderr") else 0


def _newest_states(found: list[Source]) -> list[Source]:
    """Of the states that a trainer saves with each checkpoint, the last one holds the whole history."""
    states = [source for source in found if source.path.name == "trainer_state.json"]
    by_run: dict[Path, list[Source]] = {}
    for source in states:
        folder = source.path.parent
        by_run.setdefault(folder.parent if folder.name.startswith("checkpoint") else folder, []).append(source)
    older = {s.path for several in by_run.values() for s in several if s is not max(several, key=lambda s: s.size)}
    return [source for source in found if source.path not in older]


def _grouped(found: Iterable[Source]) -> list[tuple[Path, list[Source]]]:
    """Files by the folder of their run."""
    groups: dict[Path, list[Source]] = {}
    for source in found:
        folder = source.path.parent
        of_rank = _RANK_FOLDER.match(folder.name) and source.path.stem in ("stdout", "stderr")
        of_wandb = folder.name == "files" and source.kind == LOG
        if of_rank or of_wandb:
            folder = folder.parent
        groups.setdefault(folder, []).append(source)
    return sorted(groups.items())


def _runs(folder: Path, found: list[Source]) -> list[RunFiles]:
    """The runs of one folder: files of one kind that name no ranks are runs of their own, but for those that follow."""
    streams = _streams(found)
    counts = [sum(stream[0].kind == kind and stream[0].rank == 0 for stream in streams) for kind in KINDS]
    if max(counts, default=0) <= 1 or len({source.rank for source in found}) > 1:
        alone = len(found) == 1 and found[0].kind not in (EVENTS, STATE, WANDB)  # whose names all look alike
        name = found[0].path.name if alone else folder.resolve().name
        return [RunFiles(name, tuple(streams))]
    return [RunFiles(stream[0].path.name, (stream,)) for stream in streams]


def _streams(found: list[Source]) -> list[tuple[Source, ...]]:
    streams: dict[tuple[str, int, str], list[Source]] = {}
    for source in found:
        base = "" if source.kind == EVENTS else _ROTATED.sub("", source.path.name.removesuffix(".gz"))
        streams.setdefault((source.kind, source.rank, base.rpartition(".")[0] or base), []).append(source)
    ordered = sorted(streams.items(), key=lambda item: (KINDS.index(item[0][0]), item[0]))
    return [tuple(sorted(several, key=_age)) for _, several in ordered]


def _age(source: Source) -> tuple[int, str]:
    """Oldest first: rotated logs by their number, event files by the time in their names."""
    rotated = _ROTATED.search(source.path.name)
    return (-int(rotated[1]) if rotated is not None else 0), source.path.name
