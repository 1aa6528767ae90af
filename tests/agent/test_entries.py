"""The flight recorder's entries as operations: batches, states and call sites, as each backend writes them."""

from typing import Any

from diagd.daemon.agent.entries import operations

TORCH = "/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"


def entry(name: str, seq: int, record: int = 0, **more: Any) -> dict[str, Any]:
    key = "p2p_seq_id" if more.get("is_p2p") else "collective_seq_id"
    return {"profiling_name": name, "process_group": ("0", "default_pg"), "record_id": record, key: seq,
            "input_sizes": [[4]], "input_dtypes": ["Float"], "is_p2p": False, **more}  # fmt: skip


def end(name: str, seq: int, record: int, **more: Any) -> dict[str, Any]:
    return entry(name, seq, record, input_sizes=[], input_dtypes=[], **more)


def test_a_batch_of_collectives_is_one_operation_with_the_sizes_of_all() -> None:
    found = operations(
        [
            entry("nccl:_broadcast_oop", 7, 1, state="scheduled"),
            entry("nccl:_broadcast_oop", 7, 2, state="scheduled", input_sizes=[[5, 5]]),
            end("nccl:ALLGATHER_coalesced", 7, 3, state="started"),
            entry("nccl:all_reduce", 8, 4, state="scheduled"),
        ],
        {},
    )
    assert [(op.name, op.seq, op.numel, op.tensors, op.retired) for op in found] == [
        ("ALLGATHER_COALESCED", 7, 29, 2, False),
        ("ALLREDUCE", 8, 4, 1, False),
    ]


def test_a_batch_with_sizes_that_may_differ_by_rank_has_none() -> None:
    (batch,) = operations([entry("nccl:all_to_all", 1, 1), end("nccl:coalesced", 1, 2)], {})
    assert (batch.name, batch.numel, batch.shapes) == ("COALESCED", -1, ())


def test_sends_and_receives_end_when_their_batch_does() -> None:
    batch = [
        entry("nccl:send 0->1", 3, 1, is_p2p=True, state="scheduled"),
        entry("nccl:recv 0<-1", 3, 2, is_p2p=True, state="scheduled"),
    ]
    waiting = operations([*batch, end("nccl:coalesced", 3, 3, is_p2p=True, state="started")], {})
    assert [(op.name, op.peer, op.retired) for op in waiting] == [("SEND", 1, False), ("RECV", 1, False)]
    done = operations([*batch, end("nccl:coalesced", 3, 3, is_p2p=True, state="completed")], {})
    assert [(op.name, op.retired) for op in done] == [("SEND", True), ("RECV", True)]


def test_a_batch_of_sends_does_not_stand_at_a_collectives_place() -> None:
    found = operations(
        [entry("nccl:all_reduce", 3, 1), entry("nccl:send 0->1", 3, 2, is_p2p=True),
         end("nccl:coalesced", 3, 3, is_p2p=True)], {},
    )  # fmt: skip
    assert [op.name for op in found if not op.p2p] == ["ALLREDUCE"]


def test_nccl_is_done_when_its_state_says_so_and_gloo_when_its_entry_is_retired() -> None:
    states = [
        entry("nccl:all_reduce", 1, 1, state="completed", retired=False),
        entry("nccl:all_reduce", 2, 2, state="started", retired=True),  # given up, not completed
        entry("gloo:all_reduce", 3, 3, state="scheduled", retired=True),
        entry("gloo:all_reduce", 4, 4, state="scheduled", retired=False),
        entry("nccl:all_reduce", 5, 5, state="scheduled", time_discovered_completed_ns=2_000_000_000),
    ]
    assert [op.retired for op in operations(states, {})] == [True, False, True, False, True]


def test_the_call_site_is_the_users_innermost_line() -> None:
    lines = [("all_reduce", TORCH, 3245), ("sync", "/job/model.py", 12), ("main", "/job/train.py", 80)]
    stack = [{"name": name, "filename": file, "line": line} for name, file, line in lines]
    (operation,) = operations([entry("gloo:all_reduce", 1, frames=stack)], {})
    assert operation.site is not None
    assert (operation.site.function, operation.site.file, operation.site.line) == ("sync", "/job/model.py", 12)


def test_outputs_that_do_not_follow_from_the_inputs_make_another_operation() -> None:
    sound = entry("nccl:all_reduce", 1, output_sizes=[[4]])
    odd = entry("nccl:all_reduce", 1, output_sizes=[[5]])
    gathered = entry("nccl:_all_gather_base", 1, output_sizes=[[8]])
    short = entry("nccl:_all_gather_base", 1, output_sizes=[[4]])
    found = [operations([one], {"0": (0, 1)})[0].numel for one in (sound, odd, gathered, short)]
    assert found == [4, 9, 4, 8]


def test_ids_that_are_text_and_ids_of_older_versions_are_read() -> None:
    old = {"profiling_name": "nccl:all_reduce", "seq_id": 4, "process_group": ("0", ""), "record_id": 0}
    assert operations([old], {})[0].seq == 4
    assert operations([{**old, "collective_seq_id": "5"}], {})[0].seq == 5
