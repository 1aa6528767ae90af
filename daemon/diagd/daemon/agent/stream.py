"""The agent's stream to the aggregator: what was not acknowledged is kept, and sent again after an outage."""

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import grpc

from diagd.daemon.agent.buffer import Buffer, Queue
from diagd.daemon.agent.introduction import Identity
from diagd.daemon.agent.wire import detail_message, facts_columns, ledger_message, signals_message
from diagd.daemon.state.model import Detail, Facts
from diagd.daemon.state.scalars import SignalNews
from diagd.daemon.state.tensors import LedgerNews
from diagd.proto.v1 import agent_pb2
from diagd.proto.v1.agent_pb2 import ConnectRequest, ConnectResponse, Goodbye, Window
from diagd.proto.v1.agent_pb2_grpc import AgentServiceStub

log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
FIRST_DELAY_S = 0.2
LAST_DELAY_S = 2.0
COMPLAIN_AFTER_S = 3.0
# A clock that is off by less than this is left alone: the way there and back takes as long.
CLOCK_NOISE_S = 0.05

# A frozen peer is noticed after `keepalive_timeout_ms` only where `ping_timeout_ms`, by default 60 s, says the same.
CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.ping_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # Two agents of one process must not share a connection's fate.
    ("grpc.use_local_subchannel_pool", 1),
)


