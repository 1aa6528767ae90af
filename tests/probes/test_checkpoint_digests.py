"""Checkpoints of each form give the digests of the tensors that were saved, and run nothing."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from diagd.cuda_ext.adding import whole
from diagd.cuda_ext.definition import finish
from diagd.probes import checkpoint_digests
from diagd.probes.checkpoint_digests import Unreadable, digests_of, parts_of

TENSORS = {
    "fc.weight": torch.arange(12, dtype=torch.float32).reshape(3, 4),
    "fc.bias": torch.ones(3, dtype=torch.bfloat16),
    "ids": torch.arange(5),
}


def digest(tensor: torch.Tensor) -> str:
    return checkpoint_digests._digest(tensor)


def as_torch(folder: Path) -> Path:
    torch.save({"model": TENSORS, "step": 3, "words": ["a"]}, folder / "last.pt")
    return folder / "last.pt"


def as_torch_folder(folder: Path) -> Path:
    for number, (name, tensor) in enumerate(TENSORS.items()):
        torch.save({name: tensor}, folder / f"part-{number}.bin")
    return folder


def as_safetensors(folder: Path) -> Path:
    kinds = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int64: "I64"}
    table: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, tensor in TENSORS.items():
        data = tensor.contiguous().view(torch.uint8).numpy().tobytes()
        at = [len(body), len(body) + len(data)]
        table[name] = {"dtype": kinds[tensor.dtype], "shape": list(tensor.shape), "data_offsets": at}
        body += data
    head = json.dumps(table).encode()
    (folder / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + body)
    return folder / "model.safetensors"


def as_distributed(folder: Path) -> Path:
    from torch.distributed.checkpoint.state_dict_saver import save

    save({"model": TENSORS, "step": 3}, checkpoint_id=folder / "dcp", no_dist=True)
    return folder / "dcp"


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("write", [as_torch, as_torch_folder, as_safetensors, as_distributed])
def test_all_forms_give_the_same_digests(write: Any, tmp_path: Path) -> None:
    found = {name.removeprefix("model."): rest for name, *rest in digests_of(write(tmp_path))}
    assert set(found) == set(TENSORS)
    for name, tensor in TENSORS.items():
        expected = str(tensor.dtype).removeprefix("torch."), list(tensor.shape), digest(tensor), f"{whole(tensor):016x}"
        assert found[name] == list(expected)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("write", [as_torch, as_safetensors, as_distributed])
def test_parts_of_a_file_add_up_to_its_sum(write: Any, tmp_path: Path) -> None:
    path = write(tmp_path)
    (name,) = [name for name, *_ in digests_of(path) if name.endswith("fc.weight")]
    for regions in (["0:1,0:4", "1:3,0:4"], ["@0:5", "@5:12"], ["0:3,0:1+3:4", "0:3,1:3"], [""]):
        told = list(parts_of(path, {name: regions}))
        assert [(of, region) for of, region, _ in told] == [(name, region) for region in regions]
        assert finish(sum(int(total, 16) for *_, total in told) % 2**64, 48) == whole(TENSORS["fc.weight"])


def test_tensors_of_safetensors_without_elements_are_there_too(tmp_path: Path) -> None:
    head = json.dumps({"none": {"dtype": "F32", "shape": [0, 3], "data_offsets": [0, 0]}}).encode()
    (tmp_path / "m.safetensors").write_bytes(len(head).to_bytes(8, "little") + head)
    ((name, dtype, shape, _, total),) = digests_of(tmp_path / "m.safetensors")
    assert (name, dtype, shape, total) == ("none", "float32", [0, 3], f"{whole(torch.empty(0, 3)):016x}")


class Bad:
    def __reduce__(self) -> Any:
        return exec, ("raise AssertionError('it was run')",)


@pytest.mark.parametrize("name", ["last.pt", ".metadata"])
def test_nothing_that_a_pickle_asks_for_is_run(name: str, tmp_path: Path) -> None:
    if name == ".metadata":
        (tmp_path / name).write_bytes(pickle.dumps(Bad()))
    else:
        torch.save({"a": Bad()}, tmp_path / name)
    with pytest.raises(Unreadable, match="" if name == ".metadata" else "an object of exec"):
        list(digests_of(tmp_path if name == ".metadata" else tmp_path / name))


class Named:
    """As some Pythons pickle a member of an enumeration, and as nothing else may be asked for."""

    def __init__(self, owner: Any, name: str) -> None:
        self.asked = owner, name

    def __reduce__(self) -> Any:
        return getattr, self.asked


def test_members_of_enumerations_are_read_by_their_names_and_no_other_attributes(tmp_path: Path) -> None:
    from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING as FORMATS
    from torch.distributed.checkpoint.metadata import Metadata

    def read(owner: Any, name: str) -> list[Any]:
        table = Metadata(state_dict_metadata={}, planner_data=Named(owner, name))
        (tmp_path / ".metadata").write_bytes(pickle.dumps(table))
        return list(digests_of(tmp_path))

    assert read(FORMATS, "TORCH_CONTIGUOUS_FORMAT") == []
    for owner, name in ((Metadata, "__init__"), (FORMATS, "__class__")):
        with pytest.raises(Unreadable, match="an attribute of"):
            read(owner, name)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("cut.pt", b"PK\x03\x04", "is cut off or damaged"),
        ("text.bin", b"hello", "is no checkpoint"),
        ("m.safetensors", b"\0" * 9, ""),
    ],
)
def test_what_is_no_checkpoint_is_refused_with_the_reason(name: str, content: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(Unreadable, match=why):
        list(digests_of(tmp_path / name))


def test_an_empty_folder_holds_none(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="holds no checkpoint"):
        list(digests_of(tmp_path))
