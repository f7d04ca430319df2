"""A pipeline's metrics over HTTP, on the loopback address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING

from godwit.core.clock import utc_now
from godwit.core.errors import InvalidSetting
from godwit.pipeline.spark.connections import Connections
from godwit.telemetry.health import Check, HealthStatus, QueueMetrics
from godwit.telemetry.http import TelemetryServer

if TYPE_CHECKING:
    from godwit.pipeline.spark.metrics import PipelineMetrics


@contextmanager
def serve_metrics(
    connections: Connections, metrics: PipelineMetrics, port: int | None
) -> Iterator[TelemetryServer | None]:
    """Serve a pipeline's metrics while the block runs; without a port, do nothing."""
    if port is None:
        yield None
        return

    async def page(open_metrics: bool) -> str:  # noqa: FBT001 # as the server calls it
        return metrics.render(open_metrics=open_metrics)

    async def health() -> HealthStatus:
        # A driver that answers is well; one that stopped does not answer.
        return HealthStatus(
            status="healthy", timestamp=utc_now(), checks=tuple[Check, ...](), version=version("godwit"), healthy=True,
            metrics=QueueMetrics(),
        )  # fmt: skip

    server = TelemetryServer(metrics=page, health=health, port=port)
    try:
        connections.run(server.start())
    except OSError as error:
        raise InvalidSetting("--metrics-port", port, f"a port that is free ({error.strerror or error})") from None
    try:
        yield server
    finally:
        connections.run(server.close())
