"""The tensors that ranks tell of, by model."""

from functools import cached_property

from diagd.daemon.detectors.numerics.weights import is_expert
from diagd.daemon.detectors.replicas import replicas_of
from diagd.daemon.state.job import JobState
from diagd.daemon.state.ledger import NONE, Entry
from diagd.daemon.state.tensors import TensorInfo


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
        self._stages: dict[tuple[str, tuple[int, ...]], bool] = {}
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
        key = model_of(entry), ranks
        if key not in self._stages:
            matrices = [one for one in self.of(entry) if is_matrix(one) and tuple(sorted(one.infos)) == ranks]
            self._stages[key] = bool(matrices) and not any(one.agreement.first_equal for one in matrices)
        return self._stages[key]


def is_matrix(entry: Entry) -> bool:
    """Whether it is a trained one whose ranks have been compared, and no expert's."""
    return is_any_matrix(entry) and not is_expert(entry.name)


def is_any_matrix(entry: Entry) -> bool:
    """The same, of experts too."""
    info = info_of(entry)
    trained = entry.kind == "parameter" and info.owned
    return trained and len(info.shape) > 1 and entry.agreement.first != NONE
