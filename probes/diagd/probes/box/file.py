"""Files that a rank writes by mapping them."""

import contextlib
import mmap
import os
from pathlib import Path


def allocated(path: Path, size: int) -> mmap.mmap:
    """A new mapped file of so many bytes, every page of it really there.

    Raises:
        OSError: It exists, or there is no room; then there is no file either.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, size)
        return mmap.mmap(fd, size)
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    finally:
        os.close(fd)
