"""Operations on a process group by both ways, Python's and the compiled one: the same records, no harm in either."""

import ctypes
import gc
import random
import shutil
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import BuiltinFunctionType, SimpleNamespace
from typing import Any

import pytest

from diagd.probes import collectives, cost, groups, phases, sites, waits
from diagd.probes.box.layout import Dtype, Flag, Live, Op, Phase, Record, Reduce
from diagd.probes.box.reader import BoxReader
from diagd.probes.box.writer import BoxWriter
from diagd.probes.guard import Probe
from diagd.probes.native import build, load
from diagd.probes.settings import Settings
from diagd.probes.state import STATE

WAYS = ("python", "native")
PACKAGE = "/opt/lib/python3.11/site-packages/lightning/x.py"


class Work:
    """As torch's."""

    def wait(self) -> bool:
        return True


class Tensor:
    """What is asked of one."""

    def __init__(self, *shape: Any, dtype: str = "torch.float32") -> None:
        self.shape = shape
        self.dtype = dtype

    def numel(self) -> int:
        return 7


class Options(SimpleNamespace):
    """As AllreduceOptions and its like."""


class ReduceOp:
    SUM, MAX = 0, 3  # a hash of an int is the int


class ProcessGroup:
    """Counts like gloo."""

    def __init__(self, name: str = "0") -> None:
        self.group_name = name
        self.issued = 0
        self.made: Any = None

    def _get_sequence_number_for_group(self) -> int:
        return self.issued

    def allreduce(self, tensors: Any, options: Any = None) -> Work:
        if tensors == "fail":
            raise RuntimeError("connection closed")
        self.issued += 1
        return Work()

    broadcast = reduce = gather = allreduce

    def allgather(self, outputs: Any, inputs: Any, options: Any = None) -> Any:
        self.issued += 1
        return self.made

    def barrier(self, options: Any = None) -> Work:
        self.issued += 1
        return Work()

    def monitored_barrier(self, timeout: float, all_ranks: bool) -> None:
        self.issued += 2

    def send(self, tensors: Any, partner: int, tag: int) -> Work:
        self.issued += 1
        return Work()

    def recv_anysource(self, tensors: Any, tag: int) -> Work:
        return Work()


class Rank:
    """The probes of operations, by one way, around classes that stand for torch's."""

    def __init__(self, way: str, box: BoxWriter) -> None:
        self.kind: Any = type("ProcessGroup", (ProcessGroup,), dict(ProcessGroup.__dict__))
        self.work: Any = type("Work", (Work,), dict(Work.__dict__))
        STATE.settings = Settings(native=way == "native")
        self.probe = Probe("collectives", 0, always=True)
        collectives.install(self.probe, SimpleNamespace(ProcessGroup=self.kind, ReduceOp=ReduceOp))
        waits.install(self.probe, SimpleNamespace(Work=Work))
        self.handle = self.kind()
        self.know(self.handle, 0)
        self.reader = BoxReader(box.path)

    def know(self, handle: Any, number: int, ranks: tuple[int, ...] = (4, 5)) -> None:
        """As groups.refresh does for a new group."""
        name = handle.group_name
        groups.TABLE[name] = groups.Group(number, name, ranks, weakref.ref(handle), True, {}, [0, -1])

    def told(self) -> list[tuple[Any, ...]]:
        """The records without thread and times, but with which times there are, and with places in words."""
        return [self._told(record) for record in self.reader.history()]

    def _told(self, record: Record) -> tuple[Any, ...]:
        times = (record.issued_ns > 0, record.wait_ns > 0, record.returned_ns > 0)
        known = record._replace(entered_ns=0, issued_ns=0, wait_ns=0, returned_ns=0, site=0, detail=0, thread=0)
        return (*known, *times, self.reader.string(record.site), self.reader.string(record.detail))

    @property
    def last(self) -> Record:
        return self.reader.history()[-1]


def forget() -> None:
    collectives.remove()
    waits.remove()
    waits.WATCHED.clear()
    groups.TABLE.clear()
    sites.forget()
    for listener in groups.ON_CHANGE:
        listener()


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    forget()


