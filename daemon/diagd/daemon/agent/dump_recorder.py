"""The flight recorder's part of a dump: as the rank's worker server gives it, and in the form of torch's analyzer."""

import json
import pickle
from typing import Any

from diagd.daemon.agent import boxes, recorder
from diagd.daemon.agent.dump_context import Context, NothingToWrite, NotThere, Target, stat_of
from diagd.daemon.state.model import Frame


def write_recorder(context: Context) -> None:
    """fr_trace_RANK.json as the rank's worker server gives it, and flight_recorder/rank_N for torch's own analyzer."""
    target = context.target
    stat = stat_of(context)
    if stat is None or stat.state in "ZX":
        raise NotThere("the process has ended")
    if stat.state in "Tt":
        raise NotThere("the process is stopped")
    if target.box is not None and not boxes.groups(target.box.reader):
        raise NothingToWrite("it is in no process group")
    if target.fr_socket is None:
        raise NotThere("the process has no worker server to ask")
    data = recorder.fetch(target.fr_socket, timeout_s=min(1.5, context.left_s))
    context.file(context.root / f"fr_trace_{_number(target)}.json").write_bytes(data)
    dump = for_analyzer(json.loads(data), context)
    with context.file(context.root / "flight_recorder" / f"rank_{_number(target)}").open("wb") as file:
        pickle.dump(dump, file)


def _number(target: Target) -> int | str:
    return target.label if target.rank is None else target.rank


def for_analyzer(dump: dict[str, Any], context: Context) -> dict[str, Any]:
    """What `torchfrtrace` expects: the box adds the members and call sites that gloo's recorder leaves out."""
    box = context.target.box
    groups = boxes.groups(box.reader) if box else ()
    members = {
        g.name: {"name": g.name, "desc": _description(dump, g.name), "ranks": str(list(g.ranks))} for g in groups
    }
    sites = {(op.group, op.seq): op.site for op in context.operations if op.site and op.seq}
    for entry in dump.get("entries", []):
        entry["process_group"] = tuple(entry.get("process_group") or ("", ""))
        site = sites.get((entry["process_group"][0], entry.get("collective_seq_id")))
        entry.setdefault("frames", [_frame(site)] if site else [])
    known = {name: config for name, config in (dump.get("pg_config") or {}).items() if name}
    return {**dump, "pg_config": members | known}


def _description(dump: dict[str, Any], group: str) -> str:
    """The recorder's own description of a group: its analyzer compares it with the entries'."""
    for entry in dump.get("entries", []):
        name, description = [*(entry.get("process_group") or ()), "", ""][:2]
        if name == group:
            return str(description)
    return "default_pg" if group == "0" else "undefined"


def _frame(site: Frame) -> dict[str, object]:
    return {"name": site.function, "filename": site.file, "line": site.line}
