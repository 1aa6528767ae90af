"""The stream between agent and aggregator, over real sockets: outages, other jobs, messages that make no sense."""

import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

import grpc
import pytest
from tests.aggregator.fakes import FakeJudge, FakeObserver, Wanted, wait_for

from diagd.daemon.agent.buffer import Buffer
from diagd.daemon.agent.introduction import make_identity
from diagd.daemon.agent.loop import AgentLoop
from diagd.daemon.agent.stream import Stream
from diagd.daemon.agent.wire import detail_message
from diagd.daemon.aggregator.hub import Hub
from diagd.daemon.aggregator.loop import JobLoop
from diagd.daemon.aggregator.service import GrpcServer
from diagd.daemon.errors import DiagdError
from diagd.daemon.state.model import Detail, Exit, Facts, Status
from diagd.proto.v1.agent_pb2 import Command, ConnectRequest, Hello, Window
from diagd.proto.v1.agent_pb2_grpc import AgentServiceStub
from diagd.proto.v1.job_pb2 import GetReportRequest, ListJobsRequest
from diagd.proto.v1.job_pb2_grpc import JobServiceStub


@dataclass
class Served:
    """An aggregator's gRPC side."""

    hub: Hub
    server: GrpcServer
    judge: FakeJudge

    def loop(self, job_id: str = "job") -> JobLoop:
        self.hub.tick()
        return self.hub.find(job_id)

    def ranks(self, job_id: str = "job") -> list[int]:
        with self.hub.lock:
            self.hub.tick()
            known = [loop.state.job_id for loop in self.hub.loops()]
            return self.hub.find(job_id).state.ranks() if job_id in known else []


def serve(port: int = 0) -> Served:
    judge = FakeJudge()
    hub = Hub(time.time, lambda job_id: JobLoop(job_id, judge.make()))
    server = GrpcServer(hub, "127.0.0.1", port)
    server.start()
    return Served(hub, server, judge)


@pytest.fixture
def served() -> Iterator[Served]:
    running = serve()
    yield running
    running.server.stop()


def stream_to(address: str, job_id: str = "job", node: str = "n1", commands: list[Command] | None = None) -> Stream:
    return Stream(address, make_identity(job_id, node=node), (commands if commands is not None else []).append)


def test_looks_arrive_and_are_acknowledged(served: Served) -> None:
    stream = stream_to(served.server.address)
    stream.send([Facts(0, pid=1), Facts(1, pid=2)], [Detail(0, pid=1), Detail(1, pid=2)], time.time())
    wait_for(lambda: served.ranks() == [0, 1])
    assert stream.finish("over", 3)
    wait_for(lambda: served.loop().state.ended_s is not None)
    assert served.loop().state.exit_code == 3


def test_an_aggregator_that_is_killed_and_comes_back_loses_nothing() -> None:
    first = serve()
    port = first.server.port
    stream = stream_to(first.server.address)
    try:
        stream.send([Facts(0, pid=1)], [], time.time())
        wait_for(lambda: first.ranks() == [0])
        first.server.stop()
        wait_for(lambda: not stream.connected)
        ended = Detail(2, pid=3, exit=Exit(time.time(), signal="SIGKILL"))
        stream.send([Facts(2, pid=3, status=Status.KILLED)], [ended], time.time())
        second = serve(port)
        try:
            wait_for(lambda: second.ranks() == [2])
            assert str(second.loop().state.detail(2).exit) == "SIGKILL"
            stream.send([Facts(0, pid=1), Facts(2, pid=3)], [], time.time())
            wait_for(lambda: second.ranks() == [0, 2])
            assert stream.dropped == 0
        finally:
            second.server.stop()
    finally:
        stream.close()


