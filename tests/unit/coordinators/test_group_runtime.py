"""The shell around the shards: it creates the topic, loads logs, and delays responses until records are committed."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

import pytest

from ottla.common.completion import Completion, gather
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import finish
from ottla.coordination import internal_topic
from ottla.coordination import runtime as coordinator_runtime
from ottla.coordination.group_runtime import GroupPorts, GroupRuntime
from ottla.coordination.internal_topic import InternalTopic, partition_of
from ottla.coordination.internal_topic_settings import InternalTopicSettings
from ottla.coordination.loading import Loading
from ottla.coordination.shards import CoordinatorOptions
from ottla.coordinators.group import DeleteGroup, FetchOffsets, GroupConfig, records
from ottla.metadata.image import NO_LEADER, PartitionImage
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.records import BatchProducer, encode_batch, encode_end_transaction_marker, patch, read_header

from .test_offsets import commit_request, raw_commit


class Loop:
    """An event loop and a clock: time passes only in `run`."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.calls: list[tuple[int, int, Handle]] = []
        self.numbers = count()

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Handle:
        handle = Handle(callback)
        heapq.heappush(self.calls, (self.now_ms + round(delay_s * 1000), next(self.numbers), handle))
        return handle

    def run(self, duration_ms: int = 0) -> None:
        end_ms = self.now_ms + duration_ms
        while self.calls and self.calls[0][0] <= end_ms:
            due_ms, _, handle = heapq.heappop(self.calls)
            self.now_ms = max(self.now_ms, due_ms)
            if not handle.cancelled:
                handle.callback()
        self.now_ms = end_ms

    @property
    def waiting(self) -> int:
        return sum(not handle.cancelled for _, _, handle in self.calls)


class Handle:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


NODE_ID, OTHER = 1, 2


class Appended(NamedTuple):
    first_offset: int
    last_offset: int


class Partition:
    """A partition with its log in memory."""

    topic_partition = "__consumer_offsets-0"
    leader_epoch = 3

    def __init__(self) -> None:
        self.log = self
        self.batches: list[tuple[int, bytes]] = []
        self.log_start_offset = self.log_end_offset = 0
        self.closed = False
        self.error: ErrorCode | None = None
        self.slow = False
        self.committed = 0
        self.promises: list[Completion[None]] = []
        self.largest = 0

    def append(self, batch: memoryview, *, origin: str) -> Appended:
        assert origin == "coordinator"
        if self.error is not None:
            raise KafkaError(self.error)
        header = read_header(batch)
        patch(batch, 0, self.log_end_offset, 0)
        first = self.log_end_offset
        self.batches.append((first, bytes(batch)))
        self.log_end_offset = first + header.last_offset_delta + 1
        self.largest = max(self.largest, header.record_count)
        if not self.slow:
            self.committed = self.log_end_offset
        return Appended(first, self.log_end_offset - 1)

    def when_durable(self, offset: int) -> Completion[None] | None:
        if offset <= self.committed:
            return None
        self.promises.append(Completion())
        return self.promises[-1]

    def read(self, offset: int, max_bytes: int, _upper: int) -> bytes:
        data = b""
        for base, batch in self.batches:
            if base + read_header(batch).last_offset_delta >= offset and (not data or len(data) < max_bytes):
                data += batch
        return data


