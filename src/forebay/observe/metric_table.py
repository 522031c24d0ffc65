# ruff: noqa: E501 - a row of the table is a line
"""The one table of metrics: names, types, help, labels, and the programs that show them.

Every family of every program is made from a row here (`shown_metrics`, `snapshot_family`), and so is the
reference page. Names follow Prometheus' conventions: base units at the end, `_total` on counters only, queues
and groups by name. The sections below `SEEDS` are names of other systems, shown where `metrics.names` asks for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Final, Literal, TypeAlias

import msgspec

__all__ = ["SECTIONS", "SEEDS", "TABLE", "Metric", "MetricKind", "Section", "unit_of"]

MetricKind: TypeAlias = Literal["gauge", "counter", "histogram", "age", "untyped"]
"""`age`: a gauge that is stored as a time. `untyped`: a name of another system that ends as its type does not."""

_UNITS: Final = ("seconds", "bytes", "ratio")


class Metric(msgspec.Struct, frozen=True):
    """One family, by the name of its series."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()

    @property
    def family_name(self) -> str:
        """The name of the family: a counter's series add `_total`."""
        return self.name.removesuffix("_total") if self.kind == "counter" else self.name

    @property
    def shown_kind(self) -> str:
        """The type that Prometheus is told."""
        return "gauge" if self.kind == "age" else self.kind


class Section(msgspec.Struct, frozen=True):
    """Metrics that belong together."""

    title: str
    text: str
    """Which programs show them, in Markdown."""
    metrics: tuple[Metric, ...]


def unit_of(family_name: str) -> str:
    """The base unit that a name ends with, as OpenMetrics declares it; empty for plain numbers."""
    ending = family_name.rpartition("_")[2]
    return ending if ending in _UNITS else ""


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, "gauge", text, labels)


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, "counter", text, labels)


def _histogram(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, "histogram", text, labels)


def _age(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, "age", text, labels)


def _untyped(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, "untyped", text, labels)


# fmt: off
_GROUP: Final = ("queue", "group")
_FLOW: Final = ("queue", "group", "flow", "type", "action")
_EVENT: Final = ("project", "source")
_DELIVERY: Final = ("project", "project_name", "endpoint", "status", "event_type", "source", "organisation_id", "organisation_name")

_PROCESS: Final = Section(
    "Every program",
    "Servers, workers, Managers, `forebay deliver`, pipelines, `forebay snapshot run` and relays.",
    (
        _gauge("forebay_build_info", "Always 1; the version of Forebay and of Python.", "version", "python"),
        _gauge("process_virtual_memory_bytes", "Virtual memory."),
        _gauge("process_resident_memory_bytes", "Resident memory."),
        _gauge("process_start_time_seconds", "When the process was started, in seconds since 1970."),
        _counter("process_cpu_seconds_total", "Time on the processor, user and system."),
        _gauge("process_open_fds", "Open file descriptors."),
        _gauge("process_max_fds", "File descriptors that may be open."),
        _counter("python_gc_objects_collected_total", "Objects that the collector freed.", "generation"),
        _counter("python_gc_objects_uncollectable_total", "Objects that the collector cannot free.", "generation"),
        _counter("python_gc_collections_total", "Runs of the collector.", "generation"),
    ),
)

