"""Digests of the tensors in a checkpoint, one JSON line each; started as a program, with a Python that has torch.

    python -P checkpoint_digests.py PATH [--parts]

With --parts, JSON on standard input says of which parts of which tensors their share of the sum is wanted, {name:
[regions]} (box/sums.py), and those are printed alone.

PATH is a file of torch.save, a safetensors file, a folder of such files, or a folder of torch.distributed.checkpoint.
Nothing that such a file asks to be run is run: pickles are read by torch's weights-only reader, the metadata of a
distributed checkpoint by one that knows its own classes alone. Exit code 2, and a line on standard error, where it
cannot be read.
"""

import json
import mmap
import pickle
import re
import sys
import warnings
from collections.abc import Iterator
from enum import Enum
from importlib.util import module_from_spec, spec_from_file_location
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

_SAFE = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip
_FILES = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.ckpt")
_METADATA = ("torch.distributed.checkpoint.", "torch.distributed.tensor.")  # modules whose classes its metadata needs
_PLAIN = frozenset({
    ("torch", "Size"), ("torch", "device"), ("torch.serialization", "_get_layout"), ("collections", "OrderedDict"),
    ("builtins", "set"), ("builtins", "frozenset"), ("pathlib", "PosixPath"), ("torch", "dtype"),
})  # fmt: skip
_BATCH_BYTES = 1 << 30
# What torch raises for files that are damaged, of another kind, or hold more than tensors.
_DAMAGED = (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, KeyError, IndexError, TypeError, AttributeError)

Held = tuple[str, str, list[int], Any]  # name, dtype, shape, tensor (of the same bytes)
Found = tuple[str, str, list[int], str, str]  # name, dtype, shape, digest, sum (the digest that adds up)
_loaded: dict[str, Any] = {}


class Unreadable(Exception):
    """The checkpoint is missing, damaged, of no known form, or asks for more than tensors."""