@pytest.fixture(params=WAYS)
def rank(request: pytest.FixtureRequest, recording: BoxWriter) -> Rank:
    return Rank(request.param, recording)


def test_the_library_is_there_wherever_there_is_a_compiler() -> None:
    assert (load.library() is not None) or not build.compiler()


def test_the_compiled_way_is_the_one_that_is_gone(recording: BoxWriter) -> None:
    for way in WAYS:
        built = Rank(way, recording).kind.allreduce.__closure__
        found = {type(cell.cell_contents) for cell in built if callable(cell.cell_contents)}
        assert (BuiltinFunctionType in found) == (way == "native" and load.library() is not None)
        forget()


def test_a_collective_tells_all_about_itself(rank: Rank) -> None:
    work = rank.handle.allreduce([Tensor(3, 4)], Options(reduceOp=ReduceOp.MAX, asyncOp=True))
    record = rank.last
    assert (record.seq, record.group, record.dims, record.numel, record.tensors) == (1, 0, (3, 4), 12, 1)
    assert (record.op, record.dtype, record.reduce) == (Op.ALLREDUCE, Dtype.FLOAT32, Reduce.MAX)
    assert (record.flags, record.peer, record.thread) == (Flag.ASYNC, -1, threading.get_native_id())
    file, _, function = rank.reader.string(record.site).split("\t")
    assert (file, function) == (__file__, "test_a_collective_tells_all_about_itself")
    assert (record.wait_ns, record.returned_ns) == (0, 0)
    work.wait()
    assert record.entered_ns <= record.issued_ns <= rank.last.wait_ns <= rank.last.returned_ns


def test_roots_are_global_ranks(rank: Rank) -> None:
    for root, peer in ((0, 4), (1, 5), (2, -1), (-1, -1)):
        rank.handle.broadcast([Tensor(2)], Options(rootRank=root))
        assert rank.last.peer == peer


def at_the_place_of(address: int) -> Work:
    """A work that the probes have not seen, at this address."""
    others = []
    for _ in range(10_000):
        others.append(Work())
        if id(others[-1]) == address:
            return others[-1]
    raise AssertionError("no work came to lie there")


def test_a_work_that_nobody_waited_for_is_not_taken_for_a_later_one_at_its_place(rank: Rank) -> None:
    rank.handle.barrier(Options())
    (address,) = waits.WATCHED
    at_the_place_of(address).wait()
    barrier, unseen = rank.reader.history()
    assert (barrier.op, barrier.wait_ns, barrier.returned_ns) == (Op.BARRIER, 0, 0)
    assert (unseen.op, unseen.returned_ns > 0) == (Op.WAIT, True)
    assert not waits.WATCHED


class BareWork:
    """Takes no weak reference, as one of a backend of somebody's own may."""

    __slots__ = ()


def test_a_work_that_takes_no_weak_reference_is_watched_all_the_same(rank: Rank) -> None:
    bare = BareWork()
    rank.handle.made = bare
    assert rank.handle.allgather([], []) is bare
    assert waits.WATCHED[id(bare)][2] is None
    assert rank.probe.errors == 0


def test_waiting_is_the_phase_collective_but_not_inside_a_backward_pass(rank: Rank) -> None:
    phases.enter(Phase.FORWARD)
    seen = []
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        phases.enter(phase)
        work = rank.handle.barrier(Options())
        live = STATE.live
        token = waits._before((work,), {})
        seen.append(Phase(live[Live.PHASE]))
        waits._after(token, None)
        assert live[Live.PHASE] == phase
    assert seen == [Phase.COLLECTIVE, Phase.BACKWARD]


def test_what_raises_is_told_as_failed_and_goes_on_to_the_script(rank: Rank) -> None:
    with pytest.raises(RuntimeError, match="connection closed"):
        rank.handle.allreduce("fail", Options(reduceOp=ReduceOp.SUM))
    if rank.reader.history():
        assert (rank.last.flags, rank.last.returned_ns > 0) == (Flag.FAILED, True)


