"""Plans about topics: create, delete, list, describe, grow, move, elect leaders, delete records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ottla.clients.admin.core import Call, Outcome, Plan, Route
from ottla.clients.admin.model import (
    NewTopic,
    PartitionDescription,
    Reassignment,
    TopicCreated,
    TopicDescription,
    TopicListing,
)
from ottla.clients.errors import BrokerError, UnknownTopicOrPartition, error_for
from ottla.common.errors import ErrorCode
from ottla.common.ids import ZERO_UUID, TopicPartition, Uuid, by_topic, uuid_to_text
from ottla.protocol.message import Message
from ottla.protocol.messages import (
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_topic_partitions,
    elect_leaders,
    list_partition_reassignments,
    metadata,
)
from ottla.protocol.messages.describe_topic_partitions import RequestCursor as Cursor

SERVER_TIMEOUT_MS = 30_000
_NO_ERROR_OF_TOPIC = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def text_of(topic_id: Uuid) -> str:
    """Return the id as text; "" if the broker reports none."""
    return "" if topic_id == ZERO_UUID else uuid_to_text(topic_id)


def config_text(value: object) -> str:
    """Format a setting's value as Kafka does."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _creatable(topic: NewTopic) -> create_topics.CreatableTopic:
    assignments = [
        create_topics.CreatableReplicaAssignment(index, list(nodes))
        for index, nodes in (topic.assignments or {}).items()
    ]
    configs = [create_topics.CreatableTopicConfig(name, config_text(value)) for name, value in topic.config.items()]
    counts = (-1, -1) if assignments else (topic.partitions, topic.replication_factor)
    return create_topics.CreatableTopic(topic.name, *counts, assignments, configs)


def create(topics: Iterable[NewTopic | str], validate_only: bool) -> Call[str, TopicCreated]:
    wanted = {t.name: t for t in (NewTopic(t) if isinstance(t, str) else t for t in topics)}

    def request(names: Sequence[str]) -> Message:
        rows = [_creatable(wanted[name]) for name in names]
        return create_topics.CreateTopicsRequest(rows, SERVER_TIMEOUT_MS, validate_only)

    def read(response: Any, _: Sequence[str]) -> Iterator[tuple[str, TopicCreated | BrokerError]]:
        for row in response.topics:
            if row.error_code:
                yield row.name, error_for(row.error_code, row.error_message)
            else:
                config = {c.name: c.value for c in row.configs or ()}
                made = (row.name, text_of(row.topic_id), row.num_partitions, row.replication_factor, config)
                yield row.name, TopicCreated(*made)

    return Call(Route.CONTROLLER, list(wanted), request, read)


def delete(topics: Iterable[str]) -> Call[str, None]:
    def request(names: Sequence[str]) -> Message:
        rows = [delete_topics.DeleteTopicState(name) for name in names]
        return delete_topics.DeleteTopicsRequest(rows, list(names), SERVER_TIMEOUT_MS)

    def read(response: Any, _: Sequence[str]) -> Iterator[tuple[str, BrokerError | None]]:
        for row in response.responses:
            yield row.name, error_for(row.error_code, row.error_message) if row.error_code else None

    return Call(Route.CONTROLLER, list(dict.fromkeys(topics)), request, read)


def grow(counts: Mapping[str, int], validate_only: bool) -> Call[str, None]:
    def request(names: Sequence[str]) -> Message:
        rows = [create_partitions.CreatePartitionsTopic(name, counts[name], None) for name in names]
        return create_partitions.CreatePartitionsRequest(rows, SERVER_TIMEOUT_MS, validate_only)

    def read(response: Any, _: Sequence[str]) -> Iterator[tuple[str, BrokerError | None]]:
        for row in response.results:
            yield row.name, error_for(row.error_code, row.error_message) if row.error_code else None

    return Call(Route.CONTROLLER, list(counts), request, read)


def list_all(include_internal: bool) -> Plan[list[TopicListing]]:
    def request(_: Sequence[str]) -> Message:
        return metadata.MetadataRequest(topics=None, allow_auto_topic_creation=False)

    def read(response: Any, _: Sequence[str]) -> Iterator[tuple[str, list[TopicListing]]]:
        named = (row for row in response.topics if row.name is not None)
        rows = (row for row in named if include_internal or not row.is_internal)
        listing = [TopicListing(row.name, text_of(row.topic_id), row.is_internal, len(row.partitions)) for row in rows]
        yield "the topics", sorted(listing, key=lambda topic: topic.name)

    return (yield Call(Route.ANY, ["the topics"], request, read)).one()  # type: ignore[no-any-return]


