"""Who must hold the same as this rank: read from the wrapper or mesh that a tensor is under, never from its name."""

import sys
from typing import Any, NamedTuple

_LOCAL_HOOKS = ("localSGD", "local_sgd")  # they let replicas part, and meet again by the optimizer's own doing
ALONE = " of one rank"  # in a placement's text: the wrapper has this rank alone, though there are others


class Placement(NamedTuple):
    """How a tensor lies over the ranks.

    `peers`: the global ranks that must hold the same, this one among them; None where nothing says so.
    `local`: nothing to compare: a shard that no other rank holds, or what is made equal before each use.
    `over`: the global ranks that hold a part of it, where it is split: what does not depend on the part is the same.
    `beside`: the global ranks that hold the same part by a mesh of which its own is a slice, and nothing says that they
    must hold the same, as the replicas of a model that is split on one dimension and averaged by hand on the other.
    """

    text: str
    peers: tuple[int, ...] | None = None
    local: bool = False
    over: tuple[int, ...] = ()
    beside: tuple[int, ...] = ()

    @property
    def of_whole(self) -> "Placement":
        """The same of what each rank keeps of the whole."""
        return Placement(self.text, self.over) if len(self.over) > 1 else self


PLAIN = Placement("plain")


class Wrapped(NamedTuple):
    """What a wrapper says of the parameters and of the buffers below it, and which of them it leaves alone."""

    parameters: Placement
    buffers: Placement
    ignored: frozenset[int]  # ids
    unsynced: frozenset[int] = frozenset()  # ids of buffers that are to be the same, and that it does not make so


BARE = Wrapped(PLAIN, PLAIN, frozenset())


def wrapped_by(module: Any, before: Wrapped) -> Wrapped:
    """What holds below this module."""
    if _is(module, "torch.nn.parallel.distributed", "DistributedDataParallel"):
        return _ddp(module)
    if _is(module, "torch.distributed.fsdp.fully_sharded_data_parallel", "FullyShardedDataParallel"):
        return _fsdp(module)
    if _is(module, "deepspeed.runtime.engine", "DeepSpeedEngine"):
        return _zero(module) or before
    if _is(module, "torch.distributed.fsdp", "FSDPModule") and (ranks := fully_sharded_over(module._get_fsdp_state())):
        return before._replace(buffers=_among("fsdp2", ranks))
    return before


def fully_sharded_over(state: Any) -> list[int]:
    """The ranks over which `fully_shard` has split the module of this state; empty where that is not known yet.

    The outermost module may have no parameters of its own: then those below it tell, from its second call on.
    """
    mesh = _mesh(state) if is_up() else None
    return mesh.mesh.flatten().tolist() if mesh is not None else []


def parts_of_mesh(state: Any) -> list[list[int]]:
    """The ranks along each dimension of that mesh, on this rank's place in the others; empty where there is but one."""
    mesh = _mesh(state)
    if mesh is None or mesh.ndim < 2 or (here := mesh.get_coordinate()) is None:
        return []
    lines = (tuple(slice(None) if one == along else at for one, at in enumerate(here)) for along in range(mesh.ndim))
    return [mesh.mesh[line].tolist() for line in lines]


def _mesh(state: Any) -> Any:
    below = getattr(getattr(state, "_state_ctx", None), "all_states", ())
    groups = [group for one in (state, *below) for group in getattr(one, "_fsdp_param_groups", ())]
    return getattr(getattr(groups[0], "mesh_info", None), "mesh", None) if groups else None


def of_dtensor(tensor: Any) -> Placement:
    """By the mesh: those ranks hold the same that differ from this one only where the placement is Replicate."""
    spec = tensor._spec
    mesh, placements = spec.mesh, spec.placements
    text = "dtensor " + ", ".join(str(placement) for placement in placements)
    if not is_up():
        return Placement(text, local=True)
    if mesh.size() == 1 and is_alone(mesh.mesh.flatten().tolist()):
        return _alone(text)
    here = mesh.get_coordinate()
    if here is None or any(placement.is_partial() for placement in placements):
        return Placement(text, local=True)
    where = tuple(
        slice(None) if placement.is_replicate() else at for placement, at in zip(placements, here, strict=True)
    )
    over = tuple(sorted(mesh.mesh.flatten().tolist()))
    found = _among(text, mesh.mesh[where].flatten().tolist())._replace(over=over)
    beside = _beside(mesh) if found.local else ()
    return Placement(text, over=over, beside=beside) if len(beside) > 1 else found


def _beside(mesh: Any) -> tuple[int, ...]:
    """The ranks on this one's place in the mesh, and on any place in the dimensions of which the mesh is no part."""
    whole, names = _root_of(mesh), mesh.mesh_dim_names or ()
    if whole is None or whole is mesh or (here := whole.get_coordinate()) is None:
        return ()
    known = whole.mesh_dim_names or ()
    if not set(names) < set(known):
        return ()
    where = tuple(at if name in names else slice(None) for name, at in zip(known, here, strict=True))
    return tuple(sorted(whole.mesh[where].flatten().tolist()))