_SERVER: Final = Section(
    "Servers",
    "`forebay serve` and `forebay up`. Each server counts its own; add them up over servers.",
    (
        _counter("forebay_http_requests_total", "Requests answered.", "method", "route", "status"),
        _histogram("forebay_http_request_seconds", "Duration of requests, without those that wait.", "route"),
        _counter("forebay_http_errors_total", "Problems answered, by kind.", "kind"),
        _counter("forebay_http_refused_total", "Connections and requests turned away, by reason.", "reason"),
        _counter("forebay_http_unauthorized_total", "Keys and JWTs refused, by reason.", "reason"),
        _gauge("forebay_http_connections", "Open connections."),
        _gauge("forebay_http_waiting", "Takes that wait for a task."),
        _gauge("forebay_http_pending_bytes", "Request bodies in memory."),
        _gauge("forebay_http_unread_bytes", "Answers that clients have not read yet."),
        _counter("forebay_messages_total", "Messages that went through, by what was done.", "what"),
        _gauge("forebay_ready", "1 while the store is open."),
        _gauge("forebay_database_healthy", "1 while pushes go to the log, 0 while it is away."),
        _gauge("forebay_warm_healthy", "1 while the shared warm tier is there."),
        _gauge("forebay_inbox_rejected", "Rows of the SQL inbox that are rejected, up to 1,000."),
        _counter("forebay_outages_total", "How often the log was lost."),
        _gauge("forebay_spool_pending", "Messages that were accepted and are not in the log yet."),
        _gauge("forebay_spool_queue_pending", "The same by queue; beyond 1,000 queues the rest is `other`.", "queue"),
        _gauge("forebay_spool_settlements", "Tasks whose outcomes wait for the log."),
        _gauge("forebay_spool_failed", "Messages and settlements that were set aside."),
        _gauge("forebay_spool_refuses", "1 while the spool takes no more messages."),
        _gauge("forebay_spool_files", "Files in the spool."),
        _gauge("forebay_spool_bytes", "Bytes of the spool on disk."),
        _counter("forebay_spool_flushed_total", "Messages replayed from the spool into the log."),
        _counter("forebay_spool_settled_total", "Outcomes that were answered while the log was away."),
        _counter("forebay_spool_late_total", "Tasks whose spooled outcome came to the log too late."),
    ),
)

_QUEUES: Final = Section(
    "Queues",
    "Of servers, from the snapshot that all of them share: the same on each, so take `max` over servers, or set `metrics.queue_snapshot.leader_only`.",
    (
        _gauge("forebay_queue_ready", "Messages that can be taken now.", *_GROUP),
        _gauge("forebay_queue_leased", "Messages that are out with workers.", *_GROUP),
        _gauge("forebay_queue_delayed", "Messages whose time is to come.", *_GROUP),
        _gauge("forebay_queue_dead", "Dead letters.", *_GROUP),
        _counter("forebay_queue_accepted_total", "Messages accepted.", *_GROUP),
        _counter("forebay_queue_done_total", "Messages done.", *_GROUP),
        _counter("forebay_queue_expired_total", "Messages that retention dropped before they were done.", *_GROUP),
        _counter("forebay_queue_purged_total", "Messages purged or skipped.", *_GROUP),
        _gauge("forebay_queue_difference", "Accepted minus accounted for: anything but 0 is a loss.", *_GROUP),
        _gauge("forebay_queue_is_paused", "1 while a queue hands out nothing.", "queue"),
        _gauge("forebay_queue_warm", "Messages in the warm tier, or in those of all servers, with those that are out with workers.", *_GROUP),
        _gauge("forebay_queue_warm_limit", "Messages that a warm tier holds at most.", *_GROUP),
        _gauge("forebay_queue_warm_bytes", "Bytes in the warm tier, or in that of the server that counted.", *_GROUP),
        _gauge("forebay_queue_warm_limit_bytes", "Bytes that a warm tier holds at most.", *_GROUP),
        _gauge("forebay_queue_is_cold", "1 while the warm tier has overflowed, or that of the server that counted, and until it has drained.", *_GROUP),
        _gauge("forebay_queue_cold", "Messages that wait in the log alone.", *_GROUP),
        _age("forebay_queue_oldest_age_seconds", "How long the oldest ready message has waited.", *_GROUP),
        _gauge("forebay_flow_warm", "Messages of a flow that wait in the warm tier, or in those of all servers.", *_FLOW),
        _gauge("forebay_flow_cold", "Messages of a flow that wait in the log alone.", *_FLOW),
        _gauge("forebay_flow_leased", "Messages of a flow that are out with workers.", *_FLOW),
        _age("forebay_flow_oldest_age_seconds", "How long the oldest ready message of a flow has waited.", *_FLOW),
        _age("forebay_flow_cold_oldest_age_seconds", "How long the oldest message of a flow in the log alone has waited.", *_FLOW),
    ),
)

_RICH: Final = Section(
    "Events and deliveries",
    "Of servers, from the part of the snapshot that Spark computes. An event is a message of a queue, a delivery is a message of a group.",
    (
        _gauge("forebay_event_queue", "Events by status.", *_EVENT, "status"),
        _age("forebay_event_queue_oldest_age_seconds", "How long the oldest waiting event has waited.", *_EVENT),
        _gauge("forebay_event_delivery_queue", "Deliveries by status.", *_DELIVERY),
        _age("forebay_event_delivery_queue_oldest_age_seconds", "How long the oldest waiting delivery has waited.", "project", "endpoint", "source"),
        _gauge("forebay_event_delivery_attempts", "Attempts by outcome and HTTP status.", "project", "endpoint", "status", "http_status_code"),
    ),
)