def describe(topics: Iterable[str] | None) -> Plan[Outcome[str, TopicDescription]]:
    """Describe topics by name, or all. A second request reads the eligible leaders of topics with replicas out of sync.

    Brokers answer a request for all topics faster than one that names them all.
    """
    described: Outcome[str, TopicDescription]
    if topics is None:
        every: Outcome[str, Outcome[str, TopicDescription]] = yield _all_described()
        described = every.one()
    else:
        described = yield _described_by_metadata(topics)
    found = described.results
    names = [name for name, topic in found.items() if any(len(p.isr) < len(p.replicas) for p in topic.partitions)]
    cursor: Cursor | None = None
    while names:
        page: Outcome[str, EligibleLeadersPage] = yield _eligible_leaders(names, cursor)
        if page.errors:  # The broker is older than Kafka 3.7, or cannot answer now: the rest of the answer is valid.
            break
        leaders = page.one()
        for name, rows in leaders.partitions.items():
            before = found[name].partitions
            after = (rows[p.partition].added_to(p) if p.partition in rows else p for p in before)
            found[name] = replace(found[name], partitions=tuple(after))
        if leaders.cursor is None or leaders.cursor == cursor:
            break
        cursor = leaders.cursor
        names = [name for name in names if name >= cursor.topic_name]
    return described


class EligibleLeaders(NamedTuple):
    replicas: tuple[int, ...]
    last_known: tuple[int, ...]

    def added_to(self, partition: PartitionDescription) -> PartitionDescription:
        return replace(partition, eligible_leader_replicas=self.replicas, last_known_elr=self.last_known)


class EligibleLeadersPage(NamedTuple):
    """Eligible leaders by topic and partition, and where the next page begins."""

    partitions: dict[str, dict[int, EligibleLeaders]]
    cursor: Cursor | None


def _eligible_leaders(names: Sequence[str], cursor: Cursor | None) -> Call[str, EligibleLeadersPage]:
    """Return a page of eligible leaders of topics, in one request for all. KIP-966."""

    def request(_: Sequence[str]) -> Message:
        rows = [describe_topic_partitions.TopicRequest(name) for name in names]
        return describe_topic_partitions.DescribeTopicPartitionsRequest(rows, cursor=cursor)

    def read(response: Any, keys: Sequence[str]) -> Iterator[tuple[str, EligibleLeadersPage]]:
        after = response.next_cursor
        found = {
            topic.name: {
                row.partition_index: EligibleLeaders(
                    tuple(row.eligible_leader_replicas or ()), tuple(row.last_known_elr or ())
                )
                for row in topic.partitions
            }
            for topic in response.topics
            if topic.name in names
        }
        yield keys[0], EligibleLeadersPage(found, Cursor(after.topic_name, after.partition_index) if after else None)

    return Call(Route.ANY, ["eligible leaders"], request, read)


def _all_described() -> Call[str, Outcome[str, TopicDescription]]:
    """Describe all topics. A topic that is deleted meanwhile is skipped."""

    def request(_: Sequence[str]) -> Message:
        return metadata.MetadataRequest(topics=None, allow_auto_topic_creation=False)

    def read(response: Any, keys: Sequence[str]) -> Iterator[tuple[str, Outcome[str, TopicDescription]]]:
        rows = sorted((row for row in response.topics if row.name is not None), key=lambda row: row.name)
        errors = {row.name: error_for(row.error_code) for row in rows if row.error_code not in _NO_ERROR_OF_TOPIC}
        yield keys[0], Outcome({row.name: _described(row) for row in rows if not row.error_code}, {**errors})

    return Call(Route.ANY, ["the topics"], request, read)


def _described_by_metadata(topics: Iterable[str]) -> Call[str, TopicDescription]:
    def request(names: Sequence[str]) -> Message:
        rows = [metadata.MetadataRequestTopic(name=name) for name in names]
        return metadata.MetadataRequest(topics=rows, allow_auto_topic_creation=False)

    def read(response: Any, _: Sequence[str]) -> Iterator[tuple[str, TopicDescription | BrokerError]]:
        for row in response.topics:
            if row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                yield row.name, UnknownTopicOrPartition(f"There is no topic {row.name!r}")
            elif row.error_code:
                yield row.name, error_for(row.error_code)
            else:
                yield row.name, _described(row)

    return Call(Route.ANY, list(dict.fromkeys(topics)), request, read)