def test_what_comes_twice_after_a_reconnection_counts_once(served: Served) -> None:
    hello = Hello(protocol=1, node="n1", job_id="job", session="s", time_s=time.time())
    windows = [ConnectRequest(window=Window(seq=seq, time_s=time.time())) for seq in (1, 2, 2, 1, 3)]
    with grpc.insecure_channel(served.server.address) as channel:
        call = AgentServiceStub(channel).Connect(iter([ConnectRequest(hello=hello), *windows]))
        assert next(iter(call)).ack.sent_s == hello.time_s
        wait_for(lambda: served.hub.counters.messages == 5)
        call.cancel()
        again = AgentServiceStub(channel).Connect(iter([ConnectRequest(hello=hello)]))
        assert next(iter(again)).ack.seq == 3
        again.cancel()
    assert served.hub.counters.duplicates == 2
    assert served.loop().counters.windows == 3


def test_two_jobs_of_a_node_are_kept_apart(served: Served) -> None:
    one, two = stream_to(served.server.address, "one"), stream_to(served.server.address, "two")
    one.send([Facts(0, pid=1)], [], time.time())
    two.send([Facts(5, pid=2)], [], time.time())
    wait_for(lambda: served.ranks("one") == [0] and served.ranks("two") == [5])
    with grpc.insecure_channel(served.server.address) as channel:
        stub = JobServiceStub(channel)
        assert list(stub.ListJobs(ListJobsRequest()).job_ids) == ["one", "two"]
        assert b'"rank": 5' in stub.GetReport(GetReportRequest(job_id="two")).report
        with pytest.raises(grpc.RpcError) as no_name:
            stub.GetReport(GetReportRequest())
        assert "known are: one, two" in str(no_name.value)
    one.close()
    two.close()


def test_a_report_that_has_not_changed_is_not_sent_again(served: Served) -> None:
    stream = stream_to(served.server.address)
    wait_for(lambda: stream.connected)
    served.loop()
    with grpc.insecure_channel(served.server.address) as channel:
        stub = JobServiceStub(channel)
        first = stub.GetReport(GetReportRequest())
        assert first.report
        assert stub.GetReport(GetReportRequest(known_revision=first.revision)).report == b""
    stream.close()


@pytest.mark.parametrize(
    ("requests", "code"),
    [
        ([ConnectRequest(window=Window(seq=1))], grpc.StatusCode.INVALID_ARGUMENT),
        ([], grpc.StatusCode.INVALID_ARGUMENT),
        ([ConnectRequest(hello=Hello(protocol=99, job_id="job"))], grpc.StatusCode.FAILED_PRECONDITION),
        ([ConnectRequest(hello=Hello(protocol=1))], grpc.StatusCode.NOT_FOUND),
    ],
)
def test_a_stream_that_does_not_begin_as_ours_do_is_refused(
    served: Served, requests: list[ConnectRequest], code: grpc.StatusCode
) -> None:
    with grpc.insecure_channel(served.server.address) as channel:
        call = AgentServiceStub(channel).Connect(iter(requests))
        with pytest.raises(grpc.RpcError) as refused:
            list(call)
        assert refused.value.code() is code


def test_a_window_that_makes_no_sense_is_counted_and_left_out(served: Served) -> None:
    hello = Hello(protocol=1, node="n1", job_id="job", session="s")
    broken = Window(seq=1)
    broken.facts.schema, broken.facts.rows = 1, 7
    sound = Window(seq=2, time_s=time.time(), details=[detail_message(Detail(4, pid=9))])
    with grpc.insecure_channel(served.server.address) as channel:
        call = AgentServiceStub(channel).Connect(
            iter([ConnectRequest(hello=hello), ConnectRequest(window=broken), ConnectRequest(window=sound)])
        )
        wait_for(lambda: served.hub.counters.messages == 2)
        call.cancel()
    loop = served.loop()
    assert loop.counters.rejected == 1
    assert loop.state.detail(4).pid == 9


def test_bytes_that_are_no_message_end_that_stream_alone(served: Served) -> None:
    with grpc.insecure_channel(served.server.address) as channel:
        raw: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(
            "/diagd.proto.v1.AgentService/Connect"
        )
        with pytest.raises(grpc.RpcError):
            list(raw(iter([b"\xff\xff\xff half a message"])))
    with socket.create_connection(("127.0.0.1", served.server.port)) as foreign:
        foreign.sendall(b"GET / HTTP/1.1\r\n\r\n")
    stream = stream_to(served.server.address)
    wait_for(lambda: stream.connected)
    stream.close()


