"""Logs of thousands of new partitions are opened in slices, or when a request needs one."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.unit.broker.harness import BrokerHarness, open_harness


class Later:
    """Runs a scheduled callback when the test calls `step`."""

    def __init__(self, harness: BrokerHarness) -> None:
        self.work: list[Callable[[], None]] = []
        harness.broker.partitions._pending.later = self.work.append

    def step(self) -> None:
        assert len(self.work) == 1, "one slice at a time"
        self.work.pop()()


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[BrokerHarness]:
    with open_harness(str(tmp_path)) as harness:
        yield harness


def opened(harness: BrokerHarness) -> int:
    return sum(log.topic_partition.topic == "t" for log in harness.broker.logs.all())


def on_disk(path: Path) -> set[str]:
    return {name for name in os.listdir(path) if name.startswith("t-") and not name.endswith("-delete")}


def test_new_logs_are_opened_in_slices_and_get_their_files_afterwards(harness: BrokerHarness, tmp_path: Path) -> None:
    later = Later(harness)
    harness.create("t", 100)
    assert opened(harness) == 0
    seen = []
    while later.work:
        later.step()
        seen.append(opened(harness))
    assert seen[-1] == 100
    assert max(b - a for a, b in zip([0, *seen], seen, strict=False)) <= 16
    assert on_disk(tmp_path) == set()
    assert sum(harness.broker.logs.planned.create_next() for _ in range(200)) == 99
    assert len(on_disk(tmp_path)) == 100
    assert len(list(harness.broker.partitions)) == 100


def test_requested_partition_is_opened_at_once(harness: BrokerHarness) -> None:
    later = Later(harness)
    topic_id = harness.create("t", 100)
    assert harness.append("t", b"x", index=99) == 0
    assert harness.broker.partitions.get_by_id(topic_id, 98).high_watermark == 0
    while later.work:
        later.step()
    assert harness.partition("t", 99).high_watermark == 1
    with pytest.raises(KafkaError) as info:
        harness.partition("t", 100)
    assert info.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topic_deleted_before_it_is_opened_leaves_no_log(harness: BrokerHarness, tmp_path: Path) -> None:
    later = Later(harness)
    harness.create("t", 100)
    later.step()
    harness.delete("t")
    assert on_disk(tmp_path) == set()
    while later.work:
        later.step()
    assert on_disk(tmp_path) == set()
    harness.create("t", 40)
    while later.work:
        later.step()
    assert opened(harness) == 40


def test_topic_deleted_after_a_start_before_it_is_opened_leaves_no_log(tmp_path: Path) -> None:
    with open_harness(str(tmp_path)) as harness:
        harness.create("t", 3)
    with open_harness(str(tmp_path)) as harness:
        partitions = harness.broker.partitions
        for index in (1, 2):
            del partitions._by_topic["t"][index]
        partitions._pending.unopened.add("t", (1, 2))
        harness.delete("t")
        assert on_disk(tmp_path) == set()
        harness.create("t", 3)
        assert harness.append("t", b"x", index=2) == 0


def test_partition_opens_with_the_current_settings(harness: BrokerHarness) -> None:
    later = Later(harness)
    harness.create("t", 40, segment_bytes="1048576")
    later.step()
    harness.create("u", 40, segment_bytes="2097152")
    while later.work:
        later.step()
    for name, size in (("t", 1 << 20), ("u", 2 << 20)):
        assert {harness.partition(name, index).log.config.segment_bytes for index in range(40)} == {size}


def test_an_empty_log_that_was_never_closed_opens_again(tmp_path: Path) -> None:
    with open_harness(str(tmp_path)) as harness:
        harness.create("t", 2)
        harness.append("t", b"x")
    with open_harness(str(tmp_path)) as harness:
        assert [harness.partition("t", index).log.log_end_offset for index in range(2)] == [1, 0]
        assert harness.append("t", b"y", index=1) == 0


def test_recreated_topic_does_not_get_the_old_logs(harness: BrokerHarness, tmp_path: Path) -> None:
    harness.create("t", 200)
    for index in range(200):
        harness.append("t", b"old", index=index)
    later = Later(harness)
    harness.delete("t")
    assert len(on_disk(tmp_path)) > 100, "the old logs are set aside in slices"
    harness.create("t", 200)
    assert harness.partition("t", 150).high_watermark == 0
    assert harness.append("t", b"new", index=150) == 0
    while later.work:
        later.step()
    assert opened(harness) == 200
    assert on_disk(tmp_path) == {"t-150"}, "logs without records have no files yet"
    assert harness.partition("t", 150).high_watermark == 1
    assert sum(harness.partition("t", index).high_watermark for index in range(200)) == 1


def test_changed_settings_reach_thousands_of_topics_in_slices(harness: BrokerHarness) -> None:
    names = [f"t{number}" for number in range(150)]
    for name in names:
        harness.create(name)
    later = Later(harness)
    changes = [AlterableConfig(name="max.message.bytes", config_operation=0, value="1000")]
    resources = [AlterConfigsResource(resource_type=2, resource_name=name, configs=changes) for name in names]
    harness.ask(IncrementalAlterConfigsRequest(resources=resources))
    changed = [sum(harness.partition(name).settings.rules.max_message_bytes == 1000 for name in names)]
    while later.work:
        later.step()
        changed.append(sum(harness.partition(name).settings.rules.max_message_bytes == 1000 for name in names))
    assert changed == [64, 128, 150]
