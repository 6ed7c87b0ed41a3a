"""`ottla top --once`: rates of a known load, without colours, in 80 columns."""

from __future__ import annotations

import threading
import time

import pytest

from ottla.clients import Admin, Producer, TopicPartition
from ottla.tools.top import Sample, frame
from tests import deadlines
from tests.clients.support import unique
from tests.conftest import RunningBroker

from .conftest import Run


@pytest.mark.both
def test_hot_partition_and_lag_are_shown(ottla: Run, broker: RunningBroker, ours: Admin) -> None:
    name, group = unique("t" * 60), unique("g" * 60)
    ours.create_topic(name, partitions=2, replication_factor=1)
    ours.alter_group_offsets(group, {TopicPartition(name, 0): 0})
    stop = threading.Event()

    def load() -> None:
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            while not stop.is_set():
                for partition in (0, 0, 0, 1):
                    producer.send(name, b"x" * 1000, partition=partition)
                time.sleep(0.02)

    running = deadlines.in_threads([load], "load")
    try:
        shown = ottla("top", "--once", "--interval", "1", "--rows", "50")
        (found,) = ottla("top", "--once", "--json", "--interval", "2", "--rows", "500").objects
    finally:
        stop.set()
        deadlines.results(running, "load")
        ours.delete_topic(name)
    assert shown.code == 0, shown.err
    assert "\x1b" not in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80
    (topic,) = [row for row in found["topics"] if row["topic"] == name]
    assert 20 < topic["records_per_s"] < 250
    assert topic["bytes_per_s"] > 500 * topic["records_per_s"]
    hot = [row for row in found["partitions"] if row["topic"] == name]
    assert [row["partition"] for row in hot] == [0, 1]
    assert 0.65 < hot[0]["share"] < 0.85
    (row,) = [row for row in found["groups"] if row["group"] == group]
    assert row["lag"] > 10


def test_rates_are_never_negative() -> None:
    one = TopicPartition("t", 0)
    before = Sample(0, {one: 10}, {one: 1000}, {one: 1}, {"g": {one: 8}})
    shrunk = Sample(1000, {one: 4}, {one: 100}, {one: 1}, {"g": {one: 9}})
    found = frame(before, shrunk, 5)
    assert (found.records_per_s, found.bytes_per_s, found.partitions) == (0, 0, [])
    assert (found.groups[0]["lag"], found.groups[0]["read_per_s"]) == (0, 1)


@pytest.mark.parametrize("words", [("--interval", "0"), ("--interval", "nan"), ("--rows", "0")])
def test_invalid_options_are_rejected(plain: Run, words: tuple[str, ...]) -> None:
    assert plain("top", "--once", *words).code == 2