def _described(row: metadata.MetadataResponseTopic) -> TopicDescription:
    partitions = tuple(
        PartitionDescription(
            p.partition_index,
            p.leader_id if p.leader_id >= 0 else None,
            p.leader_epoch,
            tuple(p.replica_nodes),
            tuple(p.isr_nodes),
            tuple(p.offline_replicas),
        )
        for p in sorted(row.partitions, key=lambda p: p.partition_index)
    )
    return TopicDescription(row.name or "", text_of(row.topic_id), row.is_internal, partitions)


def delete_before(offsets: Mapping[TopicPartition, int]) -> Call[TopicPartition, int]:
    def request(partitions: Sequence[TopicPartition]) -> Message:
        rows = [
            delete_records.DeleteRecordsTopic(
                topic, [delete_records.DeleteRecordsPartition(i, offsets[TopicPartition(topic, i)]) for i in indexes]
            )
            for topic, indexes in by_topic(partitions).items()
        ]
        return delete_records.DeleteRecordsRequest(rows, SERVER_TIMEOUT_MS)

    def read(response: Any, _: Sequence[TopicPartition]) -> Iterator[tuple[TopicPartition, int | BrokerError]]:
        for topic in response.topics:
            for row in topic.partitions:
                key = TopicPartition(topic.name, row.partition_index)
                yield key, error_for(row.error_code) if row.error_code else row.low_watermark

    return Call(Route.LEADERS, list(offsets), request, read)


def elect(partitions: Iterable[TopicPartition], unclean: bool) -> Call[TopicPartition, bool]:
    def request(keys: Sequence[TopicPartition]) -> Message:
        rows = [elect_leaders.TopicPartitions(topic, indexes) for topic, indexes in by_topic(keys).items()]
        return elect_leaders.ElectLeadersRequest(int(unclean), rows, SERVER_TIMEOUT_MS)

    def read(response: Any, keys: Sequence[TopicPartition]) -> Iterator[tuple[TopicPartition, bool | BrokerError]]:
        if response.error_code:
            for key in keys:
                yield key, error_for(response.error_code)
        for topic in response.replica_election_results:
            for row in topic.partition_result:
                key = TopicPartition(topic.topic, row.partition_id)
                if row.error_code in (0, ErrorCode.ELECTION_NOT_NEEDED):
                    yield key, not row.error_code
                else:
                    yield key, error_for(row.error_code, row.error_message)

    return Call(Route.CONTROLLER, list(partitions), request, read)


def reassign(replicas: Mapping[TopicPartition, Sequence[int] | None]) -> Call[TopicPartition, None]:
    module = alter_partition_reassignments

    def request(keys: Sequence[TopicPartition]) -> Message:
        rows = []
        for topic, indexes in by_topic(keys).items():
            moves = [
                module.ReassignablePartition(i, None if to is None else list(to))
                for i, to in ((i, replicas[TopicPartition(topic, i)]) for i in indexes)
            ]
            rows.append(module.ReassignableTopic(topic, moves))
        return module.AlterPartitionReassignmentsRequest(SERVER_TIMEOUT_MS, topics=rows)

    def read(response: Any, keys: Sequence[TopicPartition]) -> Iterator[tuple[TopicPartition, BrokerError | None]]:
        if response.error_code:
            for key in keys:
                yield key, error_for(response.error_code, response.error_message)
        for topic in response.responses:
            for row in topic.partitions:
                key = TopicPartition(topic.name, row.partition_index)
                yield key, error_for(row.error_code, row.error_message) if row.error_code else None

    return Call(Route.CONTROLLER, list(replicas), request, read)


def reassignments() -> Plan[dict[TopicPartition, Reassignment]]:
    def request(_: Sequence[str]) -> Message:
        return list_partition_reassignments.ListPartitionReassignmentsRequest(SERVER_TIMEOUT_MS, None)

    def read(
        response: Any, keys: Sequence[str]
    ) -> Iterator[tuple[str, dict[TopicPartition, Reassignment] | BrokerError]]:
        if response.error_code:
            yield keys[0], error_for(response.error_code, response.error_message)
            return
        moving = {}
        for topic in response.topics:
            for row in topic.partitions:
                moves = (tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas))
                moving[TopicPartition(topic.name, row.partition_index)] = Reassignment(*moves)
        yield keys[0], moving

    return (yield Call(Route.CONTROLLER, ["the reassignments"], request, read)).one()  # type: ignore[no-any-return]
