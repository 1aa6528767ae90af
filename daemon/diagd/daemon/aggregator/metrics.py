"""The text of /metrics. Series of ranks are pre-rendered text: prometheus-client would cost 45 µs for each."""

from collections.abc import Iterable, Mapping

import numpy as np

from diagd.daemon.aggregator.hub import Hub
from diagd.daemon.aggregator.loop import JobLoop
from diagd.daemon.aggregator.reporting import shown_status
from diagd.daemon.exposition import BUILD, PROCESS, Family, Text, add_build, add_process, escape, labels_text
from diagd.daemon.state.model import Status

MAX_GROUPS = 6  # of a rank; the rest are summed up as "other"
MAX_OPERATIONS = 12
MAX_RANKS = 1024  # of a job; in a larger one the series of ranks are had from the agents
OTHER = "other"
# In an agent's extra numbers: `operations|GROUP|NAME` and `operation_wait_s|GROUP|NAME`, counted from the rank's start.
OPERATIONS = "operations"
WAIT = "operation_wait_s"
PHASE = "phase_s|"
HOST = {
    "garbage_s": "garbage_collection_seconds",
    "run_delay_s": "run_delay_seconds",
    "throttled_s": "throttled_seconds",
    "major_faults": "major_faults",
}
# What the probes leave out for their budget's sake: family.
BUDGET = {"samples_left_out": "diagd_probe_samples_left_out_total", "sample_stride": "diagd_probe_sample_stride"}

# The newest of a rank's signals: family and, where it has several, the word of the label `use`.
MEMORY = {
    "memory/floor": ("memory_floor_bytes", ""),
    "memory/worker_rss": ("worker_memory_bytes", ""),
    "memory/available": ("memory_available_bytes", ""),
    "memory/shm_free": ("shared_memory_free_bytes", ""),
    "memory/fds": ("open_files", ""),
    "memory/device_allocated": ("device_memory_bytes", "allocated"),
    "memory/device_active": ("device_memory_bytes", "active"),
    "memory/device_reserved": ("device_memory_bytes", "reserved"),
    "memory/device_retries": ("device_allocator_retries_total", ""),
}

# Name, type, help; the order in which they are served.
FAMILIES: tuple[Family, ...] = (
    BUILD,
    ("diagd_job_info", "gauge", "A job that is watched."),
    ("diagd_job_started_timestamp_seconds", "gauge", "When the job's command was started."),
    ("diagd_job_ended", "gauge", "Whether the job's launcher has ended."),
    ("diagd_job_attempt", "gauge", "Elastic restarts of the job so far."),
    ("diagd_job_world_size", "gauge", "Ranks that the job has, as far as is known."),
    ("diagd_job_ranks", "gauge", "Ranks by the state of their process."),
    ("diagd_job_step", "gauge", "Training steps completed by the rank that is furthest."),
    ("diagd_job_step_spread", "gauge", "Training steps between the ranks that are furthest and least far."),
    ("diagd_job_progress_timestamp_seconds", "gauge", "When a rank last completed a training step."),
    ("diagd_incidents_open", "gauge", "Open incidents."),
    (
        "diagd_incidents_total",
        "counter",
        "Incidents that were opened since this process began, by their first severity.",
    ),
    ("diagd_rank_state", "gauge", "1 for the state that the rank's process is in."),
    ("diagd_rank_phase", "gauge", "1 for the phase that the rank is in."),
    ("diagd_rank_phase_timestamp_seconds", "gauge", "When the rank entered its phase."),
    ("diagd_rank_step", "gauge", "Training steps that the rank has completed."),
    ("diagd_rank_step_timestamp_seconds", "gauge", "When the rank completed its last step."),
    (
        "diagd_rank_progress_timestamp_seconds",
        "gauge",
        "Last change of step, operation or phase; time() less this are the seconds without progress.",
    ),
    (
        "diagd_rank_heartbeat_timestamp_seconds",
        "gauge",
        "Last sign of the rank's interpreter; old where its GIL is held.",
    ),
    ("diagd_rank_last_seen_timestamp_seconds", "gauge", "When the rank was last looked at."),
    ("diagd_rank_collectives_in_flight", "gauge", "Operations that the rank has entered and that have not finished."),
    (
        "diagd_rank_waiting_seconds",
        "gauge",
        "For how long the rank has been in the operation that blocks it; 0 in none.",
    ),
    ("diagd_rank_operations_total", "counter", "Operations that the rank has entered, by group and operation."),
    ("diagd_rank_operation_wait_seconds_total", "counter", "Seconds that the rank spent in operations, barriers too."),
    ("diagd_rank_phase_seconds_total", "counter", "Seconds that the rank spent in each phase."),
    ("diagd_rank_garbage_collection_seconds_total", "counter", "Seconds in Python's garbage collector."),
    ("diagd_rank_run_delay_seconds_total", "counter", "Seconds that the main thread was ready and had no CPU."),
    ("diagd_rank_throttled_seconds_total", "counter", "Seconds that the CPU quota of the rank's cgroup held it back."),
    ("diagd_rank_major_faults_total", "counter", "Pages that the rank had to wait for from disk."),
    (
        "diagd_rank_cpu_seconds_total",
        "counter",
        "CPU time by the rank's main thread, its other threads and its children.",
    ),
    ("diagd_rank_io_bytes_total", "counter", "Bytes that the rank has read and written."),
    ("diagd_rank_resident_memory_bytes", "gauge", "The rank's resident memory."),
    ("diagd_rank_memory_floor_bytes", "gauge", "Anonymous memory of the rank after its newest step."),
    ("diagd_rank_worker_memory_bytes", "gauge", "Anonymous memory of the rank's data workers together."),
    ("diagd_rank_memory_available_bytes", "gauge", "What the rank's cgroup and machine have left."),
    ("diagd_rank_shared_memory_free_bytes", "gauge", "Free in the /dev/shm that the rank sees."),
    ("diagd_rank_open_files", "gauge", "File descriptors that the rank has open."),
    ("diagd_rank_device_memory_bytes", "gauge", "Device memory by the allocator after the newest step."),
    ("diagd_rank_device_allocator_retries_total", "counter", "Times that the allocator had to give its cache back."),
    ("diagd_rank_attempt", "gauge", "Elastic restarts before this process."),
    ("diagd_probe_overhead_seconds_total", "counter", "What the probes cost the rank, measured by themselves."),
    ("diagd_probe_samples_left_out_total", "counter", "Samples that were not taken, to stay within the budget."),
    ("diagd_probe_sample_stride", "gauge", "Steps between regular samples; 1 where each that is due is taken."),
    ("diagd_aggregator_agents", "gauge", "Agents that are connected."),
    ("diagd_aggregator_messages_total", "counter", "Messages from agents."),
    (
        "diagd_aggregator_duplicates_total",
        "counter",
        "Windows that came again after a reconnection, and were left out.",
    ),
    ("diagd_aggregator_windows_total", "counter", "Looks that were taken in."),
    ("diagd_aggregator_rejected_total", "counter", "Messages that could not be understood."),
    ("diagd_aggregator_dropped_windows_total", "counter", "Looks that agents dropped while the aggregator was away."),
    ("diagd_aggregator_deep_looks_total", "counter", "Deep looks that were asked for."),
    ("diagd_aggregator_ticks_total", "counter", "Judgements."),
    ("diagd_aggregator_detector_failures_total", "counter", "Judgements that failed, which is a bug."),
    ("diagd_aggregator_last_tick_timestamp_seconds", "gauge", "When the last judgement was made."),
    *PROCESS,
)


