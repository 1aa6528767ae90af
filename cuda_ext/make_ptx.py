"""Makes digest.ptx of digest.cu: `python cuda_ext/make_ptx.py` with nvcc at hand; --check only sees whether it is due.

PTX is what a driver compiles for its own device, so a machine that trains needs no compiler. It is committed, as few
machines that install diagd have nvcc. nvcc writes the newest version of PTX that it knows, which older drivers refuse;
the code needs nothing newer than FLOOR, which ptxas then checks.
"""

import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent / "diagd" / "cuda_ext"
SOURCE, PTX = PACKAGE / "digest.cu", PACKAGE / "digest.ptx"
FLOOR = ".version 7.0\n.target sm_70\n"  # CUDA 11.0, Volta
LOWEST = "75"  # the oldest architecture that nvcc 13 knows
CHECKED = ("75", "80", "90", "100", "120")


def digest_of_source() -> str:
    """What ties the PTX to the source that it was made of."""
    return hashlib.sha256(SOURCE.read_bytes()).hexdigest()


def ptx() -> str:
    """Compile, and lower the version."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "digest.ptx"
        flags = ("-Werror", "all-warnings", "-std=c++17", "-O3", f"-arch=compute_{LOWEST}", "-ptx")
        subprocess.run(["nvcc", *flags, str(SOURCE), "-o", str(out)], check=True)
        text = out.read_text(encoding="utf-8")
    text = re.sub(r"(?m)^//.*\n", "", text).lstrip()
    text = re.sub(r"_INTERNAL_[0-9a-f]{8}_9_digest_cu_[0-9a-f]{8}", "_INTERNAL_00000000_9_digest_cu_00000000", text)
    text = re.sub(r"\.version .*\n\.target .*\n", FLOOR, text, count=1)
    return f"// Made of digest.cu by cuda_ext/make_ptx.py. sha256 of the source: {digest_of_source()}\n{text}"


def check() -> str:
    """Say what is wrong with the PTX as it is, or nothing."""
    if digest_of_source() not in PTX.read_text(encoding="utf-8").partition("\n")[0]:
        return "digest.ptx was made of another digest.cu: run `python cuda_ext/make_ptx.py`"
    for architecture in CHECKED:
        command = ["ptxas", f"-arch=sm_{architecture}", str(PTX), "-o", "/dev/null"]
        if (found := subprocess.run(command, capture_output=True, text=True)).returncode:
            return f"ptxas for sm_{architecture}: {found.stderr}"
    return ""


if __name__ == "__main__":
    if "--check" not in sys.argv:
        PTX.write_text(ptx(), encoding="utf-8")
    sys.exit(check() or 0)
