"""What a running Godwit says about itself: metrics, health, alerts, traces.

Modules:

    metrics       what the runtime reports per batch, and what Prometheus and the monitor read
    catalogue     every metric: name, kind, labels, meaning
    instruments   counter, gauge and histogram as plain dictionaries, bounded
    exposition    metrics as Prometheus and OpenMetrics text
    recent        the last five minutes of queues and producers
    window        sums over the last minutes in a ring
    monitor       the queues' numbers, health and alerts in one place, and the round that refreshes them
    health        health checks run side by side, and the limits of the numbers
    checks        the health checks most installations need
    alerts        alert rules with hysteresis
    sinks         where alerts go: log, webhook, callable
    poison        notices messages that the broker isolated as poison
    tracing       OpenTelemetry spans from publish to process, when configured
    traceparent   the W3C trace context in message headers
    http          a small HTTP server for metrics and health
"""
