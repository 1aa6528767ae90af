"""Files as people have them: cut off, empty, of something else, of an older torch, or made to do harm."""

import contextlib
import json
import os
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.analyze.written import call, dump, faults, judged, save, world

from diagd.daemon.analyze.build import state_of
from diagd.daemon.analyze.dumpfile import parse, rank_in, read
from diagd.daemon.analyze.plain import NotADump, load
from diagd.daemon.detectors.registry import detect
from diagd.daemon.errors import DiagdError

GLOO = Path(__file__).with_name("fixtures") / "gloo_missing"


class Harm:
    """Runs a command when it is unpickled as pickle.load does."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_wants_to_run_code_is_refused_and_runs_nothing(tmp_path: Path, protocol: int) -> None:
    proof, file = tmp_path / "harmed", tmp_path / "trace_0"
    file.write_bytes(pickle.dumps({"entries": [Harm(proof)], "version": "2.10", "pg_config": {}}, protocol))
    with pytest.raises(NotADump, match=r"wants to use \w+\.mkdir.*refused"):
        read(file)
    assert not proof.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"cbuiltins\neval\n(S'1/0'\ntR.",  # the oldest protocol has no mark by which it is known
        b"\x80\x02cos\nsystem\nq\x00X\x04\x00\x00\x00trueq\x01\x85q\x02Rq\x03.",
        b"\x80\x04\x95\x0f\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x8c\x06system\x93.",
        b"\x80\x02}q\x00X\x01\x00\x00\x00aQ.",  # refers to something outside
        b"\x80\x02\x82\x01.",  # a number from the registry of extensions
    ],
)
def test_no_way_to_name_code_is_left_open(data: bytes) -> None:
    with pytest.raises(NotADump):
        load(data)


def test_a_pickle_nested_without_end_is_no_dump(tmp_path: Path) -> None:
    deep = b"]" * 100_000 + b"a" * 99_999
    entry = b"}(X\x0e\x00\x00\x00profiling_nameX\x04\x00\x00\x00nameX\x0b\x00\x00\x00input_sizes" + deep + b"u"
    file = tmp_path / "trace_0"
    file.write_bytes(b"\x80\x02}X\x07\x00\x00\x00entries]" + entry + b"as.")
    with pytest.raises(NotADump, match="nested too deeply"):
        read(file)


def test_plain_containers_are_read() -> None:
    said = OrderedDict(entries=[call("all_reduce", 1)], version="2.10", pg_config={})
    assert len(parse(load(pickle.dumps(said, 2)), 0, Path("trace_0"), 0.0).table) == 1


def test_a_dump_that_is_cut_off_anywhere_is_said_to_be() -> None:
    written = json.dumps(dump([call("all_reduce", 1, ((-1, 4),))], {"0": [0, 1]})).encode()
    for whole in ((GLOO / "rank_0").read_bytes(), written):
        for length in range(1, len(whole)):
            with pytest.raises(NotADump, match="cut off"):
                load(whole[:length])


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_bytes_of_anything_are_no_dump_and_no_error_of_ours(data: bytes) -> None:
    with contextlib.suppress(NotADump):
        parse(load(data), 0, Path("trace_0"), 0.0)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04 a torch.save file", "neither JSON nor pickle"),
        (b"step 1 loss 0.1\n", "neither JSON nor pickle"),
        (b'{"loss": 0.1}', "holds other things ('loss')"),
        (b"[1, 2]", "holds a list"),
        (b"{not JSON}", "is no JSON"),
        (pickle.dumps({"model": 1, "optimizer": 2}), "holds other things ('model', 'optimizer')"),
        (pickle.dumps([1]), "holds a list"),
        (b"[" * 200_000, "nested too deeply|cut off"),
    ],
)
def test_a_file_of_something_else_is_named_with_the_reason(tmp_path: Path, data: bytes, why: str) -> None:
    file = tmp_path / "trace_0"
    file.write_bytes(data)
    with pytest.raises(DiagdError) as found:
        judged(tmp_path)
    assert str(file) in found.value.message
    assert any(one in found.value.message for one in why.split("|"))
    assert found.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("trace_3", 3), ("nccl_trace_rank_12", 12), ("rank0", 0), ("rank_7.pickle", 7), ("fr_trace_5.json", 5),
        ("job2_rank-4_v1.bin", 4), ("node3.gpu1.trace_25", 25), ("17", 17), ("rank3.json.txt", 3),
    ],
)  # fmt: skip
def test_the_rank_is_read_from_the_files_name(name: str, rank: int) -> None:
    assert rank_in(name) == rank


@pytest.mark.parametrize("name", ["dump", "trace_99999999999", "model.pt"])
def test_a_name_without_a_rank_is_said(name: str) -> None:
    with pytest.raises(NotADump, match="name"):
        rank_in(name)


def test_a_dump_of_torch_2_6_is_read(tmp_path: Path) -> None:
    """No threads, no status of groups, and no description by each group's entry."""
    dumps = world(
        [call("all_reduce", 1), call("all_reduce", 2, state="started")],
        [call("all_reduce", 1)],
        [call("all_reduce", 1), call("all_reduce", 2, state="started")],
    )
    for said in dumps.values():
        said["version"] = "2.4"
        del said["pg_status"]
        for entry in said["entries"]:
            for name in ("retired", "timeout_ms", "op_id", "frames", "input_dtypes", "output_dtypes"):
                del entry[name]
    found = judged(save(tmp_path / "dumps", dumps))
    assert faults(found) == [("hang.rank_missing", [1])]
    assert "flight recorder 2.4" in found.headline