class Node:
    """A runtime over partitions that outlive it."""

    def __init__(self, size: int = 4, *, created: bool = True) -> None:
        self.loop = Loop()
        self.partitions = {index: Partition() for index in range(size)}
        self.count = size if created else 0
        # Leader and leader epoch of each partition.
        self.leaders = dict.fromkeys(range(size), (NODE_ID, 3))
        self.creation: Completion[None] = Completion()
        self.topics = {"t": b"t" * 16}
        self.runtime = self.start()

    def start(self) -> GroupRuntime:
        numbers = count()
        topic = InternalTopic(
            "__consumer_offsets",
            NODE_ID,
            partitions=self.images,
            find_partition=self.find,  # type: ignore[arg-type]
            create=lambda: self.creation,
            call_later=self.loop.call_later,
        )
        self.runtime = GroupRuntime(
            GroupConfig(),
            topic,
            GroupPorts(self.topics.get, random_bytes=lambda size: next(numbers).to_bytes(size, "big")),
            clock=self.loop,
            call_later=self.loop.call_later,
            options=CoordinatorOptions(),
        )
        return self.runtime

    def images(self) -> dict[int, PartitionImage]:
        led = ((index, self.leaders[index]) for index in range(self.count))
        return {index: PartitionImage((1, 2), (1, 2), leader, epoch, 0) for index, (leader, epoch) in led}

    def lead(self, leader: int, epoch: int, group: str = "g") -> None:
        """Publish an image in which `leader` leads the partition of the group."""
        self.leaders[partition_of(group, self.count)] = leader, epoch
        self.runtime.shards.partitions_changed()

    def find(self, index: int) -> Partition:
        partition = self.partitions[index]
        if partition.closed:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition

    def of(self, group: str = "g") -> Partition:
        return self.partitions[partition_of(group, self.count)]

    def commit(self, offset: int = 7, group: str = "g") -> Completion[Any]:
        return self.runtime.submit(group, commit_request(group, offset), api_version=9)

    def committed(self, group: str = "g") -> int:
        wanted = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        done = self.runtime.submit(group, FetchOffsets(OffsetFetchRequestGroup(group_id=group, topics=wanted)))
        answer = done.result()
        return -100 - answer.error_code if answer.error_code else int(answer.topics[0].partitions[0].committed_offset)

    def join(self, group: str = "g", member_id: str = "") -> Completion[Any]:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range")],
        )
        return self.runtime.submit(group, request, api_version=3)


@pytest.fixture
def node() -> Node:
    return Node()


def error_of(done: Completion[Any]) -> ErrorCode:
    return ErrorCode(done.result().topics[0].partitions[0].error_code)


def test_commit_is_read_back_also_by_the_next_run(node: Node) -> None:
    assert error_of(node.commit(7)) == ErrorCode.NONE
    assert node.committed() == 7
    node.start().shards.start()
    node.loop.run()
    assert node.committed() == 7


def test_group_is_loading_until_its_log_is_read(node: Node) -> None:
    for offset in range(3):
        node.commit(offset)
    node.start()
    assert node.committed() == -100 - ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    heartbeat = node.runtime.submit("g", HeartbeatRequest(group_id="g", member_id="m"))
    assert heartbeat.result().error_code == ErrorCode.NONE
    listed = finish(node.runtime.list_groups(frozenset(), frozenset()))
    assert listed == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
    node.loop.run()
    assert node.committed() == 2


def test_long_log_is_loaded_in_slices_between_other_requests(node: Node) -> None:
    for offset in range(2_000):
        node.commit(offset)
    node.start()
    node.runtime.shards.start()
    turns = 0
    while node.committed() < 0:
        node.loop.call_later(0, lambda: None)
        before = node.loop.calls[0][1]
        handle = heapq.heappop(node.loop.calls)[2]
        if not handle.cancelled:
            handle.callback()
        turns += before >= 0
    assert turns > 3
    assert node.committed() == 1_999


def test_response_waits_until_the_write_is_committed(node: Node) -> None:
    partition = node.of()
    partition.slow = True
    first, second = node.commit(1), node.commit(2)
    assert not first.done
    assert not second.done
    partition.promises[0].complete(None)
    assert first.done
    assert not second.done
    partition.promises[1].complete(None)
    assert error_of(second) == ErrorCode.NONE


def test_offset_fetch_does_not_return_uncommitted_offsets(node: Node) -> None:
    partition = node.of()
    partition.slow = True
    node.commit(1)
    wanted = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    fetched = node.runtime.submit("g", FetchOffsets(OffsetFetchRequestGroup(group_id="g", topics=wanted)))
    assert not fetched.done
    partition.promises[0].complete(None)
    assert fetched.result().topics[0].partitions[0].committed_offset == 1


