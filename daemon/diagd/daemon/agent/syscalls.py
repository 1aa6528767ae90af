"""Names of the system calls that a hung process is found in, by machine and number."""

import platform

_X86_64 = {
    0: "read", 1: "write", 2: "open", 3: "close", 4: "stat", 5: "fstat", 7: "poll", 8: "lseek", 9: "mmap", 11: "munmap",
    16: "ioctl", 17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev", 22: "pipe", 23: "select", 24: "sched_yield",
    26: "msync", 34: "pause", 35: "nanosleep", 42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom",
    46: "sendmsg", 47: "recvmsg", 56: "clone", 59: "execve", 61: "wait4", 65: "semop", 72: "fcntl", 73: "flock",
    74: "fsync", 75: "fdatasync", 78: "getdents", 82: "rename", 83: "mkdir", 87: "unlink", 128: "rt_sigtimedwait",
    130: "rt_sigsuspend", 202: "futex", 217: "getdents64", 220: "semtimedop", 230: "clock_nanosleep",
    231: "exit_group", 232: "epoll_wait", 247: "waitid", 257: "openat", 262: "newfstatat", 270: "pselect6",
    271: "ppoll", 281: "epoll_pwait", 285: "fallocate", 288: "accept4", 299: "recvmmsg", 332: "statx",
    426: "io_uring_enter",
    437: "openat2", 441: "epoll_pwait2", 449: "futex_waitv",
}  # fmt: skip
_AARCH64 = {
    20: "epoll_create1", 22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 32: "flock", 34: "mkdirat", 35: "unlinkat",
    38: "renameat", 47: "fallocate", 56: "openat", 57: "close", 59: "pipe2", 61: "getdents64", 62: "lseek", 63: "read",
    64: "write", 65: "readv", 66: "writev", 67: "pread64", 68: "pwrite64", 72: "pselect6", 73: "ppoll",
    79: "newfstatat", 80: "fstat", 82: "fsync", 83: "fdatasync", 94: "exit_group", 95: "waitid", 98: "futex",
    101: "nanosleep", 115: "clock_nanosleep", 124: "sched_yield", 129: "kill", 130: "tkill",
    131: "tgkill", 133: "rt_sigsuspend", 137: "rt_sigtimedwait",
    192: "semtimedop", 193: "semop", 202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg",
    212: "recvmsg", 215: "munmap", 220: "clone", 221: "execve", 222: "mmap", 227: "msync", 242: "accept4",
    243: "recvmmsg", 260: "wait4", 291: "statx", 426: "io_uring_enter", 437: "openat2", 441: "epoll_pwait2",
    449: "futex_waitv",
}  # fmt: skip
_TABLES = {"x86_64": _X86_64, "AMD64": _X86_64, "aarch64": _AARCH64, "arm64": _AARCH64}

# Those whose first argument is a file descriptor: what it is open on says what the process waits for.
ON_DESCRIPTOR = frozenset({
    "read", "write", "pread64", "pwrite64", "readv", "writev", "close", "fsync", "fdatasync", "flock", "fcntl", "ioctl",
    "connect", "accept", "accept4", "sendto", "recvfrom", "sendmsg", "recvmsg", "getdents", "getdents64", "epoll_wait",
    "epoll_pwait", "fstat", "fallocate",
})  # fmt: skip

# Those with a path, and which argument it is.
PATH_ARGUMENT = {
    "open": 0, "stat": 0, "rename": 0, "mkdir": 0, "unlink": 0, "openat": 1, "openat2": 1, "newfstatat": 1, "statx": 1,
    "mkdirat": 1, "unlinkat": 1, "renameat": 1,
}  # fmt: skip


def name(number: int, machine: str = "") -> str:
    """The call's name; its number as text where the table has none, empty for no call at all."""
    if number < 0:
        return ""
    return _TABLES.get(machine or platform.machine(), {}).get(number, str(number))
