"""A partition that stock Kafka has compacted has gaps. Under cleanup.policy=delete, Ottla reads all of its records."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.conftest import TEST_PROPERTIES
from tests.peers import kafka
from tests.peers.cache import in_ci, missing_for_jvm

from .test_stock_directory import OttlaOnStock

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("stock-compacted")]

TOPIC = "compacted"
RECORDS = 80
WAIT_S = 60.0
FAST = {"log.cleaner.backoff.ms": 100, "log.initial.task.delay.ms": 0}
CONFIG = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}


class Stock(NamedTuple):
    """The directories of a stopped and of a killed broker, and the records that a consumer got from it."""

    stopped: Path
    killed: Path
    records: list[tuple[int, bytes | None, bytes | None]]


def read(bootstrap: str) -> list[tuple[int, bytes | None, bytes | None]]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True}
    consumer = Consumer(settings | {"auto.offset.reset": "earliest", "error_cb": lambda _: None})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        found = []
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error():
                return found
            found.append((message.offset(), message.key(), message.value()))
        raise TimeoutError(f"{len(found)} records")
    finally:
        consumer.close()


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Stock:
    missing = missing_for_jvm()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)
    home = tmp_path_factory.mktemp("compacted")
    broker = kafka.StockKafka(home / "stock", overrides=TEST_PROPERTIES | FAST)
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIG)])[TOPIC].result(30)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for i in range(RECORDS):
            # Every second record has a key that appears again, and each is a batch.
            producer.produce(TOPIC, b"%06d" % i * 17_000, b"again" if i % 2 else b"once %d" % i, partition=0)
            assert producer.flush(30) == 0
        deadline = time.monotonic() + WAIT_S
        while len(read(broker.bootstrap)) > RECORDS * 2 / 3:
            assert time.monotonic() < deadline, "the cleaner did nothing"
        changed = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[changed])
        admin.incremental_alter_configs([resource])[resource].result(30)
        before = read(broker.bootstrap)
        killed = home / "killed"
        os.kill(broker.pids[0], signal.SIGKILL)
    shutil.copytree(home / "stock", killed)
    with broker:
        assert read(broker.bootstrap) == before
    return Stock(home / "stock", killed, before)


@pytest.mark.parametrize("ended", ["stopped", "killed"])
@pytest.mark.parametrize(
    "lost", [None, f"{TOPIC}-0/*.*index", "recovery-point-offset-checkpoint", "cleaner-offset-checkpoint"]
)
def test_every_record_that_stock_kafka_kept_is_read(stock: Stock, tmp_path: Path, ended: str, lost: str | None) -> None:
    original = stock.stopped if ended == "stopped" else stock.killed
    home = tmp_path / "stock"
    shutil.copytree(original, home)
    config = next(home.rglob("server.properties"))
    config.write_text(config.read_text().replace(str(stock.stopped), str(home)))
    segments = [path.read_bytes() for path in sorted(home.rglob(f"{TOPIC}-0/*.log"))]
    assert sum(map(len, segments)) < RECORDS * 100_000
    for path in home.rglob(lost) if lost else ():
        path.unlink()
    ottla = OttlaOnStock(tmp_path / "ottla", config)
    for how in ("kill", "stop", "stop"):
        with ottla:
            assert read(ottla.bootstrap) == stock.records
            if how == "kill":
                ottla.kill()
            else:
                assert ottla.stop() == 0
        assert [path.read_bytes() for path in sorted(home.rglob(f"{TOPIC}-0/*.log"))] == segments
    ottla.assert_no_traceback()
