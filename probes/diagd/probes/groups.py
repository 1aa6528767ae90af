"""Process groups: their making and unmaking, and the table of those that this rank is in."""

import sys
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from diagd.probes import launched, rank, sites, start
from diagd.probes.box import layout
from diagd.probes.box.layout import FieldIndex, Flag, Live, Op
from diagd.probes.guard import Patches, Probe, wrapper
from diagd.probes.identity import write_identity
from diagd.probes.state import STATE

_MAKERS = ("new_group", "_new_group_with_tag", "split_group")
_patches = Patches()
_c10d: Any = None
_making = 0  # depth: one maker calls another


class Group(NamedTuple):
    """A group that this rank is in."""

    number: int  # its place in the groups text, and its counters'
    name: str
    ranks: tuple[int, ...]  # global, by rank in the group
    handle: weakref.ref[Any]  # weak: a handle of ours must not keep a destroyed group's sockets open
    counts: bool  # its backend tells how many operations were issued
    text: dict[str, Any]
    # By how much the backend's count runs ahead of the collectives, and where it stood when an operation began that
    # moves it on its way (-1 in none): see `issued`.
    uncounted: list[int]


NO_GROUP = Group(-1, "", (), weakref.ref(Probe), False, {}, [0, -1])
TABLE: dict[str, Group] = {}  # by name; only those that live
ON_CHANGE: list[Callable[[], Any]] = []  # told when groups were made or destroyed
_texts: list[dict[str, Any]] = []  # by index; also those destroyed


def install(probe: Probe, module: Any) -> None:
    """torch.distributed.distributed_c10d is there."""
    global _c10d
    _c10d = module
    STATE.listeners.append(_at_switch)
    _patches.replace(module, "init_process_group", wrapper(probe, _before_init, _after_init, _failed))
    for name in _MAKERS:
        _patches.replace(module, name, wrapper(probe, _before_new, _after_new, _failed_new))
    _patches.replace(module, "destroy_process_group", wrapper(probe, _before_destroy, _after_end, _failed))
    rank.consider_candidate()


def remove() -> None:
    """Put torch's own functions back."""
    _patches.undo()


def _at_switch(recording: bool) -> None:
    if STATE.box is None:
        TABLE.clear()
        _texts.clear()


def _begin(op: Op, detail: str) -> Any:
    box = STATE.box
    ring = box.ring() if box is not None else None
    if box is None or ring is None:
        return None
    site = sites.site(sys._getframe(3))
    index = ring.begin(op, -1, 0, 0, 0, -1, 0, site, box.passing(detail) if detail else 0, -1, 0, ())
    return ring, index


def _end(token: Any) -> None:
    ring, index = token
    now = time.monotonic_ns()
    ring.set(index, FieldIndex.ISSUED, now)
    ring.set(index, FieldIndex.RETURNED, now)


def _failed(token: Any, error: BaseException) -> None:
    ring, index = token
    if STATE.box is not None:
        ring.fail(index, Flag.FAILED, STATE.box.passing(describe(error)))
    _end(token)


def describe(error: BaseException) -> str:
    """An exception as a record's detail."""
    return f"{type(error).__name__}: {error}"[:500]