def test_commit_that_does_not_become_durable_is_answered_in_time(node: Node) -> None:
    node.of().slow = True
    done = node.commit()
    node.loop.run(5_000)
    assert error_of(done) == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_waiting_responses_share_one_timer(node: Node) -> None:
    partition = node.of()
    partition.slow = True
    timers = node.loop.waiting
    for offset in range(100):
        done = node.commit(offset)
        assert not done.done
        node.loop.run(1)
        partition.promises[-1].complete(None)
        assert error_of(done) == ErrorCode.NONE
    assert node.loop.waiting <= timers + 2  # and one for the shard
    late = node.commit(100)
    node.loop.run(4_999)
    assert not late.done
    node.loop.run(1)
    assert error_of(late) == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_failed_commit_reloads_the_shard_from_the_log(node: Node) -> None:
    node.commit(1)
    partition = node.of()
    partition.slow = True
    lost = node.commit(2)
    parked = node.join()
    partition.slow = False
    del partition.batches[-1]
    partition.log_end_offset -= 1
    partition.promises[0].fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    assert error_of(lost) == ErrorCode.NOT_COORDINATOR
    assert parked.result().error_code == ErrorCode.NOT_COORDINATOR
    assert node.committed() == -100 - ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    node.loop.run()
    assert node.committed() == 1