def test_a_command_reaches_the_agent_and_its_answer_comes_back(served: Served) -> None:
    observer = FakeObserver()
    held: list[AgentLoop] = []
    stream = Stream(served.server.address, make_identity("job", node="n1"), lambda c: held[0].command(c))
    held.append(AgentLoop(observer, stream))
    held[0].step()
    wait_for(lambda: served.ranks() == [0, 1])
    served.judge.wanted = Wanted(stacks=(1,), history=(0, 1))
    held[0].step()  # something new to judge
    wait_for(lambda: served.hub.tick() is not None and served.loop().counters.deep_looks)
    wait_for(lambda: len(observer.deep_looks) == 2)
    assert sorted(observer.deep_looks) == [((0,), False, False, True), ((1,), True, False, True)]
    served.judge.wanted = Wanted()
    wait_for(lambda: served.loop().take_results())
    held[0].stop()
    stream.close()


def test_an_aggregator_that_refuses_is_named_once_with_its_reason(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diagd.daemon.agent.stream.COMPLAIN_AFTER_S", 0.0)
    server = GrpcServer(Hub(time.time), "127.0.0.1", 0)  # one that serves no other job than its own
    server.start()
    stream = stream_to(server.address)
    wait_for(lambda: "does not serve job 'job'" in caplog.text)
    time.sleep(1.0)  # and two more tries
    stream.close()
    server.stop()
    assert caplog.text.count("does not serve job") == 1


def test_an_aggregator_that_is_not_there_is_named_once_with_what_to_do(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diagd.daemon.agent.stream.COMPLAIN_AFTER_S", 0.0)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        stream = stream_to(address)
        wait_for(lambda: caplog.messages)
        stream.close()
    (said,) = caplog.messages
    assert said.startswith(f"the aggregator {address} is not reached (Connection refused), trying on: ")
    assert "diagd aggregator" in said


def test_an_address_in_use_is_an_error_that_says_what_to_do(served: Served) -> None:
    second = GrpcServer(served.hub, "127.0.0.1", served.server.port)
    with pytest.raises(DiagdError) as refused:
        second.start()
    second.stop()
    assert str(served.server.port) in refused.value.message
    assert "DIAGD_AGGREGATOR_GRPC_PORT" in refused.value.help
    assert refused.value.exit_code == 85


def window(**changes: object) -> Window:
    return Window(time_s=1.0, **changes)  # type: ignore[arg-type]


def test_a_full_buffer_drops_the_oldest_numbers_but_no_ending() -> None:
    buffer = Buffer(max_windows=2, max_bytes=1 << 20)
    ending = detail_message(Detail(3, pid=7, exit=Exit(5.0, code=1)))
    buffer.add(window(details=[ending, detail_message(Detail(1))]))
    for _ in range(3):
        buffer.add(window())
    assert (len(buffer), buffer.dropped, buffer.oldest) == (2, 2, 3)
    kept = buffer.after(2)
    assert kept is not None
    assert [d.rank for d in kept.details] == [3]


def test_a_buffer_is_bounded_in_bytes_too() -> None:
    buffer = Buffer(max_windows=1000, max_bytes=5000)
    for _ in range(10):
        buffer.add(window(details=[detail_message(Detail(0, notes=("x" * 1000,)))]))
    assert len(buffer) <= 5
    assert buffer.dropped >= 5


def test_a_buffer_gives_what_follows_a_number() -> None:
    buffer = Buffer(10, 1 << 20)
    for _ in range(4):
        buffer.add(window())
    assert [w.seq for seq in range(5) if (w := buffer.after(seq)) is not None] == [1, 2, 3, 4]
    buffer.acknowledge(2)
    first = buffer.after(0)
    assert first is not None
    assert first.seq == 3
    assert buffer.after(4) is None