class _Metadata(pickle.Unpickler):
    """Knows what the metadata of a distributed checkpoint is made of, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        dtype = module == "torch" and name.islower() and "." not in name
        if (module, name) == ("builtins", "getattr"):
            return _member
        if module.startswith(_METADATA) or (module, name) in _PLAIN or dtype:
            return super().find_class(module, name)
        raise Unreadable(f"its metadata asks for {module}.{name}")


def _member(owner: Any, name: str) -> Any:
    """A member of an enumeration, which some Pythons pickle by its name; of anything else, no attribute."""
    if isinstance(owner, type) and issubclass(owner, Enum) and name in owner.__members__:
        return owner.__members__[name]
    raise Unreadable(f"its metadata asks for an attribute of {owner!r:.60}")


def digests_of(path: Path) -> Iterator[Found]:
    """Each tensor that the checkpoint holds.

    Raises:
        Unreadable: Why not.
    """
    for name, dtype, shape, tensor in _tensors_of(path):
        yield name, dtype, shape, _digest(tensor), _sum(tensor)


def parts_of(path: Path, wanted: dict[str, list[str]]) -> Iterator[tuple[str, str, str]]:
    """Of these regions of these tensors: name, region and its part of the sum.

    Raises:
        Unreadable: Why not.
    """
    adding = _module("adding")
    for name, _, shape, tensor in _tensors_of(path):
        for region in wanted.get(name, ()):
            yield name, region, f"{adding.begin([_blocks(tensor.detach(), shape, region, adding)]).result()[0]:016x}"


def _blocks(tensor: Any, shape: list[int], region: str, adding: Any) -> list[Any]:
    """Of which a part is made up."""
    if not region:
        return [adding.run_at(tensor, 0)]
    if region.startswith("@"):
        first, stop = map(int, region[1:].split(":"))
        return [adding.run_at(tensor.reshape(-1)[first:stop], first)]
    boxes = product(*([tuple(map(int, run.split(":"))) for run in dim.split("+")] for dim in region.split(",")))
    return [adding.block_at(tensor[tuple(slice(*at) for at in box)], [at[0] for at in box], shape) for box in boxes]


def _tensors_of(path: Path) -> Iterator[Held]:
    if path.is_dir() and (path / ".metadata").is_file():
        yield from _distributed(path)
    elif path.is_dir():
        files = next((found for pattern in _FILES if (found := sorted(path.glob(pattern)))), [])
        if not files:
            raise Unreadable(f"{path} holds no checkpoint ({', '.join(_FILES)}, or .metadata)")
        for file in files:
            yield from _tensors_of(file)
    elif path.suffix == ".safetensors":
        yield from _safetensors(path)
    else:
        yield from _saved(path)


def _safetensors(path: Path) -> Iterator[Held]:
    import torch

    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        length = int.from_bytes(data[:8], "little")
        try:
            table = json.loads(data[8 : 8 + length])
        except ValueError as error:
            raise Unreadable(f"{path} is no safetensors file") from error
    for name, entry in table.items():
        if name == "__metadata__":
            continue
        first, last = entry["data_offsets"]
        if 8 + length + last > len(data):
            raise Unreadable(f"{path} is cut off in {name}")
        # A copy: torch takes no memory that cannot be written, nor any that is empty.
        flat = torch.frombuffer(bytearray(data[8 + length + first : 8 + length + last] or 1), dtype=torch.uint8)
        yield name, _SAFE.get(entry["dtype"], entry["dtype"]), entry["shape"], _formed(flat, last - first, entry, path)


def _formed(flat: Any, nbytes: int, entry: dict[str, Any], path: Path) -> Any:
    """The bytes as elements of their size, whatever these are."""
    import torch

    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
    numel = prod(entry["shape"])
    kind = kinds.get(nbytes // numel) if numel else torch.uint8
    if kind is None or (numel and nbytes % numel):
        raise Unreadable(f"{path} holds {nbytes} bytes for {numel} elements")
    return flat[:nbytes].view(kind).reshape(entry["shape"])


def _saved(path: Path) -> Iterator[Held]:
    import torch

    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except _DAMAGED as error:
        raise Unreadable(f"{path} {_why(path, error)}") from error
    yield from _flat(content, "")


def _why(path: Path, error: Exception) -> str:
    """Why torch does not load it: the reader that runs no code says which class it does not know."""
    asked = re.search(r"GLOBAL ([\w.]+)", str(error))
    if asked is not None:
        return f"holds an object of {asked[1]}, and to load that could run code: save its tensors (model.state_dict())"
    with path.open("rb") as file:
        zipped = file.read(4) == b"PK\x03\x04"
    return "is cut off or damaged" if zipped else "is no checkpoint (torch.save, safetensors), or is damaged"


def _flat(content: Any, path: str) -> Iterator[Held]:
    import torch

    if isinstance(content, torch.Tensor):
        if content.layout is torch.strided and not content.is_quantized:
            yield path, str(content.dtype).removeprefix("torch."), list(content.shape), content
        return
    parts = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in parts:
        yield from _flat(value, f"{path}.{key}" if path else str(key))


def _distributed(path: Path) -> Iterator[Held]:
    import torch
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata
    from torch.distributed.checkpoint.state_dict_loader import load

    try:
        with (path / ".metadata").open("rb") as file:
            table = _Metadata(file).load().state_dict_metadata
    except (OSError, pickle.UnpicklingError, EOFError, AttributeError) as error:
        raise Unreadable(f"{path}: its metadata cannot be read: {error}") from error
    batch: dict[str, Any] = {}
    entries = [(name, entry) for name, entry in table.items() if isinstance(entry, TensorStorageMetadata)]
    for number, (name, entry) in enumerate(entries, 1):
        batch[name] = torch.empty(entry.size, dtype=entry.properties.dtype)
        size = sum(tensor.numel() * tensor.element_size() for tensor in batch.values())
        if size >= _BATCH_BYTES or number == len(entries):
            load(batch, storage_reader=FileSystemReader(path), no_dist=True)
            yield from _flat(batch, "")
            batch = {}


def _digest(tensor: Any) -> str:
    return f"{_module('digest').digest(tensor.detach(), statistics=False).bits:016x}"


def _sum(tensor: Any) -> str:
    return f"{_module('adding').whole(tensor.detach()):016x}"


def _module(name: str) -> Any:
    """One of diagd.cuda_ext, by its place: this Python may know no diagd, and must not see another's packages."""
    if not _loaded:
        spec = spec_from_file_location("_diagd_digest", Path(__file__).with_name("digest.py"))
        if spec is None or spec.loader is None:
            raise Unreadable("diagd's digest is not installed beside this file")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        _loaded.update(digest=module.load(), adding=module.load_adding())
    return _loaded[name]


def _lines(path: Path, wanted: dict[str, list[str]] | None) -> Iterator[dict[str, Any]]:
    names = ("name", "region", "total") if wanted is not None else ("name", "dtype", "shape", "digest", "sum")
    for told in parts_of(path, wanted) if wanted is not None else digests_of(path):
        yield dict(zip(names, told, strict=True))


def main(arguments: list[str]) -> int:
    """Print what the checkpoint holds."""
    warnings.simplefilter("ignore")  # of torch's, about things that are meant
    try:
        import torch  # noqa: F401 - to say so at once

        for line in _lines(Path(arguments[0]), json.load(sys.stdin) if "--parts" in arguments[1:] else None):
            sys.stdout.write(f"{json.dumps(line)}\n")
    except ImportError as error:
        sys.stderr.write(f"{sys.executable} has no torch: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"{error.filename or arguments[0]}: {error.strerror or error}\n")
        return 2
    except Unreadable as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
