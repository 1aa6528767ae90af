"""The tensors of a ledger, of a running job or of a checkpoint."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

SCHEMAS = "diagd.ledger/1", "diagd.ledger/2"
PLACED_WHOLE = ("plain", "ddp", "fsdp NO_SHARD")  # placements under which each rank holds all of a tensor
# Names by which wrappers hold what they wrap, and that no script gives to anything.
_INNER = frozenset({"_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module"})

ByStep = Mapping[int | None, Mapping[str, str]]  # step (None: of a checkpoint) -> digest -> rank ranges


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a ledger."""

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]  # of all of it, where there are sums
    placement: str = "plain"
    digests: ByStep = field(default_factory=dict)  # of what each rank holds
    sums: ByStep = field(default_factory=dict)  # of all of it, however it is split; of a job after one step at most
    parts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # region -> its part of the sum -> rank ranges
    trained: bool = False  # it changes with each step
    why: str = ""  # there are no sums
    elsewhen: ByStep = field(default_factory=dict)  # digests after other steps than the one that it is judged by

    @property
    def whole(self) -> bool:
        """Whether what is digested on each rank is all of it."""
        split = set(self.placement.removeprefix("dtensor ").split(", ")) != {"R"}
        return self.placement.startswith(PLACED_WHOLE) or not split

    @property
    def sent_out(self) -> bool:
        """Whether ranks are given rank 0's before each forward pass, in which each then may change its own."""
        return self.kind == "buffer" and "broadcast" in self.placement

    @property
    def bare(self) -> str:
        """Its name without those of wrappers."""
        return ".".join(part for part in self.name.split(".") if part not in _INNER)

    @property
    def step(self) -> int | None:
        """After which the sums were taken; None of a checkpoint, and where there are none."""
        return next(iter(self.sums), None)

    @property
    def summed(self) -> Mapping[str, str]:
        """The sums, with the ranks that hold what they are of; none where it has none."""
        return next(iter(self.sums.values()), {})

    @property
    def of_file(self) -> bool:
        """Whether it is of a checkpoint."""
        return None in self.digests


def of_first_rank(held: Mapping[str, str]) -> str | None:
    """The digest, of those with the ranks that hold them, that is rank 0's; None where that is not told."""
    return next((digest for digest, ranks in held.items() if ranks.replace("-", ",").split(",")[0] == "0"), None)


def tensors_of(document: Mapping[str, Any]) -> list[Tensor]:
    """Those of a saved ledger.

    Raises:
        ValueError: It is none, or of another version.
    """
    if document.get("schema") not in SCHEMAS or not isinstance(document.get("tensors"), list):
        raise ValueError(f"expected a ledger of the form {' or '.join(SCHEMAS)}")
    try:
        return [_tensor(one) for one in document["tensors"]]
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError(f"the ledger is damaged: {exc!r}") from exc


def _tensor(one: Mapping[str, Any]) -> Tensor:
    return Tensor(
        one["name"], one["kind"], one["dtype"], tuple(one["shape"]), one["placement"], _by_step(one["digests"]),
        _by_step(one.get("sums", {})), {region: dict(told) for region, told in one.get("parts", {}).items()},
        bool(one.get("trained")) or one["kind"] == "state", one.get("why", ""),
    )  # fmt: skip


def _by_step(told: Mapping[str, Mapping[str, str]]) -> ByStep:
    return {int(step): dict(held) for step, held in told.items()}


def of_file(name: str, dtype: str, shape: Iterable[int], digest: str, total: str = "") -> Tensor:
    """A tensor of a checkpoint."""
    sums: ByStep = {None: {total: ""}} if total else {}
    return Tensor(name, "file", dtype, tuple(shape), "plain", {None: {digest: ""}}, sums)
