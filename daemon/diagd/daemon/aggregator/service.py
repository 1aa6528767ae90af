"""gRPC in: the agents' streams and people's questions, in an event loop on a thread of its own."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection  # type: ignore[import-untyped]

from diagd.daemon.aggregator.hub import Hub, UnknownJob
from diagd.daemon.aggregator.loop import report_text
from diagd.daemon.aggregator.status import status, status_text
from diagd.daemon.errors import DiagdError
from diagd.proto.v1 import agent_pb2_grpc, job_pb2_grpc
from diagd.proto.v1.agent_pb2 import Ack, Command, ConnectRequest, ConnectResponse, Hello
from diagd.proto.v1.job_pb2 import (
    GetReportRequest,
    GetReportResponse,
    GetStatusRequest,
    GetStatusResponse,
    ListJobsRequest,
    ListJobsResponse,
)

log = logging.getLogger(__name__)

AGENT_SERVICE = "diagd.proto.v1.AgentService"
JOB_SERVICE = "diagd.proto.v1.JobService"
COULD_NOT_START = 85
PROTOCOL = 1
ACK_EVERY_S = 0.2
MAX_COMMANDS = 1000  # waiting for one agent
START_TIMEOUT_S = 10.0
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.so_reuseport", 0),  # or a second aggregator would take every other agent, and nobody would be told
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.ping_timeout_ms", 3_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
)


class RemoteLink:
    """The way to an agent at the other end of a stream."""

    def __init__(self, node: str, loop: asyncio.AbstractEventLoop) -> None:
        self._node = node
        self._loop = loop
        self.outbox: asyncio.Queue[ConnectResponse | None] = asyncio.Queue(MAX_COMMANDS)

    @property
    def node(self) -> str:
        """The node's name."""
        return self._node

    def command(self, command: Command) -> None:
        """Send a command; lost where the agent takes none."""
        with suppress(RuntimeError):  # the server has stopped
            self._loop.call_soon_threadsafe(self.put, ConnectResponse(command=command))

    def put(self, response: ConnectResponse | None) -> None:
        """Queue a response; in the event loop's thread."""
        with suppress(asyncio.QueueFull):
            self.outbox.put_nowait(response)


@dataclass(slots=True)
class Refused(Exception):
    """A stream that is ended with a reason."""

    code: grpc.StatusCode
    reason: str


class AgentServicer(agent_pb2_grpc.AgentServiceServicer):
    """The agents' side."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def Connect(self, requests: AsyncIterator[ConnectRequest], context: Any) -> AsyncIterator[ConnectResponse]:
        """One node's stream for one job."""
        first = await anext(requests, None)
        if first is None or not first.HasField("hello"):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a stream begins with Hello")
            return
        hello = first.hello
        if hello.protocol != PROTOCOL:
            reason = f"agent {hello.agent_version} speaks protocol {hello.protocol}; this aggregator speaks {PROTOCOL}"
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, reason)
            return
        link = RemoteLink(hello.node, asyncio.get_running_loop())
        try:
            ack = self._hub.connect(link, hello)
        except UnknownJob as exc:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(exc))
            return
        link.put(ConnectResponse(ack=ack))
        reader = asyncio.create_task(self._read(requests, link, hello))
        try:
            while (response := await link.outbox.get()) is not None:
                yield response
        finally:
            reader.cancel()
            self._hub.disconnect(link, hello.job_id)

    async def _read(self, requests: AsyncIterator[ConnectRequest], link: RemoteLink, hello: Hello) -> None:
        loop = asyncio.get_running_loop()
        acked_at = 0.0
        try:
            async for request in requests:
                seq = self._hub.receive(link, hello.job_id, hello.session, request)
                parting = request.HasField("goodbye")
                if parting or loop.time() - acked_at >= ACK_EVERY_S:
                    acked_at = loop.time()
                    link.put(ConnectResponse(ack=Ack(seq=seq, time_s=self._hub.clock())))
                if parting:
                    return
        except grpc.aio.UsageError:  # the stream broke meanwhile
            pass
        finally:
            link.put(None)


class JobServicer(job_pb2_grpc.JobServiceServicer):
    """People's side."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def ListJobs(self, request: ListJobsRequest, context: Any) -> ListJobsResponse:
        """The jobs that are known here."""
        with self._hub.lock:
            return ListJobsResponse(job_ids=sorted(loop.state.job_id for loop in self._hub.loops()))

    async def GetReport(self, request: GetReportRequest, context: Any) -> GetReportResponse:
        """A job's report as it is now."""
        try:
            with self._hub.lock:
                loop = self._hub.find(request.job_id)
                revision = loop.revision
                report = None if revision == request.known_revision else loop.report()
        except UnknownJob as exc:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(exc))
            raise
        return GetReportResponse(revision=revision, report=report_text(report).encode() if report else b"")

    async def GetStatus(self, request: GetStatusRequest, context: Any) -> GetStatusResponse:
        """What each rank of a job does now."""
        try:
            with self._hub.lock:
                found = status(self._hub.find(request.job_id))
        except UnknownJob as exc:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(exc))
            raise
        return GetStatusResponse(status=status_text(found).encode())


class GrpcServer:
    """Serves a hub from a thread of its own."""

    def __init__(self, hub: Hub, host: str, port: int) -> None:
        self._hub = hub
        self._host, self._wanted_port = host, port
        self.port = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._started = threading.Event()
        self._failure = ""
        self._thread = threading.Thread(target=self._run, name="diagd-grpc", daemon=True)

    @property
    def address(self) -> str:
        """HOST:PORT, as an agent is given it."""
        return f"{self._host}:{self.port}"

    def start(self) -> str:
        """Listen; the address.

        Raises:
            DiagdError: The address cannot be had.
        """
        self._thread.start()
        if not self._started.wait(START_TIMEOUT_S) or self._failure:
            raise address_error("gRPC", self._host, self._wanted_port, self._failure or "the server does not start")
        return self.address

    def stop(self) -> None:
        """Stop listening and end all streams."""
        if self._loop is not None and self._stopping is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(timeout=5.0)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        server = grpc.aio.server(options=SERVER_OPTIONS)
        agent_pb2_grpc.add_AgentServiceServicer_to_server(AgentServicer(self._hub), server)
        job_pb2_grpc.add_JobServiceServicer_to_server(JobServicer(self._hub), server)
        healthy = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
        for name in ("", AGENT_SERVICE, JOB_SERVICE):
            await healthy.set(name, health_pb2.HealthCheckResponse.SERVING)
        names = (AGENT_SERVICE, JOB_SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        try:
            self.port = server.add_insecure_port(f"{self._host}:{self._wanted_port}")
            if self.port == 0:  # what grpcio before 1.80 says
                raise RuntimeError("the address cannot be bound")
        except RuntimeError as exc:
            self._failure = str(exc)
            self._started.set()
            return
        await server.start()
        self._started.set()
        await self._stopping.wait()
        await server.stop(grace=0.5)


def address_error(what: str, host: str, port: int, reason: str) -> DiagdError:
    """An error that says what to do about an address."""
    return DiagdError(
        f"cannot listen for {what} on {host}:{port}: {reason}",
        help=f"Is another aggregator running? `ss -ltnp 'sport = :{port}'` shows who has the port; "
        "DIAGD_AGGREGATOR_GRPC_PORT and DIAGD_AGGREGATOR_HTTP_PORT choose others.",
        exit_code=COULD_NOT_START,
    )
