"""Examining a RabbitMQ server: version, alarms, nodes, quorum members, features that will go.

Modules:

    protocol     what a RabbitMQ server tells any client: version, alarms, how full queues are
    management   what only its management interface tells: nodes, quorum members, deprecated features
"""

from __future__ import annotations

from datetime import timedelta

from godwit.admin.doctor.findings import Finding
from godwit.admin.doctor.rabbitmq.management import cluster_findings
from godwit.admin.doctor.rabbitmq.protocol import protocol_findings


async def examine(url: str, *, span: timedelta) -> list[Finding]:
    """Look at the server over AMQP, and over its management interface where that answers."""
    findings, names = await protocol_findings(url, span)
    return [*findings, *await cluster_findings(url, names)]