def test_a_dump_with_fields_of_a_later_torch_is_read(tmp_path: Path) -> None:
    dumps = world([call("all_reduce", 1, news={"a": 1})], [call("all_reduce", 1)])
    for said in dumps.values():
        said |= {"version": "9.9", "nccl_comm_state": {"0x1": {"rank": "0"}}, "more": None}
    assert faults(judged(save(tmp_path / "dumps", dumps))) == []


@pytest.mark.parametrize("broken", [None, 3, "x", {"0": 3}, {"0": {"ranks": None}}, {3: {"ranks": "[0, 1]"}}])
def test_odd_groups_are_left_out(tmp_path: Path, broken: Any) -> None:
    dumps = world([call("all_reduce", 1)], [call("all_reduce", 1)])
    dumps[0]["pg_config"] = dumps[0]["pg_status"] = broken
    assert faults(judged(save(tmp_path / "dumps", dumps))) == []


@pytest.mark.parametrize(
    "odd", [None, "x", {}, {"process_group": 3}, {"process_group": ("0", "default_pg"), "input_sizes": 3}]
)
def test_odd_entries_are_left_at_not_known(tmp_path: Path, odd: Any) -> None:
    dumps = world([call("all_reduce", 1)], [call("all_reduce", 1)])
    dumps[0]["entries"].append(odd)
    assert faults(judged(save(tmp_path / "dumps", dumps))) == []


@pytest.mark.parametrize(("entries", "why"), [
    ("abc", "no list"),
    (None, "no list"),
    ([{"a": 1}], "none is one of the flight recorder's"),
    ([call("all_reduce", 1) | {"process_group": 5}], "none is one of the flight recorder's"),
    ([call("all_reduce", 1) | {"collective_seq_id": 10**30}], "none says its place"),
])  # fmt: skip
def test_a_dump_none_of_whose_entries_can_be_used_is_none(entries: Any, why: str) -> None:
    dump = world([call("all_reduce", 1)])[0] | {"entries": entries}
    with pytest.raises(NotADump, match=why):
        parse(dump, 0, Path("trace_0"), 1.7e9)


def test_of_a_file_without_a_rank_in_its_name_that_is_none_it_is_said_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "evil").write_bytes(pickle.dumps(os.mkdir))
    (tmp_path / "notes").write_text("nothing of the kind")
    (tmp_path / "snapshot").write_bytes(pickle.dumps(world([call("all_reduce", 1)])[0]))
    for name, why in (("evil", "refused"), ("notes", "neither|no "), ("snapshot", "no rank in its name")):
        with pytest.raises(NotADump, match=why):
            read(tmp_path / name)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
FIELDS = sorted({*call("all_reduce", 1), "seq_id"})


@given(
    st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4),
    st.dictionaries(st.sampled_from(["version", "pg_config", "pg_status", "entries", "more"]), VALUES, max_size=2),
)
@settings(max_examples=400, deadline=None)
def test_whatever_a_dumps_fields_hold_it_is_judged_or_refused(
    of_entry: dict[str, Any], of_dump: dict[str, Any]
) -> None:
    dumps = world([call("all_reduce", 1), call("all_reduce", 2, state="started") | of_entry], [call("all_reduce", 1)])
    dumps[1] |= of_dump
    try:
        read_all = {rank: parse(said, rank, Path(f"trace_{rank}"), 1.7e9) for rank, said in dumps.items()}
    except NotADump:
        return
    state, _, _ = state_of(read_all, {}, job_id="d", hang_after_s=60.0)
    detect(state)