_SNAPSHOT: Final = Section(
    "The snapshot",
    "Of servers: whether the numbers above are fresh.",
    (
        _gauge("forebay_snapshot_stale", "1 while the snapshot is older than max_staleness, or there is none."),
        _gauge("forebay_snapshot_age_seconds", "Age of the snapshot."),
        _age("forebay_snapshot_part_age_seconds", "Age of a part of the snapshot.", "part"),
        _gauge("forebay_snapshot_part_stale", "1 while a part of the snapshot is older than it may be: rich, by max_staleness and rich_interval together.", "part"),
        _gauge("forebay_snapshot_part_aggregation_seconds", "Time it took to make a part that is computed apart.", "part"),
        _gauge("forebay_snapshot_series", "Series in the snapshot."),
        _gauge("forebay_snapshot_aggregation_seconds", "Time it took to make the snapshot."),
        _gauge("forebay_snapshot_folded_series", "Series beyond the cap of a family, counted in `other`.", "family"),
        _counter("forebay_snapshot_refreshes_total", "Refreshes by this server: ok, error, or waiting while another server's turn lasts.", "status"),
        _gauge("forebay_snapshot_refresh_duration_seconds", "Duration of this server's last refresh."),
        _gauge("forebay_snapshot_last_success_timestamp_seconds", "When this server last published a snapshot, in seconds since 1970."),
        _gauge("forebay_snapshot_last_failure_timestamp_seconds", "When this server last failed to publish one, in seconds since 1970."),
    ),
)

_FOLD: Final = Section(
    "The job on Spark",
    "`forebay snapshot run --metrics`, which computes events and deliveries: [rich metrics](../how-to/watch-queues-with-rich-metrics.md).",
    (
        _counter("forebay_fold_rounds_total", "Rounds of this process."),
        _gauge("forebay_fold_seconds", "Duration of the last round, from plan to series."),
        _gauge("forebay_fold_taken_at_seconds", "To when the last round counted, in seconds since 1970."),
        _gauge("forebay_fold_slices", "Slices of queues that the last round was about."),
        _counter("forebay_fold_slices_folded_total", "Slices that had to be looked at, of all rounds."),
        _gauge("forebay_fold_series", "Series that the last round gave."),
        _counter("forebay_fold_publications_total", "Publications: ok, error, or waiting while another process publishes.", "status"),
    ),
)

_TASKS: Final = ("queue", "queue_num")
_WORKER: Final = Section(
    "Workers",
    "`forebay worker --metrics`, and whatever serves `Worker.registry`: [run workers](../how-to/run-workers.md). "
    "The first four have the names, and the label `queue_num`, that users of the original know.",
    (
        _histogram("queue_job_processor_cycle_duration_seconds", "Time to take a batch and handle it, without waiting for tasks.", *_TASKS),
        _gauge("queue_tasks_in_progress", "Tasks in the hands of handlers.", *_TASKS),
        _gauge("queue_running_workers", "Workers that run."),
        _gauge("queue_running_job_processors", "Job processors that run."),
        _counter("forebay_worker_tasks_processed_total", "Tasks that handlers finished.", "queue"),
        _counter("forebay_worker_tasks_failed_total", "Tasks on which handlers failed.", "queue"),
        _counter("forebay_worker_tasks_retried_total", "Tasks sent back.", "queue"),
        _counter("forebay_worker_tasks_buried_total", "Tasks made dead letters.", "queue"),
        _counter("forebay_worker_tasks_parked_total", "Tasks left for another version of the program.", "queue"),
        _counter("forebay_worker_tasks_lost_total", "Tasks whose lease was lost before they were settled.", "queue"),
        _counter("forebay_worker_handler_errors_total", "Handler calls that raised, or took too long.", "queue"),
        _counter("forebay_worker_handlers_overdue_total", "Handler calls longer than `handle_seconds_max`.", "queue"),
        _gauge("forebay_worker_stragglers", "Handlers that took too long, would not end, and still run.", "queue"),
        _counter("forebay_worker_slow_cycles_total", "Cycles longer than 10 seconds.", "queue"),
    ),
)

