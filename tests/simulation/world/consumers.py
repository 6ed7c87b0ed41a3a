"""Consumer cores with a group coordinator and one broker, in one thread and with a simulated clock.

The coordinator is the broker's own core; the logs are lists of batches. `World.run` answers each request of a consumer
at once, and a request that may wait (JoinGroup) when the coordinator replies. `ConsumerCore.validate` runs after every
step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ottla.clients.cluster import ClusterView
from ottla.clients.consumer.collectors import RecordCollector
from ottla.clients.consumer.core import ConsumerCore
from ottla.clients.consumer.effects import COORDINATOR, Effect, Refresh, Send
from ottla.clients.consumer.group_member import Duty
from ottla.clients.consumer.record import Record
from ottla.clients.consumer.settings import read_settings
from ottla.clients.errors import ClientError, ConnectionLost
from ottla.clients.offsets import OffsetAndMetadata
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from ottla.coordinators.group import Call, FetchOffsets, GroupConfig
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.records import encode_batch
from tests.drivers.groups import GroupDriver

# The version in which a group's request reaches the coordinator's core.
VERSIONS = {8: 9, 9: 9, 11: 9, 12: 4, 13: 5, 14: 5}
NODE = 1


class World:
    """One broker, which is also the coordinator, and its topics."""

    def __init__(self, topics: dict[str, int]) -> None:
        self.coordinator = GroupDriver(GroupConfig(initial_rebalance_delay_ms=0))
        self.topics = dict(topics)
        self.ids = {name: (index + 1).to_bytes(16, "big") for index, name in enumerate(topics)}
        self.logs: dict[TopicPartition, list[tuple[int, bytes]]] = {}
        self.down = False
        self.consumers: list[Simulated] = []
        self.fetches: list[FetchRequest] = []

    @property
    def now_ms(self) -> int:
        return self.coordinator.now_ms

    def append(self, topic: str, partition: int, *values: bytes) -> None:
        """Append one batch."""
        log = self.logs.setdefault(TopicPartition(topic, partition), [])
        base = log[-1][0] if log else 0
        batch = encode_batch([(0, None, value, []) for value in values], base_offset=base, leader_epoch=0)
        log.append((base + len(values), bytes(batch)))

    def metadata(self) -> MetadataResponse:
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=NODE, host="h", port=1)],
            topics=[
                MetadataResponseTopic(
                    name=name,
                    topic_id=self.ids[name],
                    partitions=[
                        MetadataResponsePartition(partition_index=p, leader_id=NODE, leader_epoch=0)
                        for p in range(count)
                    ],
                )
                for name, count in self.topics.items()
            ],
        )

    def answer_list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        rows = []
        for topic in request.topics:
            partitions = []
            for p in topic.partitions:
                log = self.logs.get(TopicPartition(topic.name, p.partition_index))
                end = log[-1][0] if log else 0
                partitions.append(
                    ListOffsetsPartitionResponse(
                        partition_index=p.partition_index, offset=0 if p.timestamp == -2 else end, leader_epoch=0
                    )
                )
            rows.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
        return ListOffsetsResponse(topics=rows)

    def run(self, ms: int = 0) -> None:
        """Advance the clock by `ms` milliseconds and do all the work that becomes due until then."""
        end_ms = self.now_ms + ms
        for _ in range(10_000):
            if sum(consumer.work() for consumer in self.consumers):
                continue
            timers = [t for c in self.consumers if (t := c.core.next_timer_ms()) is not None]
            coordinator_ms = self.coordinator.shard.next_timer_ms()
            if coordinator_ms is not None:
                timers.append(coordinator_ms)
            next_ms = max(self.now_ms + 1, int(min(timers, default=end_ms + 1)) + 1)
            if next_ms > end_ms:
                self.coordinator.advance(end_ms - self.now_ms)
                return
            self.coordinator.advance(next_ms - self.now_ms)
        raise AssertionError("after 10,000 steps there is still work to do")


class Simulated:
    """One consumer: its core, and what its program observed."""

    def __init__(self, world: World, **options: object) -> None:
        self.world = world
        world.consumers.append(self)
        self.view = ClusterView()
        _, settings = read_settings({"bootstrap_servers": "h:1", "auto_offset_reset": "earliest", **options})
        self.core = ConsumerCore(settings, self.view, member_id=f"member-{len(world.consumers)}")
        self.story: list[tuple[str, list[int]]] = []
        self.listener: Callable[[Duty], None] | None = None
        self._waiting: list[tuple[Send, Call]] = []
        self._session: dict[TopicPartition, int] = {}
        self._pending: list[Effect] = []

    def owned(self) -> list[int]:
        return [tp.partition for tp in self.core.fetch.positions.assigned()]

    def poll(self, limit: int = 500) -> list[Record]:
        """Poll once without waiting."""
        self.core.begin_poll(self.world.now_ms)
        try:
            for _ in range(10):
                duty = self.core.duty()
                if duty is None:
                    break
                self.perform(duty)
            else:
                raise AssertionError("after 10 duties there is another one")
            self.core.raise_error()
            collector = RecordCollector(limit)
            self.core.fill(collector)
            return collector.records
        finally:
            self.core.end_poll(self.world.now_ms)
            self.core.validate()

    def perform(self, duty: Duty) -> None:
        self.core.begin_duty(duty)
        if duty.kind == "revoked" and self.core.auto_commits:
            offsets = self.core.processed()
            if offsets:
                assert self.commit(offsets) is None
        self.story.append((duty.kind, [tp.partition for tp in duty.partitions]))
        if self.listener is not None:
            self.listener(duty)
        self.core.duty_done(duty, self.world.now_ms)

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> ClientError | None:
        """Commit offsets; the coordinator responds at once."""
        commits = self.core.required_commits()
        request = commits.commit_request(offsets)
        return commits.apply_commit(request, self.world.coordinator.ask(request, 9))

    def work(self) -> bool:
        """Execute the core's effects and pass it the responses that arrived; return False if there were none."""
        busy = False
        for send, call in list(self._waiting):
            if call in self.world.coordinator.answers:
                self._waiting.remove((send, call))
                self.core.complete(send.id, self.world.coordinator.answers[call], self.world.now_ms)
                busy = True
        for effect in self.core.advance(self.world.now_ms):
            busy |= self._execute(effect)
        self.core.validate()
        return busy

    def _execute(self, effect: Effect) -> bool:
        world, now = self.world, self.world.now_ms
        if isinstance(effect, Refresh):
            if not world.down:
                self.view.apply(world.metadata(), now, is_complete=effect.topics is None)
            self.core.complete(effect.id, ConnectionLost("down") if world.down else None, now)
            return True
        if not isinstance(effect, Send):
            return False
        if world.down:
            self.core.complete(effect.id, ConnectionLost("down"), now)
            return True
        if isinstance(effect.request, OffsetFetchRequest):
            answer = world.coordinator.ask(FetchOffsets(effect.request.groups[0], require_stable=True), 9)
            self.core.complete(effect.id, OffsetFetchResponse(groups=[answer]), now)
            return True
        if effect.node == COORDINATOR:
            call = world.coordinator.send(effect.request, VERSIONS[effect.request.API_KEY])
            self._waiting.append((effect, call))
            return True
        if isinstance(effect.request, FetchRequest):
            world.fetches.append(effect.request)
            response = self._fetch(effect.request)
            self.core.complete(effect.id, response, now)
            return bool(response.responses)  # an empty result must not count as work forever
        self.core.complete(effect.id, world.answer_list_offsets(effect.request), now)  # type: ignore[arg-type]
        return True

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        if request.session_epoch == 0:
            self._session.clear()
        names = {topic_id: name for name, topic_id in self.world.ids.items()}
        for forgotten in request.forgotten_topics_data:
            for p in forgotten.partitions:
                self._session.pop(TopicPartition(names[forgotten.topic_id], p), None)
        for topic in request.topics:
            for row in topic.partitions:
                self._session[TopicPartition(names[topic.topic_id], row.partition)] = row.fetch_offset
        responses: dict[str, Any] = {}
        for tp, offset in self._session.items():
            log = self.world.logs.get(tp, [])
            end = log[-1][0] if log else 0
            data = PartitionData(partition_index=tp.partition, high_watermark=end, log_start_offset=0)
            if offset > end:
                data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            batch = next((batch for end_offset, batch in log if end_offset > offset), None)
            if batch is None and not data.error_code:
                continue
            data.records = None if batch is None else memoryview(batch)
            topic_row = responses.setdefault(
                tp.topic, FetchableTopicResponse(topic_id=self.world.ids[tp.topic], partitions=[])
            )
            topic_row.partitions.append(data)
        return FetchResponse(session_id=7, responses=list(responses.values()))
