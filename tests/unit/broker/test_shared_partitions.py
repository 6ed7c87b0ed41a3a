"""Share partitions on a broker: delivery from the log, stored acknowledgements, restarts, fencing. KIP-932."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordination.shares import partition as shared_partition
from ottla.coordination.shares.partition import DONE, SharedPartition
from ottla.coordination.shares.settings import reset_timestamp_ms
from ottla.coordinators.share.acknowledgement import AcknowledgementBatch, Refusal
from ottla.coordinators.share.acquisition import Acquisition
from ottla.coordinators.share.events import InitializeState, ReadSummary, ShareKey
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.records import BatchHeader, Buffer, iter_batches

from .harness import START_MS, BrokerHarness, open_harness, records_of

ACCEPT, RELEASE = (1,), (2,)
GROUP = 32


class Node:
    """A broker with a topic of two batches that a share group begins to read."""

    def __init__(self, harness: BrokerHarness) -> None:
        self.harness = harness
        self.topic_id = harness.create("t", partitions=2)
        self.key = ShareKey("g", self.topic_id, 0)
        self.shares = harness.broker.coordinators.shares
        harness.append("t", b"a", b"b", b"c")
        harness.append("t", b"d")

    def initialize(self, start_offset: int = 0, state_epoch: int = 1) -> None:
        request = InitializeState(self.key, state_epoch, start_offset)
        self.shares.prepare()
        self.harness.loop.run()
        done = self.shares.initialize(request)
        self.harness.loop.run()
        assert done.result().error is ErrorCode.NONE

    def load(self) -> SharedPartition:
        found = self.shares.partitions.find(self.key)
        self.harness.loop.run()
        return found.result() if isinstance(found, Completion) else found

    def read(self, shared: SharedPartition, member: str = "m", isolation_level: int = 0) -> list[tuple[int, bytes]]:
        delivery = shared.acquire(Acquisition(member, 100, 500), 1 << 20, isolation_level)
        if delivery is None:
            return []
        owned = {o for piece in delivery.acquired for o in range(piece.first, piece.last + 1)}
        return [(o, value or b"") for o, value in records_of(delivery.records) if o in owned]

    def acknowledge(self, shared: SharedPartition, first: int, last: int, types: tuple[int, ...] = ACCEPT) -> Refusal:
        answer = shared.acknowledge("m", [AcknowledgementBatch(first, last, types)])
        self.harness.loop.run()
        return answer.result()

    def configure(self, name: str, value: str) -> None:
        config = AlterableConfig(name=name, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=GROUP, resource_name="g", configs=[config])
        assert not self.harness.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses[0].error_code


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with open_harness(tmp_path) as harness:
        yield Node(harness)


def test_records_are_delivered_acknowledged_and_not_delivered_again(node: Node) -> None:
    node.initialize()
    shared = node.load()
    assert node.read(shared) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]
    assert node.read(shared, "n") == []
    assert node.acknowledge(shared, 0, 1) == DONE
    node.shares.partitions.close()
    assert node.read(node.load(), "n") == [(2, b"c"), (3, b"d")]


def test_acknowledged_records_are_not_delivered_after_a_restart(tmp_path: Path) -> None:
    with open_harness(tmp_path) as harness:
        node = Node(harness)
        node.initialize()
        shared = node.load()
        node.read(shared)
        assert node.acknowledge(shared, 0, 1) == DONE
        assert node.acknowledge(shared, 3, 3, RELEASE) == DONE
        key = node.key
    with open_harness(tmp_path) as harness:
        harness.broker.coordinators.start()
        harness.loop.run()
        found = harness.broker.coordinators.shares.partitions.find(key)
        harness.loop.advance(1_000)
        shared = found.result() if isinstance(found, Completion) else found
        delivery = shared.acquire(Acquisition("m", 100, 500), 1 << 20, 0)
        assert delivery is not None
        assert delivery.acquired == [(2, 2, 1), (3, 3, 2)]


def test_acknowledgement_is_answered_only_after_it_is_stored(tmp_path: Path) -> None:
    with open_harness(tmp_path, {"log.flush.interval.messages": "1"}) as harness:
        node = Node(harness)
        node.initialize()
        shared = node.load()
        node.read(shared)
        harness.threads.held = True
        answer = shared.acknowledge("m", [AcknowledgementBatch(0, 3, ACCEPT)])
        harness.loop.run()
        assert not answer.done
        assert shared.share.start_offset == 0
        harness.threads.finish()
        harness.loop.run()
        assert answer.result() == DONE
        assert shared.share.start_offset == 4


def test_elapsed_lock_wakes_waiting_fetches(node: Node) -> None:
    node.initialize()
    shared = node.load()
    node.read(shared)
    woken: list[int] = []
    shared.watchers[lambda: woken.append(1)] = None
    node.harness.loop.advance(29_000)
    assert not woken
    node.harness.loop.advance(2_000)
    assert woken
    assert [offset for offset, _ in node.read(shared, "n")] == [0, 1, 2, 3]
    node.harness.loop.advance(100_000)


def test_settings_of_the_group_apply_at_once(node: Node) -> None:
    node.initialize()
    node.configure("share.record.lock.duration.ms", "15000")
    shared = node.load()
    assert shared.share.limits.lock_duration_ms == 15_000
    node.configure("share.delivery.count.limit", "3")
    assert node.load().share.limits.max_delivery_count == 3


@pytest.mark.parametrize(
    ("reset", "first"), [("earliest", 0), ("latest", None), ("by_duration:PT1H", 0), ("by_duration:PT0S", None)]
)
def test_group_without_start_offset_begins_as_its_setting_says(node: Node, reset: str, first: int | None) -> None:
    node.harness.loop.advance(10)
    node.configure("share.auto.offset.reset", reset)
    node.initialize(start_offset=-1)
    offsets = [offset for offset, _ in node.read(node.load())]
    assert offsets[:1] == ([] if first is None else [first])


def test_durations_are_read_as_in_java() -> None:
    assert reset_timestamp_ms("by_duration:P1DT2H3M4.5S", 10**9) == 10**9 - (((26 * 60 + 3) * 60) + 4) * 1000 - 500
    assert reset_timestamp_ms("by_duration:PT0.25S", START_MS) == START_MS - 250
    assert reset_timestamp_ms("latest", START_MS) is None


def test_reset_of_the_offsets_fences_the_share_partition(node: Node) -> None:
    node.initialize()
    shared = node.load()
    node.read(shared)
    node.initialize(start_offset=3, state_epoch=2)
    assert node.acknowledge(shared, 0, 3).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert shared.closed
    assert node.read(node.load()) == [(3, b"d")]


def test_share_partition_that_was_reset_through_another_node_is_loaded_again(node: Node) -> None:
    """The node of the reset drops its own share partition; the leader of the records only sees that it is fenced."""
    node.initialize()
    shared = node.load()
    node.read(shared)
    # The request reaches the coordinator as from another node, and not through the requests of this one.
    done = node.shares.coordinator.submit(InitializeState(node.key, 2, 3))
    node.harness.loop.run()
    assert done.result().error is ErrorCode.NONE
    assert not shared.closed
    assert node.acknowledge(shared, 0, 3).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert shared.closed
    assert node.read(node.load()) == [(3, b"d")]


def test_unknown_share_partitions_are_refused(node: Node) -> None:
    with pytest.raises(KafkaError):
        node.shares.partitions.find(node.key._replace(topic_id=b"x" * 16))
    with pytest.raises(KafkaError):
        node.shares.partitions.find(node.key._replace(partition=7))
    node.initialize()
    work = node.shares.partitions.find(node.key._replace(group_id="other"))
    node.harness.loop.run()
    assert isinstance(work, Completion)
    with pytest.raises(KafkaError) as caught:
        work.result()
    assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(node.shares.partitions) == 0


def test_deleted_records_are_not_delivered(node: Node) -> None:
    node.initialize()
    shared = node.load()
    node.harness.partition("t").delete_records_before(3)
    assert node.read(shared) == [(3, b"d")]


def test_deleted_topic_closes_its_share_partitions_and_deletes_their_state(node: Node) -> None:
    node.initialize()
    shared = node.load()
    node.harness.delete("t")
    node.harness.loop.run()
    assert node.shares.partitions.existing(node.key) is None
    assert shared.closed
    index = next(iter(node.shares.coordinator.shards._runners.values())).shard
    assert not index.states
    answer = node.shares.coordinator.submit(ReadSummary(node.key))
    node.harness.loop.run()
    assert answer.result().error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_state_topic_is_created_as_by_kafka(node: Node) -> None:
    node.initialize()
    values = node.harness.broker.settings.topic_values("__share_group_state")
    assert values["cleanup.policy"] in ("delete", ("delete",), ["delete"])
    assert values["retention.ms"] == -1
    assert node.harness.broker.metadata.image.topics_by_name["__share_group_state"].partitions.__len__() == 50


def test_fetch_looks_at_the_batches_that_it_needs(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte may have thousands of small batches."""
    seen: list[int] = []

    def counted(records: Buffer) -> Iterator[tuple[int, BatchHeader]]:
        for each in iter_batches(records):
            seen.append(each[0])
            yield each

    monkeypatch.setattr(shared_partition, "iter_batches", counted)
    for _ in range(300):
        node.harness.append("t", b"x")
    node.initialize()
    shared = node.load()
    offsets = []
    while acquired := shared.acquire(Acquisition("m", 10, 10), 1 << 20, 0):
        offsets += [offset for piece in acquired.acquired for offset in range(piece.first, piece.last + 1)]
    assert offsets == list(range(304))
    assert len(seen) < 2 * 304
