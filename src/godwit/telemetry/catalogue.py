"""Every metric there is: name, kind, labels and meaning.

The first sixteen keep the names of the specifications; Godwit's own begin with `godwit_`. `docs/metrics.md` says more
about each; a test compares the two.
"""

from __future__ import annotations

from godwit.telemetry.instruments import (
    RUN_SECONDS,
    SHORT_SECONDS,
    WAIT_SECONDS,
    Family,
    Histogram,
    Labels,
    Merge,
    MetricKind,
    Numbers,
)


class Catalogue:
    """A process's instruments, empty at first."""

    def __init__(self) -> None:
        group = ("queue", "group")
        self.enqueued = _counter("queue_messages_enqueued_total", ("queue", "type"), "Messages accepted.")
        self.processed = _counter("queue_messages_processed_total", (*group, "outcome"), "Handler runs by outcome.")
        self.run = Histogram("queue_processing_duration_seconds", ("queue",), "How long a handler ran.", RUN_SECONDS)
        self.depth = _gauge("queue_depth", group, "Messages that wait for their end, leased ones included.")
        self.health = _gauge("consumer_health_status", ("group", "instance"), "1 when a consumer is healthy, else 0.")
        self.publish = Histogram(
            "queue_message_publish_duration_seconds", ("queue",), "Round trips of publishing.", SHORT_SECONDS
        )
        self.consume = Histogram(
            "queue_message_consume_duration_seconds", group, "From delivery to the handler's end.", RUN_SECONDS
        )
        self.acks = _counter("queue_message_ack_total", group, "Deliveries acknowledged.")
        self.nacks = _counter("queue_message_nack_total", group, "Deliveries refused by a handler, to be retried.")
        self.redeliveries = _counter("queue_message_redelivery_total", group, "Deliveries that were not the first.")
        self.places = _gauge("queue_depth_messages", (*group, "state"), "Messages of a group by state.")
        self.consumers = _gauge(
            "queue_consumers_active", group, "Consumers of this process that take messages.", Merge.SUM
        )
        self.wait = Histogram(
            "queue_wait_time_seconds", group, "From ready to delivered, in the broker's time.", WAIT_SECONDS
        )
        self.connection = _gauge(
            "queue_connection_status", ("broker",), "1 while the broker answers, else 0.", Merge.MIN
        )
        self.channel_opens = _counter("queue_channel_opens_total", (), "Channels or connections opened.")
        self.channel_closes = _counter("queue_channel_closes_total", (), "Channels or connections closed.")

        self.publish_errors = _counter(
            "godwit_publish_errors_total", ("queue", "error"), "Messages whose publish failed, by error class."
        )
        self.dead = _counter("godwit_dead_letters_total", (*group, "kind"), "Messages given up, by kind of failure.")
        self.dead_now = _gauge("godwit_dead_letters_waiting", group, "Dead letters that wait for replay or discard.")
        self.dropped = Numbers(
            "godwit_messages_dropped_total",
            MetricKind.COUNTER,
            group,
            "Copies dropped because the group was full, as the broker counts them.",
            Merge.MAX,
        )
        self.postponed = _counter(
            "godwit_messages_postponed_total",
            group,
            "Deliveries postponed by their handlers, or while a breaker was open.",
        )
        self.handed_back = _counter("godwit_messages_handed_back_total", group, "Deliveries returned unhandled.")
        self.ack_refused = _counter("godwit_ack_refused_total", group, "Settlements that came too late.")
        self.produced = _counter("godwit_producer_messages_total", ("producer",), "Messages accepted from a producer.")
        self.latency = Histogram(
            "godwit_message_latency_seconds", group, "End to end: from creation (or due time) to done.", WAIT_SECONDS
        )
        self.scheduler_tick = _gauge(
            "godwit_scheduler_last_tick_timestamp_seconds", (), "When the scheduler last looked for due schedules."
        )
        self.scheduler_lag = _gauge("godwit_scheduler_lag_seconds", (), "How late the oldest due schedule is.")
        self.scheduler_backlog = _gauge("godwit_scheduler_backlog", (), "Schedules that are due and not yet sent.")
        self.recorded = _counter("godwit_recorder_transitions_total", (), "Transitions of the journal recorded.")
        self.recorder_lag = _gauge("godwit_recorder_lag_rows", (), "Transitions that are not recorded yet.")
        self.recorder_behind = _gauge("godwit_recorder_lag_seconds", (), "How old the recorded state is.")
        self.recorder_lost = _counter(
            "godwit_recorder_lost_total", (), "How often the journal was gone before it was recorded."
        )
        self.recorder_unusable = _counter(
            "godwit_recorder_unusable_total", (), "Transitions that cannot be recorded and were passed over."
        )
        self.background_failures = _counter(
            "godwit_background_task_failures_total", ("task",), "Errors of background tasks, which were started again."
        )
        for channels in (self.channel_opens, self.channel_closes):
            channels.put((), 0)  # there from the beginning: an embedded broker opens none
        self.families: tuple[Family, ...] = tuple(
            family for family in vars(self).values() if isinstance(family, Numbers | Histogram)
        )


def _counter(name: str, labels: Labels, meaning: str) -> Numbers:
    return Numbers(name, MetricKind.COUNTER, labels, meaning)


def _gauge(name: str, labels: Labels, meaning: str, merge: Merge = Merge.MAX) -> Numbers:
    return Numbers(name, MetricKind.GAUGE, labels, meaning, merge)
