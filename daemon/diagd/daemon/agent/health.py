"""/metrics of an agent that runs by itself: whether it sees its node's ranks, and whether what it sees arrives."""

from collections.abc import Callable, Iterable, Mapping

from diagd.daemon.agent.loop import AgentLoop
from diagd.daemon.agent.stream import Stream
from diagd.daemon.errors import DiagdError
from diagd.daemon.exposition import BUILD, CONTENT_TYPE, PROCESS, Family, Text, add_build, add_process, labels_text
from diagd.daemon.serving import Answer, HttpServer

COULD_NOT_START = 85
PLAIN = "text/plain; charset=utf-8"
FAMILIES: tuple[Family, ...] = (
    BUILD,
    ("diagd_agent_jobs", "gauge", "Jobs that this agent watches."),
    ("diagd_agent_ranks", "gauge", "Ranks of the job whose processes run on this node."),
    ("diagd_agent_looks_total", "counter", "Looks at the ranks."),
    ("diagd_agent_look_failures_total", "counter", "Looks that failed, which is a bug."),
    ("diagd_agent_last_look_timestamp_seconds", "gauge", "When the ranks were last looked at."),
    ("diagd_agent_connected", "gauge", "Whether the aggregator is connected."),
    ("diagd_agent_connections_total", "counter", "Times that an aggregator was reached."),
    ("diagd_agent_windows_total", "counter", "Looks that were put in line for the aggregator."),
    ("diagd_agent_windows_acknowledged_total", "counter", "Of these, those that the aggregator has taken."),
    ("diagd_agent_windows_dropped_total", "counter", "Of these, those that were dropped as the line was full."),
    ("diagd_agent_queue_windows", "gauge", "Looks that wait for the aggregator to take them."),
    ("diagd_agent_queue_bytes", "gauge", "Their size."),
    *PROCESS,
)

Job = tuple[str, AgentLoop, Stream]  # its name, and what watches and tells of it


def render(node: str, jobs: Iterable[Job]) -> str:
    """The text of /metrics."""
    text = Text(FAMILIES)
    add_build(text)
    watched = list(jobs)
    text.add("diagd_agent_jobs", labels_text({"node": node}), len(watched))
    for job_id, loop, stream in watched:
        _add_job(text, labels_text({"job_id": job_id, "node": node}), loop, stream)
    add_process(text)
    return text.render()


def _add_job(text: Text, labels: str, loop: AgentLoop, stream: Stream) -> None:
    queue, health = stream.queue, loop.health
    values = {
        "ranks": loop.ranks, "looks_total": health.looks, "look_failures_total": health.failures,
        "connected": stream.connected, "connections_total": stream.connections, "windows_total": queue.made,
        "windows_acknowledged_total": queue.taken, "windows_dropped_total": queue.dropped,
        "queue_windows": queue.waiting, "queue_bytes": queue.waiting_bytes,
    }  # fmt: skip
    for name, value in values.items():
        text.add(f"diagd_agent_{name}", labels, value)
    if health.looked_s:
        text.add("diagd_agent_last_look_timestamp_seconds", labels, health.looked_s)


def server(node: str, jobs: Callable[[], Iterable[Job]], host: str, port: int) -> HttpServer:
    """What serves them, not started yet."""

    def get(path: str, query: Mapping[str, str]) -> Answer:
        match path.rstrip("/"):
            case "/metrics":
                return Answer(200, CONTENT_TYPE, render(node, jobs()))
            case "/healthz":
                return Answer(200, PLAIN, "ok\n")
            case _:
                return Answer(404, PLAIN, f"there is no {path} here; there is /metrics\n")

    return HttpServer(get, host, port, _refused)


def _refused(what: str, host: str, port: int, reason: str) -> DiagdError:
    return DiagdError(
        f"cannot listen for {what} on {host}:{port}: {reason}",
        help=f"`ss -ltnp 'sport = :{port}'` shows who has the port; --http-port chooses another.",
        exit_code=COULD_NOT_START,
    )