_MANAGER: Final = Section(
    "Managers",
    "`forebay manager --metrics`: [share workers among queues](../how-to/run-a-manager.md).",
    (
        _gauge("forebay_manager_leading", "1 for the Manager that leads."),
        _counter("forebay_manager_rounds_total", "Rounds, by result: led, stood_by, failed.", "result"),
        _counter("forebay_manager_instructions_total", "Instructions sent: one per worker and round."),
        _counter("forebay_manager_plan_changes_total", "Rounds that changed what workers were told."),
        _gauge("forebay_manager_workers", "Workers that are told what to do."),
        _gauge("forebay_manager_processors_wanted", "Job processors that workers may have at a queue.", "queue"),
    ),
)

_DELIVERIES: Final = Section(
    "Deliveries",
    "`forebay deliver --metrics`, pipelines with flows that end at a destination, and servers that deliver "
    "queues themselves: [deliver a queue as webhooks](../how-to/deliver-a-queue-as-webhooks.md).",
    (
        _counter("forebay_delivery_requests_total", "Requests, by outcome: `delivered`, or the class of the error.", "destination", "outcome"),
        _counter("forebay_delivery_dead_letters_total", "Messages given up, by the class of the error.", "destination", "error_type"),
        _counter("forebay_delivery_breaker_opened_total", "How often the breaker opened.", "destination"),
        _gauge("forebay_delivery_in_hand", "Messages taken and not settled.", "destination"),
        _gauge("forebay_delivery_paused", "1 while the destination is paused or disabled.", "destination"),
        _gauge("forebay_delivery_breaker_state", "1 for the state of the breaker.", "destination", "state"),
        _histogram("forebay_delivery_latency_seconds", "Duration of a request.", "destination"),
    ),
)

_FLOWS: Final = Section(
    "Flows",
    "`forebay pipeline run --metrics`: [run flows](../how-to/run-flows.md). Flows that read no queue have no lag.",
    (
        _counter("forebay_flow_rows_in_total", "Rows that a flow read.", "flow", "type"),
        _counter("forebay_flow_rows_out_total", "Rows that a flow wrote.", "flow", "type"),
        _counter("forebay_flow_rows_dead_total", "Rows that a flow gave up: dead letters.", "flow", "type"),
        _counter("forebay_flow_rows_lost_total", "Messages dropped before a flow read them, and skipped.", "flow", "type"),
        _counter("forebay_flow_restarts_total", "Times that a flow failed and was restarted.", "flow", "type"),
        _gauge("forebay_flow_lag", "Messages that a flow has not read yet.", "flow", "type"),
        _gauge("forebay_flow_running", "1 while a flow runs, 0 while it waits for its restart.", "flow", "type"),
        _histogram("forebay_flow_batch_seconds", "Duration of a batch, from rows to outcome.", "flow", "type"),
    ),
)

_ARCHIVE: Final = Section(
    "The archive",
    "`forebay pipeline run --metrics`, where it runs the archive: [archive messages](../how-to/archive.md).",
    (
        _counter("forebay_archive_messages_total", "Messages archived.", "queue"),
        _counter("forebay_archive_outcomes_total", "Outcomes archived.", "queue"),
        _counter("forebay_archive_files_total", "Parquet files written.", "queue"),
        _counter("forebay_archive_bytes_total", "Bytes of these files.", "queue"),
        _counter("forebay_archive_lost_total", "Messages gone, or unreadable, before they were archived.", "queue"),
        _counter("forebay_archive_early_total", "Messages archived before every group had finished.", "queue"),
        _gauge("forebay_archive_lag", "Messages in the log that are not archived yet.", "queue"),
        _counter("forebay_archive_failures_total", "Runs that failed, and queues that a run skipped."),
    ),
)