@pytest.mark.parametrize(
    ("failure", "seen"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_failed_append_returns_the_group_error_code(node: Node, failure: ErrorCode, seen: ErrorCode) -> None:
    node.commit(1)
    node.of().error = failure
    assert error_of(node.commit(2)) == seen
    assert node.committed() == 1


def test_parked_join_is_answered_by_the_timer(node: Node) -> None:
    done = node.join()
    node.loop.run(2_999)
    assert not done.done
    node.loop.run(1)
    assert done.result().generation_id == 1


def test_unhandled_error_in_one_group_does_not_stop_timers_of_others(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, other = node.join("a"), node.join("b")
    assert not broken.done
    assert not other.done
    shard = node.runtime.shards._runners[partition_of("a", node.count)].shard
    assert shard is not node.runtime.shards._runners[partition_of("b", node.count)].shard
    decide, calls = type(shard).handle_timer, count()

    def once_wrong(self: Any, now: Any) -> Any:
        effects = decide(self, now)
        if self is shard and next(calls) == 0:
            raise ZeroDivisionError
        return effects

    monkeypatch.setattr(type(shard), "handle_timer", once_wrong)
    with pytest.raises(ZeroDivisionError):
        node.loop.run(60_000)
    node.loop.run(60_000)
    assert other.done
    assert other.result().error_code == ErrorCode.NONE


def test_keys_of_long_group_ids_are_not_cached(node: Node) -> None:
    caches = (internal_topic._cached_partition_of, records._cached_offset_key)
    before = [cache.cache_info().currsize for cache in caches]
    for number in range(10):
        name = f"{number:06}" + "x" * 30_000
        offsets = OffsetFetchRequestGroup(group_id=name, topics=[])
        assert node.runtime.submit(name, FetchOffsets(offsets)).done
        assert len(records.offset_key(name, "t", 0)) > 30_000
    assert [cache.cache_info().currsize for cache in caches] == before


def test_idle_coordinator_has_one_timer_and_wakes_up_rarely(node: Node) -> None:
    node.runtime.shards.start()
    node.loop.run()
    assert node.loop.waiting == 1
    assert node.loop.calls[0][0] >= 600_000


def test_missing_offsets_topic_returns_not_coordinator() -> None:
    node = Node(created=False)
    assert error_of(node.commit()) == ErrorCode.NOT_COORDINATOR
    assert finish(node.runtime.list_groups(frozenset(), frozenset())) == (ErrorCode.NONE, [])


def test_topic_is_created_once_for_simultaneous_requests() -> None:
    node = Node(created=False)
    first, second = node.runtime.shards.topic.ensure(), node.runtime.shards.topic.ensure()
    assert not first.done
    node.count = 4
    node.creation.complete(None)
    first.result()
    second.result()
    assert error_of(node.commit()) == ErrorCode.NONE


@pytest.mark.parametrize("late", [False, True])
def test_failed_topic_creation_returns_coordinator_not_available(late: bool) -> None:
    node = Node(created=False)
    done = node.runtime.shards.topic.ensure()
    if late:
        node.loop.run(10_000)
    else:
        node.creation.fail(KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "3 replicas on one broker"))
    with pytest.raises(KafkaError) as raised:
        done.result()
    assert raised.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_deleted_partition_unloads_its_groups(node: Node) -> None:
    parked = node.join()
    node.of().closed = True
    node.runtime.shards.partitions_changed()
    assert parked.result().error_code == ErrorCode.NOT_COORDINATOR
    assert error_of(node.commit()) == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_lost_leadership_unloads_groups_and_their_timers(node: Node) -> None:
    node.commit(1)
    parked = node.join()
    node.lead(OTHER, 4)
    assert parked.result().error_code == ErrorCode.NOT_COORDINATOR
    assert error_of(node.commit(2)) == ErrorCode.NOT_COORDINATOR
    assert node.committed() == -100 - ErrorCode.NOT_COORDINATOR
    node.loop.run(100_000)
    assert len(node.of().batches) == 1, "a timer of the unloaded group appended a record"


def test_write_that_was_not_committed_before_the_leadership_was_lost_is_refused(node: Node) -> None:
    partition = node.of()
    partition.slow = True
    lost = node.commit(1)
    node.lead(OTHER, 4)
    assert error_of(lost) == ErrorCode.NOT_COORDINATOR
    partition.promises[0].complete(None)
    assert node.committed() == -100 - ErrorCode.NOT_COORDINATOR


def test_new_leader_loads_the_partition_before_the_first_request(node: Node) -> None:
    node.commit(7)
    node.leaders = dict.fromkeys(node.leaders, (OTHER, 4))
    node.start().shards.start()
    node.loop.run()
    assert node.committed() == -100 - ErrorCode.NOT_COORDINATOR
    node.lead(NODE_ID, 5)
    assert node.committed() == -100 - ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    node.loop.run()
    assert node.committed() == 7
    assert [shard.skipped_records for shard in node.runtime.shards.shards()] == [0], "only the partition that it leads"


def test_shard_loads_again_in_a_later_leader_epoch(node: Node) -> None:
    node.commit(7)
    before = node.runtime.shards.shards()
    node.lead(NODE_ID, 4)
    node.loop.run()
    after = node.runtime.shards.shards()
    assert before[0] not in after
    assert node.committed() == 7


def test_replies_of_a_new_leader_wait_until_all_that_it_loaded_is_committed(node: Node) -> None:
    node.commit(7)
    partition = node.of()
    partition.committed = 0
    node.start().shards.start()
    node.loop.run()
    wanted = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    fetched = node.runtime.submit("g", FetchOffsets(OffsetFetchRequestGroup(group_id="g", topics=wanted)))
    assert not fetched.done
    for promise in partition.promises:
        promise.complete(None)
    assert fetched.result().topics[0].partitions[0].committed_offset == 7


def test_partition_without_leader_returns_not_coordinator(node: Node) -> None:
    node.lead(NO_LEADER, 4)
    assert error_of(node.commit()) == ErrorCode.NOT_COORDINATOR
    assert finish(node.runtime.list_groups(frozenset(), frozenset()))[0] == ErrorCode.NONE


def test_creation_on_another_node_completes_when_the_metadata_arrives() -> None:
    node = Node(created=False)
    topic = node.runtime.shards.topic
    created = topic.ensure()
    node.creation.complete(None)
    assert not created.done
    node.count = 4
    topic.changed()
    created.result()


def test_close_answers_parked_requests(node: Node) -> None:
    parked = node.join()
    node.runtime.shards.close()
    assert parked.result().error_code == ErrorCode.NOT_COORDINATOR
    assert error_of(node.commit()) == ErrorCode.NOT_COORDINATOR
    assert not node.loop.waiting


def test_loading_an_unreadable_log_is_retried_later(node: Node) -> None:
    node.commit(1)
    partition = node.of()
    fine = partition.batches[0]
    key, _ = raw_commit(1, 3)
    broken = encode_batch([(0, key, b"\0\3broken", [])])
    partition.batches[0] = (0, bytes(broken))
    node.start()
    assert node.committed() == -100 - ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    node.loop.run()
    assert node.committed() == -100 - ErrorCode.COORDINATOR_NOT_AVAILABLE
    partition.batches[0] = fine
    node.loop.run(1_000)
    node.committed()
    node.loop.run()
    assert node.committed() == 1


def test_unhandled_error_of_a_loading_shard_does_not_stop_others(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    for group in "ab":
        node.commit(7, group)
    step, calls = Loading.step, count()

    def once_wrong(self: Loading) -> bool:
        if next(calls) == 0:
            raise ZeroDivisionError
        return step(self)

    monkeypatch.setattr(Loading, "step", once_wrong)
    assert node.of("a") is not node.of("b")
    runtime = node.start()
    runtime.submit("a", HeartbeatRequest(group_id="a"))
    runtime.submit("b", HeartbeatRequest(group_id="b"))
    node.loop.run()
    assert node.committed("b") == 7
    assert node.committed("a") == -100 - ErrorCode.COORDINATOR_NOT_AVAILABLE
    node.loop.run(coordinator_runtime.RELOAD_BACKOFF_MS)
    node.committed("a")
    node.loop.run()
    assert node.committed("a") == 7, "and it is tried again"


def test_transactions_in_the_log_are_replayed_to_their_end(node: Node) -> None:
    partition = node.of()
    transactional = 0x10
    for producer, offset in ((1, 5), (2, 6)):
        batch = encode_batch(
            [(0, *raw_commit(offset, 3), [])],
            producer=BatchProducer(producer, 0, 0),
            attributes=transactional,
        )
        partition.append(memoryview(batch), origin="coordinator")
    for producer, commit in ((2, False), (1, True)):
        marker = encode_end_transaction_marker(
            commit=commit, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0
        )
        partition.append(memoryview(marker), origin="coordinator")
    node.start().shards.start()
    node.loop.run()
    assert node.committed() == 5


def test_offsets_of_topic_deleted_during_loading_are_deleted(node: Node) -> None:
    node.commit(7)
    node.start().shards.start()
    del node.topics["t"]
    finish(node.runtime.topics_deleted(["t"]))
    assert node.committed() == -100 - ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    node.loop.run()
    assert node.committed() == -1
    # It is in the log, so that one of the same name made later begins without an offset.
    node.topics["t"] = b"u" * 16
    node.start().shards.start()
    node.loop.run()
    assert node.committed() == -1


def test_offset_of_a_topic_deleted_before_a_crash_is_missing_for_the_recreated_topic(node: Node) -> None:
    request = commit_request("g", 7)
    request.topics[0].topic_id = node.topics["t"]
    node.runtime.submit("g", request, api_version=10)
    # The broker crashed between the deletion and the tombstone; then the topic was recreated.
    node.topics["t"] = b"u" * 16
    node.start().shards.start()
    node.loop.run()
    assert node.committed() == -1
    request.topics[0].topic_id, request.topics[0].partitions[0].committed_offset = node.topics["t"], 3
    node.runtime.submit("g", request, api_version=10)
    node.start().shards.start()
    node.loop.run()
    assert node.committed() == 3


def test_offsets_of_deleted_topics_are_deleted_in_all_shards_in_batches() -> None:
    node = Node(1)
    for number in range(1_500):
        node.commit(group=f"g{number}")
    finish(node.runtime.topics_deleted(["t"]))
    assert node.committed("g0") == node.committed("g1499") == -1
    assert node.partitions[0].largest == 1_000


def test_request_arriving_during_a_response_finds_the_shard_consistent(node: Node) -> None:
    seen: list[int] = []
    first = node.join()
    # As with a pipelining client: the next request arrives while the response to the previous one is sent.
    first.on_done(lambda _: seen.append(error_of(node.commit(group="g"))))
    node.loop.run(3_000)
    assert seen == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_delete_group_writes_tombstones(node: Node) -> None:
    node.commit()
    assert node.runtime.submit("g", DeleteGroup("g")).result().error_code == ErrorCode.NONE
    node.start().shards.start()
    node.loop.run()
    assert node.committed() == -1
    assert finish(node.runtime.list_groups(frozenset(), frozenset())) == (ErrorCode.NONE, [])


def test_offsets_topic_is_created_as_kafka_does() -> None:
    settings = {
        "offsets.topic.num.partitions": 50,
        "offsets.topic.replication.factor": 1,
        "offsets.topic.segment.bytes": 104857600,
    }
    topic = InternalTopicSettings.of("__consumer_offsets", settings.__getitem__)
    assert (topic.partitions, topic.replication_factor) == (50, 1)
    assert topic.configs == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }


def test_gather_preserves_the_order() -> None:
    parts: list[Completion[Any]] = [Completion(), Completion()]
    whole = gather(parts, tuple)
    parts[1].complete("b")
    assert not whole.done
    parts[0].complete("a")
    assert whole.result() == ("a", "b")
