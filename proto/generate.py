"""Generates the Python code of every .proto file, or with --check says whether the committed code is up to date.

Run it through `make proto` or `make check`, which use the pinned tools of proto/requirements.txt.
"""

import argparse
import sys
import tempfile
from importlib import resources
from pathlib import Path

ROOT = Path(__file__).resolve().parent
# The path of a .proto is the path of its Python package, so that generated imports need no patching.
PACKAGE = Path("diagd/proto")
SUFFIXES = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py")


def sources() -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / PACKAGE).rglob("*.proto"))


def generate(names: list[str], out: Path) -> None:
    # Imported here so that --help works without the tools.
    from grpc_tools import protoc

    well_known = str(resources.files("grpc_tools") / "_proto")
    outputs = [f"--{kind}_out={out}" for kind in ("python", "pyi", "grpc_python")]
    if protoc.main(["protoc", f"-I{ROOT}", f"-I{well_known}", *outputs, *names]) != 0:
        raise SystemExit("protoc failed")
    for name in names:
        if "service " not in (ROOT / name).read_text(encoding="utf-8"):
            (out / name.replace(".proto", "_pb2_grpc.py")).unlink()  # nothing but a version check


def generated(root: Path) -> dict[str, str]:
    """Return the text of each generated file below root, by its path."""
    return {
        path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted((root / PACKAGE).rglob("*_pb2*"))
        if path.name.endswith(SUFFIXES)
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the code is out of date")
    args = parser.parse_args()

    names = sources()
    with tempfile.TemporaryDirectory() as folder:
        if names:
            generate(names, Path(folder))
        wanted, found = generated(Path(folder)), generated(ROOT)

    differing = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if args.check:
        for name in differing:
            what = "is missing" if name not in found else "has no .proto" if name not in wanted else "is out of date"
            print(f"proto/{name} {what}; run `make proto`", file=sys.stderr)
        return 1 if differing else 0
    for name in differing:
        path = ROOT / name
        if name in wanted:
            path.write_text(wanted[name], encoding="utf-8")
        else:
            path.unlink()
        print(f"proto/{name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