_RELAY: Final = Section(
    "Relays",
    "`forebay relay`: [put it in front of Prometheus](../how-to/put-it-in-front-of-prometheus.md). "
    "`relay.metrics_prefix` replaces `forebay_relay`; with `metrics_governor`, names are exactly that system's: "
    "`queue_workers_total`, `fastqueue_chunk_rotations` and `fastqueue_inmemory_flushes` are then untyped.",
    (
        _gauge("forebay_relay_queue_size", "Entries in the queue.", "destination"),
        _gauge("forebay_relay_queue_bytes", "Bytes in the queue.", "destination"),
        _gauge("forebay_relay_queue_max_size", "Entries that it may hold.", "destination"),
        _gauge("forebay_relay_queue_max_bytes", "Bytes that it may hold.", "destination"),
        _gauge("forebay_relay_queue_utilization_ratio", "The fuller of entries and bytes, 0 to 1.", "destination"),
        _gauge("forebay_relay_queue_disk_available_bytes", "Bytes left on the disk.", "destination"),
        _gauge("forebay_relay_queue_oldest_age_seconds", "How long the oldest entry has waited.", "destination"),
        _counter("forebay_relay_queue_push_total", "Entries pushed.", "destination"),
        _counter("forebay_relay_queue_dropped_total", "Entries dropped or refused.", "destination", "reason"),
        _counter("forebay_relay_queue_retry_total", "Attempts after the first one.", "destination"),
        _counter("forebay_relay_queue_retry_success_total", "Attempts after the first one that delivered.", "destination"),
        _counter("forebay_relay_queue_retry_failure_total", "Attempts after the first one that failed.", "destination", "error_type"),
        _counter("forebay_relay_queue_failures_total", "Attempts that failed, first ones included.", "destination", "error_type"),
        _counter("forebay_relay_queue_disk_full_total", "Pushes that the disk had no room for.", "destination"),
        _counter("forebay_relay_queue_delivered_total", "Requests that the destination accepted.", "destination"),
        _counter("forebay_relay_queue_split_total", "Requests split because they were too large.", "destination"),
        _gauge("forebay_relay_queue_dead_letters", "Dead letters that are kept.", "destination"),
        _counter("forebay_relay_queue_given_up_total", "Requests given up.", "destination", "error_type"),
        _gauge("forebay_relay_queue_failover_size", "Entries in memory alone, while the disk takes none.", "destination"),
        _counter("forebay_relay_export_data_loss_total", "Entries acknowledged, then dropped or damaged.", "destination"),
        _gauge("forebay_relay_fastqueue_inmemory_blocks", "Entries in memory.", "destination"),
        _gauge("forebay_relay_fastqueue_disk_bytes", "Bytes of the queue's files.", "destination"),
        _counter("forebay_relay_fastqueue_meta_sync_total", "How often positions were written.", "destination"),
        _counter("forebay_relay_fastqueue_chunk_rotations_total", "Files begun.", "destination"),
        _counter("forebay_relay_fastqueue_inmemory_flushes_total", "How often memory was written to disk.", "destination"),
        _counter("forebay_relay_fastqueue_corruption_total", "Pieces of damage found.", "destination"),
        _gauge("forebay_relay_queue_workers_active", "Workers with a request under way.", "destination"),
        _gauge("forebay_relay_queue_workers", "Workers.", "destination"),
        _gauge("forebay_relay_queue_preparers_active", "Busy preparers of the pipeline.", "destination"),
        _gauge("forebay_relay_queue_senders_active", "Busy senders of the pipeline.", "destination"),
        _gauge("forebay_relay_queue_sends_inflight", "Requests under way.", "destination"),
        _gauge("forebay_relay_queue_export_latency_ewma_seconds", "Duration of a request, as a moving average.", "destination"),
        _histogram("forebay_relay_queue_export_latency_seconds", "Duration of a request.", "destination"),
        _gauge("forebay_relay_circuit_breaker_state", "1 for the state of the breaker.", "destination", "state"),
        _counter("forebay_relay_circuit_breaker_open_total", "How often the breaker opened.", "destination"),
        _counter("forebay_relay_circuit_breaker_rejected_total", "How often the breaker held up a request.", "destination"),
        _gauge("forebay_relay_queue_backoff_seconds", "The last pause before a retry; 0 after a delivery.", "destination"),
        _gauge("forebay_relay_connections", "Open connections of clients."),
        _counter("forebay_relay_refused_total", "Requests malformed, too large or too slow.", "status"),
    ),
)

