"""Who an agent speaks for: what it says of itself and of its job when a stream begins."""

import socket
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from diagd.proto.v1.agent_pb2 import Hello

PROTOCOL = 1


@dataclass(frozen=True, slots=True)
class Identity:
    """Who an agent speaks for."""

    node: str
    job_id: str
    boot_id: str = ""
    session: str = ""
    agent_version: str = ""
    command: tuple[str, ...] = ()
    started_s: float = 0.0
    hang_after_s: float = 0.0

    def hello(self, resume_seq: int) -> Hello:
        """The first message of a stream."""
        return Hello(
            agent_version=self.agent_version,
            protocol=PROTOCOL,
            node=self.node,
            boot_id=self.boot_id,
            session=self.session,
            job_id=self.job_id,
            command=self.command,
            started_s=self.started_s,
            hang_after_s=self.hang_after_s,
            resume_seq=resume_seq,
            time_s=time.time(),
        )


def agent_version() -> str:
    """diagd's version, as installed."""
    try:
        return version("diagd")
    except PackageNotFoundError:  # run from a checkout
        return "0+unknown"


def boot_id() -> str:
    """The kernel's name for this boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def make_identity(
    job_id: str,
    *,
    node: str | None = None,
    command: Sequence[str] = (),
    started_s: float = 0.0,
    hang_after_s: float = 0.0,
) -> Identity:
    """Who this agent speaks for."""
    return Identity(
        node=node or socket.gethostname(),
        job_id=job_id,
        boot_id=boot_id(),
        session=uuid.uuid4().hex,
        agent_version=agent_version(),
        command=tuple(command),
        started_s=started_s,
        hang_after_s=hang_after_s,
    )
