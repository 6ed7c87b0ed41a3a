"""A setting that is changed while the broker runs has the same effect after the next start, clean or not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.broker.maintenance import cleaner_settings
from ottla.log import Files
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.simulation.world.broker import NodeOnDisk

TOPIC, BROKER = 2, 4
CHANGES = {
    (TOPIC, "t"): {"max.message.bytes": "1234", "segment.ms": "77777", "cleanup.policy": "compact"},
    (BROKER, ""): {
        "max.connections": "70",
        "max.connections.per.ip": "30",
        "max.connections.per.ip.overrides": "127.0.0.1:20",
        "max.connection.creation.rate": "900",
        "log.cleaner.backoff.ms": "1717",
        "log.flush.interval.messages": "3",
        "log.retention.ms": "7654321",
        "min.insync.replicas": "2",
        "producer.id.expiration.ms": "98765",
    },
    (BROKER, "1"): {"log.message.timestamp.type": "LogAppendTime", "max.connections": "60"},
}


def in_force(node: NodeOnDisk) -> dict[str, object]:
    broker, server = node.node.broker, node.node.network
    assert server is not None
    cleaner = cleaner_settings(broker.settings.current)
    found: dict[str, object] = {"limits": server.connections.limits, "cleaner": cleaner}
    for name in ("t", "other"):
        partition = broker.partitions.get(name, 0)
        found[name] = (partition.log.config, partition.settings.rules, partition.settings.min_insync_replicas)
    return found


async def _changed_and_started(home: Path, *, killed: bool) -> None:
    node = NodeOnDisk(Files(), home)
    await node.start()
    await node.create("t")
    await node.create("other")
    before = in_force(node)
    resources = [
        AlterConfigsResource(kind, name, [AlterableConfig(key, 0, value) for key, value in values.items()])
        for (kind, name), values in CHANGES.items()
    ]
    answer = await node.ask(IncrementalAlterConfigsRequest(resources=resources), 1)
    assert [row.error_message for row in answer.responses] == [None] * 3
    changed = in_force(node)
    assert all(changed[each] != before[each] for each in before)
    await (node.abandon() if killed else node.stop())
    node = NodeOnDisk(Files(), home)
    await node.start()
    try:
        assert in_force(node) == changed
    finally:
        await node.stop()


@pytest.mark.parametrize("killed", [False, True])
def test_a_setting_is_in_force_at_once_and_after_a_start(tmp_path: Path, *, killed: bool) -> None:
    with asyncio.Runner() as runner:
        runner.run(_changed_and_started(tmp_path / "data", killed=killed))