_CONVOY: Final = Section(
    "Convoy's names",
    "Of servers with `convoy` in `metrics.names`. The first five are gauges of the snapshot; Prometheus is told no type where a name ends in `_total` and is no counter.",
    (
        _untyped("convoy_event_queue_total", "Events by status.", *_EVENT, "status"),
        _age("convoy_event_queue_backlog_seconds", "How long the oldest waiting event has waited.", *_EVENT),
        _untyped("convoy_event_delivery_queue_total", "Deliveries by status.", *_DELIVERY),
        _age("convoy_event_delivery_queue_backlog_seconds", "How long the oldest waiting delivery has waited.", "project", "endpoint", "source"),
        _untyped("convoy_event_delivery_attempts_total", "Attempts by outcome and HTTP status.", "project", "endpoint", "status", "http_status_code"),
        _gauge("convoy_queue_metrics_snapshot_age_seconds", "Age of the oldest part of the snapshot."),
        _gauge("convoy_queue_metrics_refresh_duration_seconds", "Duration of this server's last refresh, or of Spark's, whichever took longer."),
        _counter("convoy_queue_metrics_refresh_total", "Refreshes by this server; one that had to repeat an old part is an error.", "status"),
        _gauge("convoy_queue_metrics_snapshot_last_success_timestamp_seconds", "When the oldest part was made that this server last published, in seconds since 1970."),
    ),
)

_DELTAFI: Final = Section(
    "DeltaFi's names",
    "Of servers with `deltafi` in `metrics.names`: the dots of its names, which Prometheus doesn't allow, are `_`.",
    (
        _gauge("gauge_action_queue_queue_size", "Messages that wait in the warm tier, by queue.", "queue_name"),
        _gauge("gauge_deltafile_coldQueuedCount", "Messages that wait in the log alone."),
        _gauge("gauge_deltafile_warmQueuedCount", "Messages that wait in the warm tier."),
    ),
)

_QUEEN: Final = Section(
    "Queen's names",
    "Of servers at `/metrics/prometheus`, and at `/metrics` with `queen` in `metrics.names`. Those of messages count what went through this server.",
    (
        _gauge("queen_uptime_seconds", "Time since the server was started."),
        _gauge("queen_process_resident_memory_bytes", "Resident memory."),
        _gauge("queen_process_virtual_memory_bytes", "Virtual memory."),
        _gauge("queen_parked_long_polls", "Pops that wait."),
        _gauge("queen_file_buffer_pending", "Messages on disk."),
        _gauge("queen_file_buffer_failed", "Messages and settlements that were set aside."),
        _gauge("queen_file_buffer_db_healthy", "1 while pushes go to the log."),
        _gauge("queen_maintenance_mode_enabled", "1 while pushes are held back."),
        _counter("queen_cpu_user_microseconds_total", "Time on the processor."),
        _counter("queen_cpu_system_microseconds_total", "Time on the processor, in the system."),
        _counter("queen_cluster_push_requests_total", "Requests to push.", "scope"),
        _counter("queen_cluster_pop_requests_total", "Requests to pop.", "scope"),
        _counter("queen_cluster_ack_requests_total", "Requests to acknowledge.", "scope"),
        _counter("queen_cluster_transactions_total", "Transactions.", "scope"),
        _counter("queen_cluster_push_messages_total", "Messages pushed.", "scope"),
        _counter("queen_cluster_pop_messages_total", "Messages popped.", "scope"),
        _counter("queen_cluster_ack_messages_total", "Messages acknowledged.", "scope"),
        _counter("queen_cluster_db_errors_total", "Requests that failed while the log was away.", "scope"),
        _counter("queen_cluster_dlq_total", "Messages that an acknowledgement made dead letters.", "scope"),
        _counter("queen_cluster_ack_total", "Acknowledgements by result.", "scope", "result"),
        _gauge("queen_dlq_depth", "Dead letters of all queues.", "scope"),
        _gauge("queen_dlq_depth_by_queue", "Dead letters.", "queue"),
        _untyped("queen_queue_depth_total", "Messages that were ever pushed.", "queue"),
        _gauge("queen_queue_depth_pending", "Messages that wait.", "queue"),
        _gauge("queen_queue_depth_processing", "Messages that are out with consumers.", "queue"),
        _gauge("queen_queues_left_out", "Queues without numbers of their own."),
    ),
)
# fmt: on

SEEDS: Final = (_CONVOY, _DELTAFI, _QUEEN)
"""Names of other systems."""
SECTIONS: Final = (
    _PROCESS,
    _SERVER,
    _QUEUES,
    _RICH,
    _SNAPSHOT,
    _FOLD,
    _WORKER,
    _MANAGER,
    _DELIVERIES,
    _FLOWS,
    _ARCHIVE,
    _RELAY,
    *SEEDS,
)
TABLE: Final[Mapping[str, Metric]] = {
    metric.name: metric for metric in chain.from_iterable(section.metrics for section in SECTIONS)
}
