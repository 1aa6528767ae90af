"""/metrics: its golden text, by Prometheus' own rules, and bounded."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
from prometheus_client.parser import text_string_to_metric_families
from tests.aggregator.fakes import FakeJudge, FakeLink, incident

from diagd.daemon.agent.wire import detail_message, facts_columns
from diagd.daemon.aggregator.hub import Hub
from diagd.daemon.aggregator.loop import JobLoop
from diagd.daemon.aggregator.metrics import FAMILIES, bounded, render
from diagd.daemon.exposition import escape
from diagd.daemon.state.model import Detail, Exit, Facts, Operation, Status
from diagd.proto.v1.agent_pb2 import ConnectRequest, Window

GOLDEN = Path(__file__).with_name("golden") / "metrics.txt"
# What differs from one run to the next.
VOLATILE = re.compile(r'^(process_\w+) .*|(version|python)="[^"]*"', re.MULTILINE)


def hub_with_a_job() -> Hub:
    judge = FakeJudge(findings=[incident()])
    hub, link, loop = Hub(lambda: 130.0), FakeLink("n1"), JobLoop("night run", judge.make())
    hub.add(loop)
    loop.connect(link)
    loop.started(["python", "t.py"], 50.0, 60.0, 90.0)
    facts = [
        Facts(0, pid=10, step=5, step_s=99.5, phase="collective", phase_s=99.0, heartbeat_s=129.0, operations=40,
              wait_s=100.0, status=Status.BLOCKED, main_cpu_s=3.25, io_bytes=4096, rss_bytes=1 << 20, overhead_s=0.125,
              extra={"operations|0|ALLREDUCE": 30, "operations|0|BARRIER": 2, "operation_wait_s|0|BARRIER": 1.5,
                     "samples_left_out": 7, "sample_stride": 4}),
        Facts(1, pid=11, step=6, step_s=101.0, phase="data", phase_s=101.5, heartbeat_s=129.5, operations=41),
        Facts(2, pid=12, status=Status.KILLED),
    ]  # fmt: skip
    details = [
        Detail(0, node="n1", pid=10, operations=(Operation("ALLREDUCE", "0", 31, blocking=True),)),
        Detail(1, node="n1", pid=11, attempt=1),
        Detail(2, node="n1", pid=12, exit=Exit(99.0, signal="SIGKILL")),
    ]
    for now_s in (120.0, 129.0):
        window = Window(time_s=now_s, facts=facts_columns(facts), details=[detail_message(d) for d in details])
        loop.receive(link, ConnectRequest(window=window), now_s)
    hub.tick()
    return hub


def test_the_text_is_as_it_was() -> None:
    text = VOLATILE.sub(lambda m: f"{m[1]} …" if m[1] else f'{m[2]}="…"', render(hub_with_a_job()))
    if os.environ.get("DIAGD_UPDATE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_prometheus_finds_nothing_to_object_to() -> None:
    text = render(hub_with_a_job())
    promtool = shutil.which("promtool")
    if promtool:
        checked = subprocess.run(
            [promtool, "check", "metrics"], input=text, text=True, capture_output=True, check=False
        )
        assert (checked.returncode, checked.stderr) == (0, "")
    families = list(text_string_to_metric_families(text))
    assert len(families) == text.count("# TYPE")
    for family in families:
        assert family.documentation
        assert family.samples
        assert not re.search(r"_(ms|us|kb|mb|percent)(_|$)", family.name), family.name
    for name, kind, _ in FAMILIES:
        assert name.endswith("_total") == (kind == "counter")


def test_a_series_is_there_once() -> None:
    lines = [line.rpartition(" ")[0] for line in render(hub_with_a_job()).splitlines() if not line.startswith("#")]
    assert len(lines) == len(set(lines))


def test_labels_of_any_text_can_be_read_back() -> None:
    name = 'a "b"\\c\nd'
    text = f'# TYPE x gauge\nx{{l="{escape(name)}"}} 1\n'
    (family,) = text_string_to_metric_families(text)
    assert family.samples[0].labels == {"l": name}


def test_groups_and_operations_are_bounded_and_nothing_is_left_out_of_the_sum() -> None:
    values = {(f"group{g}", f"OP{o}"): 1.0 for g in range(30) for o in range(30)}
    kept = bounded(values)
    assert len({g for g, _ in kept}) == 7
    assert len({o for _, o in kept}) == 13
    assert sum(kept.values()) == 900


def test_a_counter_keeps_its_series_while_new_groups_come() -> None:
    values = {(f"g{i}", "ALLREDUCE"): 1.0 for i in range(6)}
    before = bounded(values)
    after = bounded({**values, ("a new one", "ALLREDUCE"): 100.0})
    assert {key: value for key, value in after.items() if key in before} == before


def test_many_ranks_are_rendered_without_growth_of_families() -> None:
    judge, link = FakeJudge(), FakeLink("n1")
    hub, loop = Hub(lambda: 130.0), JobLoop("big", judge.make())
    hub.add(loop)
    loop.connect(link)
    window = Window(time_s=129.0, facts=facts_columns([Facts(r, pid=r + 1, step=3) for r in range(1000)]))
    loop.receive(link, ConnectRequest(window=window), 129.0)
    hub.tick()
    text = render(hub)
    per_rank = text.count('rank="7"')
    assert per_rank < 40
    assert len(text.splitlines()) < 40 * 1000
    assert np.all(loop.state.columns.known[:1000])


def test_what_ranks_hold_is_told_as_of_their_newest_step() -> None:
    hub = hub_with_a_job()
    (loop,) = hub.loops()
    loop.state.signals.put(0, "memory/floor", [4, 5], [100.0, 200.0])
    loop.state.signals.put(1, "memory/device_reserved", [5], [300.0])
    samples = {
        (sample.name, sample.labels["rank"], sample.labels.get("use")): sample.value
        for family in text_string_to_metric_families(render(hub))
        for sample in family.samples
        if "memory_floor" in sample.name or "device_memory" in sample.name
    }
    assert samples == {
        ("diagd_rank_memory_floor_bytes", "0", None): 200.0,
        ("diagd_rank_device_memory_bytes", "1", "reserved"): 300.0,
    }