def _root_of(mesh: Any) -> Any:
    """The mesh that it is a slice of; older versions of torch keep that apart from it."""
    find = getattr(mesh, "_get_root_mesh", None)
    if find is not None:
        return find()
    resources = getattr(sys.modules.get("torch.distributed.device_mesh"), "_mesh_resources", None)
    find = getattr(resources, "get_root_mesh", None)
    return find(mesh) if find is not None else None


def is_up() -> bool:
    """Whether there are ranks at all: once their group is gone, a part of a mesh cannot say which it has."""
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and bool(distributed.is_initialized())


def _ddp(module: Any) -> Wrapped:
    hooks = [getattr(hook, "__name__", "") for hook, _ in getattr(module, "_comm_hooks", ())]
    if any(word in name for name in hooks for word in _LOCAL_HOOKS):
        return Wrapped(Placement("ddp, local sgd", local=True), Placement("ddp, local sgd", local=True), frozenset())
    ranks = _ranks(module.process_group)
    whole = _alone("ddp") if is_alone(ranks) else _among("ddp", ranks)
    buffers = Placement("ddp, broadcast", local=True) if module.broadcast_buffers else whole
    names = frozenset(getattr(module, "parameters_to_ignore", ()))
    ignored = _ids(module.module, names) if names else frozenset()
    return Wrapped(whole, buffers, ignored, _unknown_buffers(module) - ignored)


def _unknown_buffers(module: Any) -> frozenset[int]:
    """Buffers that were made, or replaced, since DDP wrapped the model: it broadcasts those that it knew then."""
    known = getattr(module, "modules_buffers", None)
    if not module.broadcast_buffers or known is None:
        return frozenset()
    base = sys.modules["torch.nn"].Module  # not what a class of the script's makes of this method
    tables = (part.__dict__.get("_buffers") or {} for part in base.modules(module.module))
    there = {id(buffer) for table in tables for buffer in table.values() if buffer is not None}
    return frozenset(there - {id(buffer) for buffer in known})


def _fsdp(module: Any) -> Wrapped:
    strategy = getattr(module.sharding_strategy, "name", "")
    text = f"fsdp {strategy}"
    if is_alone(_ranks(module.process_group)):
        # Of replicas whose shards are on one rank each, torch makes models that are not split, and reduces nothing.
        meant = getattr(module, "_inter_node_pg", None)
        alone = _among(f"{text}{ALONE}", _ranks(meant)) if meant is not None else _alone(text)
        return Wrapped(alone, alone, frozenset())
    if strategy == "NO_SHARD":
        parameters = _among(text, _ranks(module.process_group))
    elif strategy.startswith("HYBRID") or strategy.startswith("_HYBRID"):
        between = getattr(module, "_inter_node_pg", None)
        parameters = _among(text, _ranks(between)) if between is not None else Placement(text, local=True)
    else:
        parameters = Placement(text, local=True)
    parameters = parameters._replace(over=tuple(sorted(_ranks(module.process_group))))
    ignored = getattr(module, "_ignored_params", None) or ()
    buffers = _among(text, _ranks(module.process_group))  # it leaves them to each rank
    return Wrapped(parameters, buffers, frozenset(id(parameter) for parameter in ignored))


def _zero(engine: Any) -> Wrapped | None:
    """DeepSpeed's: up to stage 2 each step ends with the same parameters on all its ranks, and buffers are left alone.

    None where it is no version that tells of itself, as while it is being made. Experts are averaged among their own.
    """
    stage, group = getattr(engine, "zero_optimization_stage", None), getattr(engine, "data_parallel_group", None)
    if stage is None or group is None or not is_up():
        return None
    text, ranks = f"zero {int(stage())}", _ranks(group)
    whole = _alone(text) if is_alone(ranks) else _among(text, ranks)
    parameters = Placement(text, local=True, over=tuple(sorted(ranks))) if int(stage()) >= 3 else whole
    base = sys.modules["torch.nn"].Module  # not what a class of the script's makes of this method
    experts = (id(one) for one in base.parameters(engine) if getattr(one, "allreduce", True) is False)
    return Wrapped(parameters, whole, frozenset(experts))


def is_alone(ranks: list[int]) -> bool:
    """Whether a wrapper over these ranks, though there are others, makes nothing the same."""
    return len(ranks) == 1 and int(sys.modules["torch.distributed"].get_world_size()) > 1


def _alone(text: str) -> Placement:
    return Placement(f"{text}{ALONE}")


def _among(text: str, ranks: list[int]) -> Placement:
    peers = tuple(sorted(ranks))
    return Placement(text, peers, local=len(peers) < 2)


def _ranks(group: Any) -> list[int]:
    found: list[int] = sys.modules["torch.distributed"].get_process_group_ranks(group)  # communicates with nobody
    return found


def _ids(module: Any, names: frozenset[str]) -> frozenset[int]:
    base = sys.modules["torch.nn"].Module  # not what a class of the script's makes of these methods
    tensors = {**dict(base.named_parameters(module)), **dict(base.named_buffers(module))}
    return frozenset(id(tensor) for name, tensor in tensors.items() if name in names)


def _is(module: Any, where: str, name: str) -> bool:
    loaded = sys.modules.get(where)
    kind = getattr(loaded, name, None)
    return kind is not None and kind in type(module).__mro__