def test_a_destroyed_group_is_not_taken_for_what_it_was(rank: Rank) -> None:
    rank.handle.barrier(Options())
    del groups.TABLE["0"]
    for listener in groups.ON_CHANGE:
        listener()
    rank.handle.barrier(Options())
    assert [record.group for record in rank.reader.history()] == [0, -1]


def test_another_group_at_the_same_address_is_another(rank: Rank) -> None:
    for number in range(1, 60):
        handle = rank.kind(f"{number}")
        rank.know(handle, number)
        handle.barrier(Options())
        assert rank.last.group == number
        del handle


def test_each_thread_has_its_ring_and_a_later_one_takes_over_that_of_an_ended_one(rank: Rank) -> None:
    def work() -> None:
        for _ in range(3):
            rank.handle.barrier(Options())

    for _ in range(40):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    work()
    history = rank.reader.history()
    assert len(history) == 123
    assert [record.serial for record in history] == list(range(1, 124))
    assert STATE.live[Live.DROPPED] == 0


def test_threads_at_once_lose_no_record(rank: Rank) -> None:
    threads = [threading.Thread(target=lambda: [rank.handle.barrier(Options()) for _ in range(100)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    history = rank.reader.history()
    assert sorted(record.serial for record in history) == list(range(1, 401))
    assert STATE.live[Live.OPERATIONS] == 400


def test_a_new_box_is_written_from_its_beginning(rank: Rank, tmp_path: Path) -> None:
    rank.handle.barrier(Options())
    writer = BoxWriter(tmp_path / "2-2.box")
    waits.WATCHED.clear()
    STATE.box, STATE.live = writer, writer.live
    rank.know(rank.handle, 3)  # numbers of groups begin anew
    rank.handle.barrier(Options()).wait()
    (record,) = BoxReader(writer.path).history()
    assert record.group == 3
    assert (record.serial, record.seq, record.returned_ns > 0) == (1, 2, True)
    assert BoxReader(writer.path).string(record.site).endswith("test_a_new_box_is_written_from_its_beginning")
    assert len(rank.reader.history()) == 1


def test_without_a_box_nothing_is_written_and_the_script_goes_on(rank: Rank) -> None:
    STATE.box = STATE.live = None
    assert isinstance(rank.handle.barrier(Options()), Work)
    assert rank.handle.barrier(Options()).wait()
    assert rank.reader.history() == []


def test_details_are_left_out_when_they_were_shed(rank: Rank) -> None:
    for detail in (2, 1, 0):
        STATE.detail = detail
        rank.handle.allreduce([Tensor(5)], Options(reduceOp=ReduceOp.MAX, asyncOp=True))
    assert [(r.numel, r.reduce, r.flags, r.site > 0) for r in rank.reader.history()] == [
        (5, Reduce.MAX, Flag.ASYNC, True),
        (-1, Reduce.NONE, 0, True),
        (-1, Reduce.NONE, 0, False),
    ]


def test_one_in_sixteen_is_timed_and_counted(rank: Rank) -> None:
    for _ in range(64):
        rank.handle.barrier(Options()).wait()
    assert 0 < STATE.live[Live.OVERHEAD_NS] < 64 * 10**6
    assert STATE.live[Live.OVERHEAD_NS] % (cost.MASK + 1) == 0


def called_from(file: str, function: Callable[[], Any]) -> Any:
    """Call it from code that pretends to lie in `file`."""
    names: dict[str, Any] = {}
    exec(compile("def step(function):\n    return function()\n", file, "exec"), names)
    return names["step"](function)


@pytest.mark.parametrize(("file", "function"), [("/home/me/train.py", "step"), (PACKAGE, "called_from")])
def test_a_place_is_the_same_by_both_ways(file: str, function: str, rank: Rank) -> None:
    native = load.library()
    ways = [sites.here] if native is None else [sites.here, native.here(sites.here)]
    found = {rank.reader.string(called_from(file, called_from_here(here))) for here in ways for _ in range(2)}
    assert len(found) == 1
    assert found.pop().endswith(f"\t{function}")


def called_from_here(here: Callable[[], int]) -> Callable[[], int]:
    names: dict[str, Any] = {"here": here}
    exec(compile("def probe():\n    return here()\n", "<diagd>", "exec"), names)
    made: Callable[[], int] = names["probe"]
    return made


class Symbolic:
    """An extent that is no number yet."""

    def __mul__(self, other: Any) -> Any:
        raise TypeError("not known")

    __rmul__ = __mul__


class Raising:
    """Nothing can be asked of it."""

    def __getattribute__(self, name: str) -> Any:
        raise ValueError(name)


def calls(handle: Any) -> list[Callable[[], Any]]:
    """All kinds of calls, usual and not."""
    tensor, reduced = Tensor(2, 3), Options(reduceOp=ReduceOp.SUM, asyncOp=False)
    unknown = type(handle)("nobody knows it")
    return [
        lambda: handle.allreduce([tensor], reduced),
        lambda: handle.allreduce((tensor,), reduced).wait(),
        lambda: handle.allreduce(tensor, reduced).wait(),
        lambda: handle.allreduce([], reduced),
        lambda: handle.allreduce([tensor, Tensor(9)], reduced),
        lambda: handle.allreduce([Tensor()], reduced),
        lambda: handle.allreduce([Tensor(1, 2, 3, 4, 5, 6, 7, 8)], reduced),
        lambda: handle.allreduce([Tensor(0, 5)], reduced),
        lambda: handle.allreduce([Tensor(2**33)], reduced),
        lambda: handle.allreduce([Tensor(2**31, 2**31, 2**31)], reduced),
        lambda: handle.allreduce([Tensor(Symbolic(), 2)], reduced),
        lambda: handle.allreduce([Tensor(3, dtype="torch.float8")], reduced),
        lambda: handle.allreduce([Tensor(3, dtype="torch.bfloat16")], Options(reduceOp=17, asyncOp=True)),
        lambda: handle.allreduce([tensor], ReduceOp.MAX),
        lambda: handle.allreduce([tensor], Raising()),
        lambda: handle.allreduce(Raising(), reduced),
        lambda: handle.allreduce([tensor]),
        lambda: handle.allreduce(tensors=[tensor], options=reduced),
        lambda: handle.allreduce("fail", reduced),
        lambda: handle.broadcast([tensor], Options(rootRank=1)).wait(),
        lambda: handle.broadcast([tensor], Options(rootRank="one")),
        lambda: handle.reduce([tensor], Options(rootRank=0, reduceOp=ReduceOp.MAX)),
        lambda: handle.allgather([[Tensor(8)]], [tensor], Options()),
        lambda: handle.allgather([[Tensor(8)]], [[tensor, tensor]], Options()),
        lambda: handle.barrier(Options(asyncOp=True)),
        lambda: handle.barrier(),
        lambda: handle.monitored_barrier(1.0, True),
        lambda: handle.barrier(Options()),
        lambda: handle.send([tensor], 1, 7).wait(),
        lambda: handle.recv_anysource([tensor], 3).wait(),
        lambda: unknown.barrier(Options()),
        lambda: Work().wait(),
        lambda: called_from("/home/me/train.py", lambda: handle.barrier(Options())),
        lambda: called_from(PACKAGE, lambda: handle.barrier(Options())),
    ]


def run_all(handle: Any) -> list[Any]:
    outcomes: list[Any] = []
    for call in calls(handle):
        for depth in (0, 1):
            STATE.backward_depth = depth
            try:
                outcomes.append(type(call()).__name__)
            except Exception as error:  # noqa: BLE001 - compared
                outcomes.append(repr(error))
    STATE.backward_depth = 0
    return outcomes


def test_both_ways_write_the_same_and_leave_the_script_alone(recording: BoxWriter, tmp_path: Path) -> None:
    found = []
    for way in WAYS:
        writer = BoxWriter(tmp_path / f"{way}-1.box")
        STATE.box, STATE.live = writer, writer.live
        rank = Rank(way, writer)
        rank.probe.errors = -1000  # some of these calls make Python's way fail as well: it shall not be switched off
        found.append((run_all(rank.handle), rank.told(), rank.probe.errors, rank.handle.issued))
        forget()
    assert len(found[0][1]) > 50
    assert found[0] == found[1]


def test_an_interrupt_goes_on_to_the_script(rank: Rank) -> None:
    class Interrupted:
        @property
        def dtype(self) -> Any:
            raise KeyboardInterrupt

        shape = ()

    with pytest.raises(KeyboardInterrupt):
        rank.handle.allreduce([Interrupted()], Options(reduceOp=0))
    rank.handle.barrier(Options())
    assert rank.probe.errors == 0


def test_nothing_is_kept_and_nothing_is_let_go_too_often(rank: Rank) -> None:
    tensor, options = Tensor(2), Options(reduceOp=ReduceOp.SUM, asyncOp=False)
    extent = 123456789
    tensor.shape = (extent,)
    watched = (tensor, options, rank.handle, tensor.shape, groups.TABLE["0"].uncounted, STATE.box, extent)
    group = groups.TABLE["0"]

    def loop(times: int) -> list[int]:
        for _ in range(times):
            rank.handle.allreduce([tensor], options).wait()
            rank.handle.allreduce([Tensor(1), tensor], options)
            rank.handle.barrier(options)
        waits.WATCHED.clear()
        gc.collect()
        return [sys.getrefcount(thing) for thing in (*watched, group)]

    first = loop(50)
    before = len(gc.get_objects())
    assert loop(500) == first
    assert abs(len(gc.get_objects()) - before) < 50


def test_the_compiled_functions_survive_any_arguments(recording: BoxWriter) -> None:
    rank = Rank("native", recording)
    native = load.library()
    functions: list[Any] = []
    if native is not None:
        ignore = lambda *_: None  # noqa: E731
        functions = [
            native.recorder(ignore, 1, 0, 1, True, True, {0: 1}, 10), native.after(ignore),
            native.wait_before(ignore), native.wait_after(ignore), native.enter(ignore),
        ]  # fmt: skip
    rng = random.Random(7)
    token = functions[0]((rank.handle, [Tensor(1)], Options(reduceOp=0, rootRank=0)), {}) if functions else ()
    things: list[Any] = [
        None, 0, -1, 2**62, 2**70, "x", (), [], {}, (1,), (1, 2, 3), token, (*token[:2], 2**40, *token[3:]),
        (*token[:2], -5, *token[3:]), (None, None, "a", 1, 2, 3, 4), (None, None, 1, 1, 2, [], -1), rank.handle,
        Raising(), (rank.handle, [Tensor(-3)], Raising()), (rank.handle,), (Work(),), (10**9, 1, 4), (1, 10**19, 9),
    ]  # fmt: skip
    for number in range(3000):
        if things and number % 3 == 0:
            key = id(rng.choice(things))
            waits.WATCHED[key] = rng.choice(things)
        for function in functions:
            function(*(rng.choice(things) for _ in range(rng.randrange(4))))
    header = recording._map[:256]
    assert header[:8] == b"DIAGDBOX"


def test_a_library_of_other_sources_is_not_used(tmp_path: Path) -> None:
    shutil.copytree(build.FOLDER, tmp_path / "native")
    (tmp_path / "native" / "box.c").write_text("/* newer */")
    assert build.sources_number(tmp_path / "native") != build.sources_number()
    native = load.library()
    assert native is None or build.sources_number() == native.SOURCES


@pytest.mark.parametrize("compiler", ["/bin/false", "no-such-compiler"])
def test_without_a_compiler_that_works_it_is_said_and_nothing_is_left(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", compiler)
    assert compiler in build.build(tmp_path / "_native.abi3.so")
    assert list(tmp_path.iterdir()) == []


def test_the_library_keeps_to_pythons_stable_abi(tmp_path: Path) -> None:
    """It names no function that Python's limited interface does not promise: loads in any Python from 3.11 on."""
    if load.library() is None:
        assert not build.compiler()
        return
    assert "#define Py_LIMITED_API 0x030B0000" in (build.FOLDER / "native.h").read_text()
    assert ctypes.CDLL(str(build.LIBRARY)).PyInit__native is not None