def render(hub: Hub) -> str:
    """The whole text; under the hub's lock."""
    text = Text(FAMILIES)
    add_build(text)
    for loop in hub.loops():
        _add_job(text, loop)
        for rank in loop.state.ranks()[:MAX_RANKS]:
            _add_rank(text, loop, rank)
    _add_health(text, hub)
    return text.render()


def _add_job(text: Text, loop: JobLoop) -> None:
    state, job = loop.state, labels_text({"job_id": loop.state.job_id})
    text.add("diagd_job_info", job, 1)
    text.add("diagd_job_started_timestamp_seconds", job, state.started_s)
    text.add("diagd_job_ended", job, state.ended_s is not None)
    text.add("diagd_job_attempt", job, state.attempt)
    text.add("diagd_job_world_size", job, state.world_size)
    shown = [shown_status(state, rank) for rank in state.ranks()]
    for status in Status:
        text.add("diagd_job_ranks", f'{job},state="{status.name.lower()}"', shown.count(status))
    steps = state.columns.step[state.columns.known]
    if len(steps) and steps.max() >= 0:
        text.add("diagd_job_step", job, int(steps.max()))
        text.add("diagd_job_step_spread", job, int(steps.max() - max(steps.min(), 0)))
        text.add("diagd_job_progress_timestamp_seconds", job, float(np.max(state.columns.step_s[state.columns.known])))
    counts: dict[tuple[str, str], int] = {}
    for incident in loop.book.incidents:
        key = (incident.kind, incident.severity.value)
        counts[key] = counts.get(key, 0) + incident.is_open
    for (kind, severity), count in sorted(counts.items()):
        text.add("diagd_incidents_open", f'{job},kind="{kind}",severity="{severity}"', count)
    for (kind, severity), count in sorted(loop.incidents_opened.items()):
        text.add("diagd_incidents_total", f'{job},kind="{kind}",severity="{severity}"', count)


