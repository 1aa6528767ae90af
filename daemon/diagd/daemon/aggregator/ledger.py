"""A job's ledger as a document: what each tensor is, digests of what the ranks held after which steps, and of whole
tensors, split ones too, after the one step at which that was asked for."""

from typing import Any, NamedTuple

from diagd.daemon.aggregator.saving import Phase, Saves
from diagd.daemon.aggregator.whole import Key, Told, parts_of, sums_of, told
from diagd.daemon.ranks import rank_ranges
from diagd.daemon.state.job import JobState
from diagd.daemon.state.ledger import AT_START

SCHEMA = "diagd.ledger/2"
_WORD = 1 << 64
_FLAT = "_flat_param"  # FSDP's, without use_orig_params
_TOLD_BY = 4  # steps: what was to be told before the first one has come by then, from a device too
_KEPT = ("parameter", "buffer", "state")  # what a checkpoint holds too

Document = dict[str, Any]


class Gathered(NamedTuple):
    """What a ledger is made of, as it was at one moment."""

    head: Document
    sampled: list[Document]
    serial: int  # of the request that was answered by all ranks; 0 none
    ranks: tuple[int, ...]
    sums: dict[int, bytes]  # by rank


def gathered(state: JobState, saves: Saves) -> Gathered:
    """All that has to be read of the job; what takes longer is left to ledger_document."""
    head, save = _head(state), saves.refresh(state)
    serial = save.serial if save.phase is Phase.DONE else 0
    return Gathered(head, _sampled(state), serial, tuple(save.pids), dict(state.tensors.sums))


def gathered_at_start(state: JobState) -> Gathered:
    """Likewise of what the ranks began with, where they were started to tell that."""
    ranks, sums = state.tensors.ranks, dict(state.tensors.first_sums)
    complete = bool(ranks) and len(ranks) >= state.world_size and sums.keys() >= set(ranks)
    made = [int(state.columns.step[rank]) for rank in ranks if rank < len(state.columns.step)]
    silent = not sums and min(made, default=0) >= _TOLD_BY
    phase = Phase.DONE if complete else Phase.FAILED if silent else Phase.ASKED
    why = f"{len(sums)} of {max(state.world_size, len(ranks))} ranks have told what they began with"
    head = {"number": 0, "phase": phase.value, "why": "" if complete else why}
    return Gathered(_head(state) | head, _sampled(state), AT_START if complete else 0, ranks, sums)


def _head(state: JobState) -> Document:
    return {"schema": SCHEMA, "job": state.job_id, "world_size": state.world_size, "step": None}


def ledger_document(found: Gathered) -> Document:
    """In JSON's types; digests as 16 hexadecimal digits, each with the ranks that hold it ("0-3,7")."""
    said = told(found.sums, found.serial, found.ranks) if found.serial else Told()
    if said.step is None:  # nobody has told anything
        return {**found.head, "not_told": _not_told(said), "tensors": found.sampled}
    then = found.sampled if found.serial != AT_START else _there_at_start(found.sampled, said)
    tensors = _with_sums(then, said, said.step)
    return {**found.head, "step": said.step, "not_told": _not_told(said), "tensors": tensors}


def _there_at_start(sampled: list[Document], found: Told) -> list[Document]:
    """Those that were there when ranks told of theirs: an optimizer makes its state later."""
    told_of = {*found.unknown, *((key.kind, key.name) for key in found.tensors)}
    return [one for one in sampled if "0" in one["digests"] or (one["kind"], one["name"]) in told_of]


def save_document(state: JobState, saves: Saves) -> Document:
    """How far the newest wish for a ledger is."""
    save = saves.refresh(state)
    ranks = [rank for rank in state.tensors.ranks if rank < len(state.columns.step)]
    return {
        "number": save.number, "phase": save.phase.value, "step": save.step if save.step >= 0 else None,
        "ranks": len(save.pids), "answered": len(saves.answered(state)), "why": save.why,
        "at": max((int(state.columns.step[rank]) for rank in ranks), default=None),
    }  # fmt: skip


def _sampled(state: JobState) -> list[Document]:
    tensors = []
    for index, entry in enumerate(state.tensors.entries):
        info = entry.infos[min(entry.infos)] if entry.infos else None
        if info is None or entry.kind not in _KEPT:
            continue
        tensors.append(
            {
                "name": entry.name,
                "kind": entry.kind,
                "dtype": info.dtype,
                "shape": list(info.shape),
                "placement": info.placement,
                "digests": {str(step): _by_digest(held) for step, held in state.tensors.samples(index).items()},
            }
        )
    return tensors


def _with_sums(sampled: list[Document], found: Told, step: int) -> list[Document]:
    """Each tensor once, in the order in which they were found; the parts that were sampled are those of the whole."""
    by_name: dict[tuple[str, str], list[Document]] = {}
    for one in sampled:
        by_name.setdefault((one["kind"], one["name"]), []).append(one)
    documents = {key: _summed(key, found, by_name.get((key.kind, key.name), []), step) for key in found.tensors}
    told_of = {(key.kind, key.name): list[Document]() for key in found.tensors}
    for key, document in documents.items():
        told_of[key.kind, key.name].append(document)
    merged: list[Document] = []
    for (kind, name), parts in by_name.items():
        if _FLAT in name.split("."):
            continue  # told of as the parameters that it is made of
        merged += told_of.pop((kind, name), []) or [_unknown(one, found) for one in parts]
    return [*merged, *(one for rest in told_of.values() for one in rest)]


def _summed(key: Key, found: Told, sampled: list[Document], step: int) -> Document:
    tensor = found.tensors[key]
    sums, why = sums_of(key, tensor)
    parts = parts_of(tensor)
    alike = [one for one in sampled if one["dtype"] == key.dtype and (parts or tuple(one["shape"]) == key.shape)]
    placement = alike[0]["placement"] if alike else "split" if parts else "plain"
    document = {"name": key.name, "kind": key.kind, "dtype": key.dtype, "shape": list(key.shape),
                "placement": placement, "trained": tensor.trained, "digests": _pooled(alike)}  # fmt: skip
    if sums:
        document["sums"] = {str(step): sums}
    if parts:
        document["parts"] = parts
    return document | ({"why": why} if why else {})


def _unknown(sampled: Document, found: Told) -> Document:
    why, ranks = found.unknown.get((sampled["kind"], sampled["name"]), ("", []))
    return sampled | ({"why": f"{why} (ranks {rank_ranges(ranks)})"} if why else {})


def _pooled(sampled: list[Document]) -> dict[str, dict[str, str]]:
    """The digests of what ranks hold of it, each of its own part."""
    found: dict[str, dict[str, str]] = {}
    for one in sampled:
        for step, held in one["digests"].items():
            for digest, ranks in held.items():
                known = found.setdefault(step, {}).get(digest)
                found[step][digest] = f"{known},{ranks}" if known else ranks
    return found


def _not_told(found: Told) -> list[str]:
    lines = [f"ranks {rank_ranges(ranks)}: {error}" for error, ranks in found.errors.items()]
    if found.silent:
        lines.append(
            f"ranks {rank_ranges(found.silent)} told nothing: no room for it, or another version of diagd there"
        )
    return lines


def _by_digest(held: dict[int, int]) -> dict[str, str]:
    ranks: dict[int, list[int]] = {}
    for rank, digest in held.items():
        ranks.setdefault(digest % _WORD, []).append(rank)
    return {f"{digest:016x}": rank_ranges(having) for digest, having in ranks.items()}
