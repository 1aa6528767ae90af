"""What a dump folder knows of the ranks beyond their flight recorders, into the state."""

from collections.abc import Iterator, Mapping
from typing import Any

from diagd.daemon.agent.usage import DATA_WORKER
from diagd.daemon.analyze.folder import RankFolder
from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Child, Detail, Exit, Facts, Status


def enrich(state: JobState, extras: Mapping[int, RankFolder]) -> None:
    """Add to the state what the folder knows of the ranks beyond their recorders."""
    for rank, extra in extras.items():
        state.world_size = max(state.world_size, rank + 1, int(extra.identity.get("world_size") or 0))
        state.apply([_facts(extra, state)], [_detail(extra, state)], state.now_s)
        if not extra.box and not state.why_not_known(rank) and not state.detail(rank).recorder:
            state.not_known["", rank] = "left no record of its operations"
        elif state.why_not_known(rank) and (why := extra.missing.get("collectives")):
            state.not_known["", rank] = f"left nothing of its flight recorder: {why}"
        for name, (step, text) in extra.facts.items():
            state.signals.put_fact(rank, name, step, text)
        for group in extra.groups:
            if group.enqueued >= 0:
                state.not_known.pop((group.name, rank), None)


def _facts(extra: RankFolder, state: JobState) -> Facts:
    waits = [op.entered_s for op in extra.operations if op.blocking and op.returned_s is None]
    stopped = str(extra.process.get("state") or "")[:1] in ("T", "t")
    blocked = bool(waits) or state.status(extra.rank) == Status.BLOCKED
    living = Status.STOPPED if stopped else Status.BLOCKED if blocked else Status.RUNNING
    return Facts(
        rank=extra.rank,
        pid=int(extra.process.get("pid") or extra.identity.get("pid") or 0),
        status=Status.EXITED if extra.ended else living,
        main_state=str(extra.process.get("state") or "S")[:1],
        step=extra.number("step"),
        step_s=float(extra.box.get("step_s") or 0.0),
        phase_s=float(extra.box.get("phase_s") or 0.0),
        phase=str(extra.box.get("phase") or "other"),
        heartbeat_s=float(extra.box.get("heartbeat_s") or 0.0),
        operations=max(extra.number("operations"), 0),
        wait_s=min(waits, default=0.0),
    )


def _detail(extra: RankFolder, state: JobState) -> Detail:
    known, said = state.detail(extra.rank), extra.identity
    return known.with_(
        pid=int(extra.process.get("pid") or said.get("pid") or 0),
        local_rank=int(said.get("local_rank") or 0),
        host=str(said.get("host") or ""),
        node=str(said.get("node") or said.get("host") or ""),
        attempt=int(said.get("attempt") or 0),
        backend=str(said.get("backend") or known.backend),
        groups=extra.groups or known.groups,
        group_count=max(extra.number("groups_begun"), 0),
        operations=tuple(op for op in extra.operations if op.returned_s is None and not op.failed),
        history=extra.operations,
        stacks=extra.stacks,
        children=tuple(_children(extra)),
        ending=extra.ending,
        thread_ended=extra.thread_ended,
        exit=Exit(state.now_s) if extra.ended else None,
    )


def _children(extra: RankFolder) -> Iterator[Child]:
    """As the agent tells them: a data worker by its name or its stack."""
    told: Any = extra.process.get("children")
    workers = {stack.pid for stack in extra.stacks if stack.role == "worker"}
    for one in told if isinstance(told, list) else ():
        if not isinstance(one, dict) or not isinstance(one.get("pid"), int):
            continue
        name, command = str(one.get("name") or ""), one.get("command")
        loader = one["pid"] in workers or name.startswith(DATA_WORKER)
        line = " ".join(map(str, command))[:500] if isinstance(command, list) and command else name
        used_s = one.get("cpu_s")
        yield Child(
            one["pid"], "worker" if loader else "child", str(one.get("state") or "X")[:1],
            float(used_s) if isinstance(used_s, int | float) else 0.0, line, in_data_loader=loader,
        )  # fmt: skip
