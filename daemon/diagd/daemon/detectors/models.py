"""The tensors that ranks tell of, by model."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

from diagd.daemon.detectors.numerics.weights import is_expert
from diagd.daemon.detectors.replicas import replicas_of
from diagd.daemon.state.job import JobState
from diagd.daemon.state.ledger import NONE, Entry
from diagd.daemon.state.tensors import TensorInfo

Found = TypeVar("Found")


def info_of(entry: Entry) -> TensorInfo:
    """The tensor, as the first of its ranks has it."""
    return entry.infos[min(entry.infos)]


def model_of(entry: Entry) -> str:
    """The model's part of the name."""
    return entry.name.partition(".")[0]


class Models:
    """The tensors by model, and what is asked again and again of each while all of them are judged."""

    def __init__(self, state: JobState) -> None:
        self._state = state
        self._known: dict[tuple[object, ...], Any] = {}
        self.entries: dict[str, list[Entry]] = {}
        for entry in state.tensors.entries:
            self.entries.setdefault(model_of(entry), []).append(entry)

    @cached_property
    def places(self) -> dict[int, int]:
        """Which of the state's entries each is, by id: to look for one among thousands is dear."""
        return {id(entry): place for place, entry in enumerate(self._state.tensors.entries)}

    def of(self, entry: Entry) -> list[Entry]:
        """All of the model that it belongs to."""
        return self.entries[model_of(entry)]

    @cached_property
    def replicas(self) -> list[set[int]]:
        """Ranks that train copies of one model."""
        return [set(one.ranks) for one in replicas_of(self._state)]

    def are_stages(self, entry: Entry) -> bool:
        """Whether all matrices of its model differ on its ranks from the start: norms and biases begin alike, too.

        Ranks that split matrices have others that they share, such as embeddings.
        """
        ranks = tuple(sorted(entry.infos))

        def apart() -> bool:
            matrices = [one for one in self.of(entry) if is_matrix(one) and tuple(sorted(one.infos)) == ranks]
            return bool(matrices) and not any(one.agreement.first_equal for one in matrices)

        return self.once(("stages", model_of(entry), ranks), apart)

    def once(self, key: tuple[object, ...], find: Callable[[], Found]) -> Found:
        """What is the same for many tensors, as for all of a model: found for the first of them."""
        if key not in self._known:
            self._known[key] = find()
        known: Found = self._known[key]
        return known

    def matrices_in(self, module: str) -> list[Entry]:
        """The matrices of a module and of all within it, those of experts too."""
        return self._by_module.get(module, [])

    @cached_property
    def _by_module(self) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {}
        for entry in filter(is_any_matrix, self._state.tensors.entries):
            within = entry.name
            while within := within.rpartition(".")[0]:
                found.setdefault(within, []).append(entry)
        return found


def is_matrix(entry: Entry) -> bool:
    """Whether it is a trained one whose ranks have been compared, and no expert's."""
    return is_any_matrix(entry) and not is_expert(entry.name)


def is_any_matrix(entry: Entry) -> bool:
    """The same, of experts too."""
    info = info_of(entry)
    trained = entry.kind == "parameter" and info.owned
    return trained and len(info.shape) > 1 and entry.agreement.first != NONE