def _add_rank(text: Text, loop: JobLoop, rank: int) -> None:
    state, c = loop.state, loop.state.columns
    detail = state.detail(rank)
    node = loop.node_of(rank) or detail.node
    labels = labels_text({"job_id": state.job_id, "rank": str(rank), "node": node})
    shown = shown_status(state, rank)
    for status in Status:
        text.add("diagd_rank_state", f'{labels},state="{status.name.lower()}"', status is shown)
    text.add("diagd_rank_phase", f'{labels},phase="{escape(state.phases[rank])}"', 1)
    if c.step[rank] >= 0:
        text.add("diagd_rank_step", labels, c.step[rank])
    moments = {"phase": c.phase_s, "step": c.step_s, "progress": c.program_moved_s, "heartbeat": c.heartbeat_s}
    for what, column in {**moments, "last_seen": c.seen_s}.items():
        if column[rank] > 0:  # a moment that has not come is no series, rather than 1970
            text.add(f"diagd_rank_{what}_timestamp_seconds", labels, column[rank])
    waits = c.wait_s[rank] > 0 and not shown.gone
    text.add("diagd_rank_collectives_in_flight", labels, max(len(detail.operations), 1) if waits else 0)
    text.add("diagd_rank_waiting_seconds", labels, max(state.now_s - c.wait_s[rank], 0) if waits else 0)
    extra = loop.extra.get(rank, {})
    _add_memory(text, labels, loop, rank)
    _add_operations(text, labels, extra)
    _add_pace(text, labels, extra)
    for thread, column in (("main", c.main_cpu_s), ("other", c.other_cpu_s), ("children", c.children_cpu_s)):
        text.add("diagd_rank_cpu_seconds_total", f'{labels},thread="{thread}"', column[rank])
    text.add("diagd_rank_io_bytes_total", labels, c.io_bytes[rank])
    text.add("diagd_rank_resident_memory_bytes", labels, c.rss_bytes[rank])
    text.add("diagd_rank_attempt", labels, detail.attempt)
    text.add("diagd_probe_overhead_seconds_total", labels, c.overhead_s[rank])


def _add_operations(text: Text, labels: str, extra: Mapping[str, float]) -> None:
    for kind, family in (
        (OPERATIONS, "diagd_rank_operations_total"),
        (WAIT, "diagd_rank_operation_wait_seconds_total"),
    ):
        for (group, name), value in sorted(bounded(_by_group(extra, kind)).items()):
            text.add(family, _operation(labels, group, name), value)


def _add_memory(text: Text, labels: str, loop: JobLoop, rank: int) -> None:
    for name, (family, use) in MEMORY.items():
        series = loop.state.signals.series(rank, name)
        if series is not None and len(series):
            text.add(f"diagd_rank_{family}", f'{labels},use="{use}"' if use else labels, series.values[-1])


def _add_pace(text: Text, labels: str, extra: Mapping[str, float]) -> None:
    for key, value in extra.items():
        if key.startswith(PHASE):
            text.add("diagd_rank_phase_seconds_total", f'{labels},phase="{escape(key.removeprefix(PHASE))}"', value)
        elif key in HOST:
            text.add(f"diagd_rank_{HOST[key]}_total", labels, value)
        elif key in BUDGET:
            text.add(BUDGET[key], labels, value)


def _operation(labels: str, group: str, name: str) -> str:
    return f'{labels},group="{escape(group)}",operation="{escape(name)}"'


def _by_group(extra: Mapping[str, float], kind: str) -> dict[tuple[str, str], float]:
    found = {}
    for key, value in extra.items():
        which, _, rest = key.partition("|")
        if which == kind:
            group, _, name = rest.rpartition("|")
            found[(group, name)] = value
    return found


def bounded(values: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """At most MAX_GROUPS groups and MAX_OPERATIONS operations, the first by name, the rest summed up as `other`.

    By name and not by size, so that a counter never changes its series and so never falls.
    """
    groups = _first((group for group, _ in values), MAX_GROUPS)
    names = _first((name for _, name in values), MAX_OPERATIONS)
    found: dict[tuple[str, str], float] = {}
    for (group, name), value in values.items():
        key = (group if group in groups else OTHER, name if name in names else OTHER)
        found[key] = found.get(key, 0) + value
    return found


def _first(words: Iterable[str], limit: int) -> set[str]:
    """The first ones seen: dictionaries keep their order, and an agent adds new ones at the end."""
    return set(list(dict.fromkeys(words))[:limit])


def _add_health(text: Text, hub: Hub) -> None:
    loops = hub.loops()
    counters = [loop.counters for loop in loops]
    text.add("diagd_aggregator_agents", "", hub.counters.streams)
    text.add("diagd_aggregator_messages_total", "", hub.counters.messages)
    text.add("diagd_aggregator_duplicates_total", "", hub.counters.duplicates)
    text.add("diagd_aggregator_windows_total", "", sum(c.windows for c in counters))
    text.add("diagd_aggregator_rejected_total", "", sum(c.rejected for c in counters))
    text.add("diagd_aggregator_dropped_windows_total", "", sum(sum(c.dropped_by_agents.values()) for c in counters))
    text.add("diagd_aggregator_deep_looks_total", "", sum(c.deep_looks for c in counters))
    text.add("diagd_aggregator_ticks_total", "", sum(c.ticks for c in counters))
    text.add("diagd_aggregator_detector_failures_total", "", sum(c.failures for c in counters))
    text.add("diagd_aggregator_last_tick_timestamp_seconds", "", hub.last_tick_s)
    add_process(text)
