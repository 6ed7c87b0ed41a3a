"""The race with a share group: the consumers of Kafka's share-consumer-perf-test accept each record that they get."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from benchmarks import tools
from benchmarks.brokers import Broker
from benchmarks.wire import Figures, passing_topic

PARTITIONS, CONSUMERS = 6, 4


def share_group(broker: Broker, scale: float) -> Figures:
    """share-consumer-perf-test: 4 consumers in a share group, 1 KB records from the page cache, 6 partitions"""
    records = int(600_000 * scale)
    with passing_topic(broker, PARTITIONS) as topic:
        tools.produce(broker, topic, records, 1000, "1")
        _start_at_the_first_record(broker, topic)
        cpu = broker.cpu_seconds()
        text = tools.run(
            "share-consumer-perf-test",
            "--bootstrap-server", broker.bootstrap, "--topic", topic, "--group", topic,
            "--num-records", records, "--threads", CONSUMERS, "--timeout", 60_000,
        )  # fmt: skip
        used = broker.cpu_seconds() - cpu
    last = text.strip().splitlines()[-1].split(", ")
    return {"records/s": float(last[4].replace(",", ".")), "records per broker-CPU-second": records / max(used, 0.01)}


def _start_at_the_first_record(broker: Broker, group: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(30)
