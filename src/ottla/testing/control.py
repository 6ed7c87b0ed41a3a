"""Operations of tests on a running broker, executed on its event loop, with plain data as arguments and results.

A method may return a `Completion`. No method uses the network, so these operations are not counted as requests, and
faults do not affect them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.common.completion import Completion, gather
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import INTERNAL_TOPICS, TopicPartition
from ottla.coordinators.group import DeleteGroup, DescribeGroup, FetchOffsets
from ottla.coordinators.group.events import ForceRebalance
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from ottla.records import decode_batch, encode_batch, iter_batches
from ottla.records.murmur2 import partition_for_key
from ottla.testing.clock import MovableClock
from ottla.testing.interceptor import Interceptor
from ottla.testing.listeners import CLIENT_ID, Listeners, Unclosed
from ottla.testing.record import Record
from ottla.testing.rules import Rule

if TYPE_CHECKING:
    from ottla.broker.server import Node
    from ottla.partitions.partition import Partition
    from ottla.protocol.messages.create_topics import CreateTopicsResponse
    from ottla.records import Buffer

READ_BYTES = 4 * 1024 * 1024
Sent = tuple[int | None, int | None, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
"""Partition or None, timestamp in ms or None, key, value, headers."""


class Saved(NamedTuple):
    """The state that survives the process of a broker."""

    rules: dict[int, Rule]
    requests: Counter[tuple[str, str | None]]
    listeners: Listeners
    wall_ahead_ms: int
    steady_ahead_ms: int


class Control:
    """The operations. One object serves a broker across restarts of its node."""

    def __init__(self) -> None:
        self.clock = MovableClock()
        self.listeners = Listeners()
        self.interceptor = Interceptor(self.listeners)
        self.node: Node | None = None

    def _node(self) -> Node:
        if self.node is None:
            raise RuntimeError("The broker does not run: it was stopped or killed. Call start() first")
        return self.node

    # -- topics and records ------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> Completion[None]:
        """Create a topic; fails with the KafkaError of CreateTopics."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=1,
                    configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
                )
            ]
        )

        def check(response: CreateTopicsResponse) -> None:
            (topic,) = response.topics
            if topic.error_code:
                raise KafkaError(ErrorCode(topic.error_code), topic.error_message)

        return self._node().broker.metadata.create_topics(request).then(check)

    def topics(self) -> list[str]:
        """All topics except internal ones."""
        return [name for name in self._node().broker.metadata.image.topics_by_name if name not in INTERNAL_TOPICS]

    def delete_topics(self, names: list[str]) -> Completion[Any]:
        """Delete the existing ones of these topics, in the background."""
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names])
        return self._node().broker.metadata.submit(lambda controller: controller.delete_topics(request, 6))

    def partitions(self, topic: str) -> int:
        """The number of partitions; 0 if the topic does not exist."""
        image = self._node().broker.metadata.image.topics_by_name.get(topic)
        return 0 if image is None else len(image.partitions)

    def produce(self, topic: str, records: list[Sent]) -> list[tuple[int, int]]:
        """Append records and return (partition, offset) of each. Default partition: by key, else round robin."""
        count = self.partitions(topic)
        if not count:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {topic!r}: create it with topic()"
            )
        now_ms = self.clock.wall_ms()
        by_partition: dict[int, list[tuple[int, Any]]] = {}
        for position, (partition, timestamp, key, value, headers) in enumerate(records):
            if partition is None:
                partition = position % count if key is None else partition_for_key(key, count)
            row = (now_ms if timestamp is None else timestamp, key, value, headers)
            by_partition.setdefault(partition, []).append((position, row))
        places: dict[int, tuple[int, int]] = {}
        for partition, rows in by_partition.items():
            batch = memoryview(encode_batch([row for _, row in rows]))
            info = self._partition(topic, partition).append_produced(batch, -1, now_ms)
            for n, (position, _) in enumerate(rows):
                places[position] = (partition, info.first_offset + n)
        return [places[position] for position in range(len(records))]

    def _partition(self, topic: str, index: int) -> Partition:
        return self._node().broker.partitions.get(topic, index)

    def records(self, topic: str, positions: Mapping[int, int]) -> list[Record]:
        """The records of each partition from its position (default: its start), ordered by partition and offset."""
        found: list[Record] = []
        for index in range(self.partitions(topic)):
            partition = self._partition(topic, index)
            offset = max(positions.get(index, 0), partition.log.log_start_offset)
            while offset < partition.high_watermark:
                data = partition.log.read(offset, READ_BYTES, partition.high_watermark)
                rows, following = _decoded(topic, index, data, offset)
                found += rows
                if following <= offset:
                    break
                offset = following
        return found

    def ends(self, topic: str) -> dict[int, int]:
        """The high watermark of each partition."""
        return {index: self._partition(topic, index).high_watermark for index in range(self.partitions(topic))}

    def corrupt_on_disk(self, topic: str, index: int, offset: int | None) -> int:
        """Change a byte of the batch with `offset` (default: the first) in the file, and return its base offset."""
        log = self._partition(topic, index).log
        wanted = log.log_start_offset if offset is None else offset
        for segment in log.segments:
            for position, _, header in segment.file.batches():
                if header.base_offset <= wanted < header.next_offset:
                    at = position + header.size - 1
                    with open(segment.file.path(), "r+b") as file:
                        file.seek(at)
                        byte = file.read(1)[0]
                        file.seek(at)
                        file.write(bytes([byte ^ 0xFF]))
                    return header.base_offset
        raise ValueError(f"{topic}-{index} has no offset {wanted}")

    # -- groups ------------------------------------------------------------------------------------------------

    def groups(self) -> Completion[Any]:
        """List all groups: (error, rows)."""
        broker = self._node().broker
        return broker.schedulers.worker.submit(broker.groups.list_groups(frozenset(), frozenset()))

    def delete_group(self, name: str) -> Completion[Any]:
        """Delete a group without members."""
        return self._node().broker.groups.submit(name, DeleteGroup(name))

    def group(self, name: str) -> Completion[Any]:
        """The group's state, members, and committed offsets with the ends of their partitions."""
        groups = self._node().broker.groups
        described = groups.submit(name, DescribeGroup(name))
        offsets = groups.submit(name, FetchOffsets(OffsetFetchRequestGroup(group_id=name, topics=None)))

        def merge(answers: list[Any]) -> tuple[str, list[tuple[str, str, str]], dict[TopicPartition, tuple[int, int]]]:
            group, fetched = answers
            members = [(each.member_id, each.client_id, each.client_host) for each in group.members or ()]
            positions = {}
            for topic in fetched.topics or ():
                ends = self.ends(topic.name)
                for part in topic.partitions:
                    place = TopicPartition(topic.name, part.partition_index)
                    positions[place] = (part.committed_offset, ends.get(part.partition_index, -1))
            return group.group_state or "Dead", members, positions

        return gather([described, offsets], merge)

    def rebalance(self, name: str) -> Completion[Any]:
        """Make the group's members rejoin; returns an ErrorCode."""
        return self._node().broker.groups.submit(name, ForceRebalance(name))

    # -- listeners of tests ------------------------------------------------------------------------------------

    async def open_listener(self, name: str, port: int) -> str:
        """Open a port that identifies its connections and group members; returns HOST:PORT."""
        return await self.listeners.open(self._node(), name, port)

    async def reopen_listeners(self) -> None:
        """Open the listeners that the node had before its restart."""
        await self.listeners.reopen(self._node())

    async def unclosed(self, name: str) -> list[Unclosed]:
        """The listener's clients that are connected, or are members of groups."""
        return await self.listeners.unclosed(self._node(), name)

    async def close_listener(self, name: str) -> None:
        """Close the listener and its connections, and remove its group members."""
        await self.listeners.close(self._node(), name)

    def forget_listener(self, name: str) -> None:
        """Do not open the listener at the next start."""
        self.listeners.forget(name)

    # -- faults ------------------------------------------------------------------------------------------------

    def add_rule(self, number: int, rule: Rule) -> None:
        """Start to apply a rule."""
        self.interceptor.add(number, rule)

    def remove_rule(self, number: int) -> Rule | None:
        """Stop applying a rule, and return its final state."""
        rule = self.interceptor.rules.get(number)
        self.interceptor.remove(number)
        return rule.copy() if rule is not None else None

    def rule(self, number: int) -> Rule | None:
        """The rule with its hits so far."""
        rule = self.interceptor.rules.get(number)
        return rule.copy() if rule is not None else None

    def drop_connections(self, client_id: str | None) -> int:
        """Close the connections of one client, or all, and return their number."""
        return self._node().drop_connections(
            lambda connection: client_id is None or connection.state.get(CLIENT_ID) == client_id
        )

    def requests(self) -> Counter[tuple[str, str | None]]:
        """The number of requests by (API, client id)."""
        return Counter(self.interceptor.requests)

    def advance_clock(self, milliseconds: int) -> None:
        """Move the clock, and run due timers."""
        self.clock.advance(milliseconds)
        if self.node is not None:
            self.node.clock_moved()

    def reset_clock(self) -> None:
        """Set the wall clock to the machine's."""
        self.clock.reset()

    def now_ms(self) -> int:
        """The broker's wall clock."""
        return self.clock.wall_ms()

    # -- state across processes ----------------------------------------------------------------------------------

    def save(self) -> Saved:
        """Rules, counts, listeners and the offsets of the clock."""
        interceptor, clock = self.interceptor, self.clock
        return Saved(
            interceptor.rules, interceptor.requests, self.listeners, clock.wall_ahead_ms, clock.steady_ahead_ms
        )

    def restore(self, saved: Saved) -> None:
        """Restore the state that `save` returned."""
        self.interceptor.requests, self.clock.wall_ahead_ms = saved.requests, saved.wall_ahead_ms
        self.clock.steady_ahead_ms = saved.steady_ahead_ms
        self.listeners = self.interceptor.listeners = saved.listeners
        for number, rule in saved.rules.items():
            self.interceptor.add(number, rule)


def _decoded(topic: str, index: int, data: Buffer, offset: int) -> tuple[list[Record], int]:
    found: list[Record] = []
    following = offset
    for position, header in iter_batches(data):
        if not header.is_control:
            found += [
                Record(topic, index, row.offset, row.timestamp, row.key, row.value, row.headers)
                for row in decode_batch(data, position)
                if row.offset >= offset
            ]
        following = header.next_offset
    return found, following
