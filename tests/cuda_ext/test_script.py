"""What a script has switched on changes no digest, sees nothing of it, and what has no bytes is refused."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from diagd.cuda_ext import elements, twin
from diagd.cuda_ext.digest import Digest, begin, digest, digest_many, digest_rows

Taken = Callable[[torch.Tensor], Digest]


class Watching(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode of the script's, which notes what it sees."""

    seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        Watching.seen += 1
        return func(*args, **(kwargs or {}))


class Listening(TorchFunctionMode):
    """The same, one level above."""

    seen = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        Listening.seen += 1
        return func(*args, **(kwargs or {}))


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "none": nullcontext,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "a dispatch mode": Watching,
    "a function mode": Listening,
    "fake tensors": FakeTensorMode,
    "another default device": lambda: torch.device("meta"),
    "deterministic": deterministic,
    "anomaly detection": torch.autograd.detect_anomaly,
}


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("mode", MODES)
def test_a_mode_changes_nothing_and_sees_nothing(taken: Taken, mode: str) -> None:
    tensor = torch.randn(300, 301).requires_grad_()
    tensors = [tensor, tensor.detach().t(), tensor.detach().half()]
    expected = [taken(one) for one in tensors]
    row = taken(tensor.detach()[7]).bits
    Watching.seen = Listening.seen = 0
    with MODES[mode]():
        found = digest_many(tensors)
        rows = digest_rows(tensor)
        assert Watching.seen == 0
    assert rows[7].bits == row
    assert [one.bits for one in found] == [one.bits for one in expected]
    assert [one.absmax for one in found] == [one.absmax for one in expected]
    assert [one.square_sum for one in found] == pytest.approx([one.square_sum for one in expected], rel=1e-4)


def test_what_is_kept_from_inference_mode_serves_outside_of_it(taken: Taken) -> None:
    tensor = torch.randn(30, 70).t().requires_grad_()
    twin._keys.cache_clear()
    with torch.inference_mode():
        inside = taken(tensor.detach()).bits
    assert taken(tensor.detach()).bits == inside


def test_the_graph_stays_as_it_is(taken: Taken) -> None:
    leaf = torch.randn(10, requires_grad=True)
    product = leaf * 2
    versions = leaf._version, product._version
    taken(leaf), taken(product), taken(torch.nn.Parameter(leaf.detach()))
    assert (leaf._version, product._version) == versions
    product.sum().backward()  # type: ignore[no-untyped-call]
    assert leaf.grad is not None
    assert bool((leaf.grad == 2).all())


def test_random_numbers_go_on_as_they_would() -> None:
    torch.manual_seed(1)
    expected = torch.randn(3)
    torch.manual_seed(1)
    digest(torch.zeros(1000).t())
    assert bool((torch.randn(3) == expected).all())


def fake() -> torch.Tensor:
    with FakeTensorMode():
        return torch.empty(3)


PRIVATE: dict[str, Callable[..., Any]] = {
    "_is_functional": lambda tensor: False,
    "_is_transformed": lambda tensor: False,
    "_count_of_dispatch_modes": lambda: 0,
    "_without_dispatch_modes": nullcontext,
    "_without_function_modes": nullcontext,
}
REFUSED: dict[str, Callable[[], torch.Tensor]] = {
    "FakeTensor": fake,
    "on meta": lambda: torch.empty(3, device="meta"),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "sparse_csr": lambda: torch.eye(3).to_sparse_csr(),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("said", REFUSED)
def test_what_has_no_bytes_of_its_own_is_refused(said: str) -> None:
    tensor = REFUSED[said]()
    for take in (digest, lambda one: begin([torch.ones(2), one])):
        with pytest.raises(TypeError, match=said):
            take(tensor)


def test_a_tensor_whose_memory_was_freed_is_refused_and_not_read() -> None:
    whole = torch.ones(100)
    part, column = whole[90:], whole.view(10, 10)[:, 9]
    whole.untyped_storage().resize_(4 * 99)
    digest(whole[:99])
    for tensor in (whole, part, column):
        with pytest.raises(ValueError, match="freed"):
            digest(tensor)
    whole.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="freed"):
        begin([torch.ones(3), part])
    assert digest(whole[:0]).bits == digest(torch.ones(0)).bits


def test_a_tensor_inside_a_transform_is_refused() -> None:
    with pytest.raises(TypeError, match="functional transform"):
        torch.vmap(lambda one: (digest(one), one)[1])(torch.ones(3))


def test_a_torch_without_its_private_functions_serves_as_well(taken: Taken, monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = torch.randn(30, 70).t()
    expected = taken(tensor)
    for name in PRIVATE:
        monkeypatch.setattr(elements, name, elements._api("gone", PRIVATE[name]))
    assert digest(tensor).bits == expected.bits


def test_a_scalar_has_no_rows() -> None:
    with pytest.raises(ValueError, match="has no rows"):
        digest_rows(torch.tensor(1.0))
    assert digest_rows(torch.ones(0, 3)) == []