def _before_init(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not rank.become_rank():
        return None
    given = dict(
        zip(("backend", "init_method", "timeout", "world_size", "rank", "store"), args, strict=False), **kwargs
    )
    facts = {key: given[key] for key in ("world_size", "rank") if isinstance(given.get(key), int) and given[key] >= 0}
    if given.get("backend"):
        facts["backend"] = str(given["backend"])
    if not launched.note(given):
        facts.pop("rank", None)  # another process may claim that number too, and rightly
    write_identity(**facts)
    _start_server()
    return _begin(Op.INIT, str(given.get("init_method") or ""))


def _start_server() -> None:
    probe = start.SWITCHES.get("server")
    if probe is not None and not probe.tripped:
        from diagd.probes import server

        probe.run(server.begin, probe)


def _after_init(token: Any, result: Any) -> None:
    _end(token)
    refresh()
    group = _c10d._get_default_group()
    write_identity(
        rank=_c10d.get_rank(), world_size=_c10d.get_world_size(), backend=str(_c10d.get_backend()), store=_store(group)
    )


def _store(group: Any) -> dict[str, Any]:
    store: Any = _c10d._world.pg_map.get(group, (None, None))[1]
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    found = {"type": type(store).__name__}
    for key in ("host", "port", "path"):
        if hasattr(store, key):
            found[key] = getattr(store, key)
    return found


def _before_new(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    global _making
    if STATE.box is None or not STATE.recording or _making:
        return None
    ranks = args[0] if args else kwargs.get("ranks")
    text = kwargs.get("group_desc") or ""
    alone = kwargs.get("use_local_synchronization") or (len(args) > 4 and args[4])  # nobody but its members makes it
    token = _begin(Op.NEW_GROUP, f"{text} {'own ' if alone else ''}ranks {ranks_text(ranks)}".strip())
    if token is not None:
        _making += 1
        STATE.box.live[Live.GROUPS_BEGUN] += 1
    return token


def _after_new(token: Any, result: Any) -> None:
    global _making
    _making = 0
    _end(token)
    refresh()


def _failed_new(token: Any, error: BaseException) -> None:
    global _making
    _making = 0
    _failed(token, error)


def ranks_text(ranks: Any) -> str:
    """Ranks as people write them: "all", "0-7", "0,2,5"."""
    if ranks is None:
        return "all"
    if isinstance(ranks, Iterable):
        packed = pack_ranks([rank for rank in ranks if isinstance(rank, int)])
        return packed if isinstance(packed, str) else ",".join(map(str, packed))
    return "?"


def pack_ranks(ranks: list[int]) -> list[int] | str:
    """A long unbroken row of ranks as "first-last", anything else as it is."""
    if len(ranks) > 8 and ranks == list(range(ranks[0], ranks[0] + len(ranks))):
        return f"{ranks[0]}-{ranks[-1]}"
    return ranks


def _before_destroy(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if STATE.box is None:
        return None
    group = args[0] if args else kwargs.get("group")
    return _begin(Op.DESTROY, "" if group is None else str(getattr(group, "group_name", "")))


def _after_end(token: Any, result: Any) -> None:
    _end(token)
    refresh()


def refresh() -> None:
    """Bring the table up to date with torch's own, and the box with the table where something changed."""
    if STATE.box is None or _c10d is None:
        return
    now = {name: group for group, name in list(_c10d._world.pg_names.items())}
    changed = False
    for name, known in list(TABLE.items()):
        if now.get(name) is None or now[name] is not known.handle():
            del TABLE[name]
            known.text["destroyed_ns"] = time.monotonic_ns()
            changed = True
    for name, group in now.items():
        if name not in TABLE:
            TABLE[name] = _entry(len(_texts), name, group)
            _texts.append(TABLE[name].text)
            changed = True
    if changed:
        _write()
        for listener in ON_CHANGE:
            listener()


def _entry(index: int, name: str, group: Any) -> Group:
    by_rank = _c10d._world.pg_group_ranks.get(group) or {}
    ranks = tuple(sorted(by_rank, key=by_rank.__getitem__))
    description = str(getattr(group, "group_desc", "") or "")
    text: dict[str, Any] = {
        "index": index,
        "name": name,
        "ranks": pack_ranks(list(ranks)),
        "description": "" if description == "undefined" else description,
        "created_ns": time.monotonic_ns(),
    }
    if description.startswith("mesh_"):
        text["mesh"] = description.removeprefix("mesh_")
    return Group(index, name, ranks, weakref.ref(group), _counts(group), text, [0, -1])


def count() -> None:
    """Note how many collectives each group has issued; how many are done is left to whoever asks the flight recorder.

    Its status is written by torch without a lock: read here, four times a second for the life of the job, it would one
    day meet the first operation of a new group in the middle of being entered, and take the rank down.
    """
    for group in list(TABLE.values()):
        if STATE.box is not None:
            STATE.box.set_counters(group.number, issued(group), -1)


def issued(group: Group) -> int:
    """How many collectives were issued on the group; -1 where its backend does not tell.

    gloo counts a rank's sends and receives too, also those that a monitored barrier is made of. They differ by rank;
    the flight recorder leaves them out, and so do we.
    """
    handle = group.handle() if group.counts else None
    if handle is None:
        return -1
    ahead, before = group.uncounted
    return (before if before >= 0 else handle._get_sequence_number_for_group()) - ahead


def _counts(group: Any) -> bool:
    try:
        group._get_sequence_number_for_group()
    except (RuntimeError, AttributeError):
        return False
    return True


def _write() -> None:
    box = STATE.box
    if box is not None and not box.set_text(layout.GROUPS, {"groups": _texts}):
        living = [text for text in _texts if "destroyed_ns" not in text]
        if not box.set_text(layout.GROUPS, {"groups": living}):
            STATE.note(f"this rank is in {len(living)} process groups: too many to name them in the box")


def of(handle: Any) -> Group:
    """The group that an object of torch's stands for."""
    name = handle.group_name
    return TABLE.get(name) or find(name)


def find(name: str) -> Group:
    """The group of that name; one that was made behind our back is looked up, once."""
    group = TABLE.get(name)
    if group is None:
        refresh()
        group = TABLE.get(name) or NO_GROUP
    return group