class Stream:
    """One long stream to an aggregator, in threads of its own. Made where no fork follows, and never in a rank.

    Args:
        commanded: Called with each command, in the stream's thread; returns at once.
    """

    def __init__(
        self,
        target: str,
        identity: Identity,
        commanded: Callable[[agent_pb2.Command], None],
        *,
        max_windows: int = 1200,
        max_bytes: int = 16 * 1024 * 1024,
    ) -> None:
        self.identity = identity
        self._target = target
        self._commanded = commanded
        self._buffer = Buffer(max_windows, max_bytes)
        self._results: deque[agent_pb2.CommandResult] = deque(maxlen=100)
        self._goodbye: Goodbye | None = None
        self._introduced = True
        self._parted = False  # the aggregator has closed the stream after our goodbye
        self._changed = threading.Condition()
        self._call: grpc.Call | None = None
        self._stopped = False
        self._shift_s = 0.0
        self._best_trip_s = float("inf")
        self._made_at = time.monotonic()
        self._complained = False
        self.connected = False
        self.connections = 0
        self._channel = grpc.insecure_channel(target, options=CHANNEL_OPTIONS)
        self._thread = threading.Thread(target=self._run, name="diagd-stream", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Windows lost so far because the aggregator could not be reached."""
        return self._buffer.dropped

    @property
    def queue(self) -> Queue:
        """Windows made, waiting and lost so far."""
        with self._changed:
            return self._buffer.queue

    def send(
        self, facts: Sequence[Facts], details: Sequence[Detail], now_s: float, ledgers: Sequence[LedgerNews] = (),
        signals: Sequence[SignalNews] = (),
    ) -> None:  # fmt: skip
        """Send a look; never blocks."""
        shift_s = self._shift_s
        window = Window(
            time_s=now_s + shift_s,
            facts=facts_columns(facts, shift_s),
            details=[detail_message(d, shift_s) for d in details],
            ledgers=[ledger_message(news) for news in ledgers],
            signals=[signals_message(news) for news in signals],
        )
        with self._changed:
            self._buffer.add(window)
            self._changed.notify_all()

    def introduce(self, identity: Identity) -> None:
        """Say more of the job than was known when the stream was made, now and at each reconnection."""
        with self._changed:
            self.identity = identity
            self._introduced = False
            self._changed.notify_all()

    def answer(self, result: agent_pb2.CommandResult) -> None:
        """Say what became of a command."""
        with self._changed:
            self._results.append(result)
            self._changed.notify_all()

    def finish(self, reason: str, exit_code: int | None, timeout_s: float = 3.0) -> bool:
        """Send what is left and say goodbye; whether all of it arrived."""
        goodbye = Goodbye(reason=reason, exit_code=exit_code, time_s=time.time() + self._shift_s)
        with self._changed:
            self._goodbye = goodbye
            self._changed.notify_all()
            arrived = self._changed.wait_for(lambda: self._parted, timeout_s)
        self.close()
        return arrived

    def close(self) -> None:
        """Stop at once."""
        with self._changed:
            self._stopped = True
            call = self._call
            self._changed.notify_all()
        if call is not None:
            call.cancel()
        self._channel.close()
        self._thread.join(timeout=5.0)

    def _run(self) -> None:
        delay_s = FIRST_DELAY_S
        stub = AgentServiceStub(self._channel)
        while not self._stopped:
            if self._talk(stub):
                delay_s = FIRST_DELAY_S
            if self._stopped:
                return
            with self._changed:
                self._changed.wait_for(lambda: self._stopped, delay_s * random.uniform(0.5, 1.0))  # noqa: S311
            delay_s = min(delay_s * 2, LAST_DELAY_S)

    def _talk(self, stub: AgentServiceStub) -> bool:
        """One stream, until it breaks; whether it ever stood."""
        over = threading.Event()
        stood = False
        try:
            call = stub.Connect(self._requests(over), wait_for_ready=False)
            with self._changed:
                self._call = call
            for response in call:
                if not stood:
                    log.info("connected to the aggregator at %s", self._target)
                    stood = self.connected = True
                    self.connections += 1
                self._take(response)
            with self._changed:
                self._parted = self._stopped = self._goodbye is not None and not len(self._buffer)
        except grpc.RpcError as exc:
            if not self._stopped:
                self._note_failure(exc, stood)
        except ValueError:  # the channel was closed while the call was being made
            pass
        finally:
            self.connected = False
            with self._changed:
                self._call = None
                over.set()
                self._changed.notify_all()
        return stood

    def _note_failure(self, exc: grpc.RpcError, stood: bool) -> None:
        """Say once that there is nobody, and each time that somebody is lost."""
        details = getattr(exc, "details", None)
        reason = details() if callable(details) else exc
        if stood:
            log.warning("lost the aggregator at %s (%s); looks are kept meanwhile", self._target, reason)
        elif not self._complained and time.monotonic() - self._made_at > COMPLAIN_AFTER_S:
            self._complained = True
            if getattr(exc, "code", lambda: None)() is grpc.StatusCode.UNAVAILABLE:
                why = str(reason).rpartition(": ")[2].rstrip("]")
                help = "is `diagd aggregator --host 0.0.0.0` running there?"
                log.warning("the aggregator %s is not reached (%s), trying on: %s", self._target, why, help)
            else:
                log.warning("the aggregator %s does not take this node's looks (%s); trying on", self._target, reason)

    def _requests(self, over: threading.Event) -> Iterator[ConnectRequest]:
        """All that there is to send on one stream, as it comes; runs in a thread of gRPC's."""
        with self._changed:
            sent = self._buffer.oldest - 1
            self._take_introduction()
        yield ConnectRequest(hello=self.identity.hello(sent + 1))
        while True:
            with self._changed:
                self._changed.wait_for(lambda: over.is_set() or self._stopped or self._has_more(sent))  # noqa: B023
                if over.is_set() or self._stopped:
                    return
                if self._take_introduction():
                    request = ConnectRequest(hello=self.identity.hello(sent + 1))
                elif self._results:
                    request = ConnectRequest(result=self._results.popleft())
                elif (window := self._buffer.after(sent)) is not None:
                    sent = window.seq
                    request = ConnectRequest(window=window)
                else:
                    request = ConnectRequest(goodbye=self._goodbye)
            yield request
            if request.HasField("goodbye"):
                return

    def _take_introduction(self) -> bool:
        due, self._introduced = not self._introduced, True
        return due

    def _has_more(self, sent: int) -> bool:
        if not self._introduced:
            return True
        return bool(self._results) or self._buffer.after(sent) is not None or self._goodbye is not None

    def _take(self, response: ConnectResponse) -> None:
        which = response.WhichOneof("message")
        if which == "ack":
            self._note_clock(response.ack)
            with self._changed:
                self._buffer.acknowledge(response.ack.seq)
                self._changed.notify_all()
        elif which == "command":
            self._commanded(response.command)

    def _note_clock(self, ack: agent_pb2.Ack) -> None:
        """The aggregator's clock less ours, from the quickest answer so far."""
        if ack.sent_s <= 0:
            return
        now_s = time.time()
        trip_s = now_s - ack.sent_s
        if 0 <= trip_s < self._best_trip_s:
            self._best_trip_s = trip_s
            shift_s = ack.time_s - (ack.sent_s + trip_s / 2)
            self._shift_s = shift_s if abs(shift_s) > max(CLOCK_NOISE_S, trip_s) else 0.0
