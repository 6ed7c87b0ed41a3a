"""Topics and partitions: create, grow, delete. KIP-4, KIP-195, KIP-516 (ids), KIP-525 (configs in the response)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import METADATA_TOPIC, ZERO_UUID, validate_topic_name
from ottla.common.slices import Slices
from ottla.controller import configs, late
from ottla.controller.placement import place
from ottla.controller.state import (
    MAX_PARTITIONS_PER_REQUEST,
    Outcome,
    Permit,
    State,
    check_assignment,
    check_size,
    new_partition,
    random_uuid,
    refuse,
)
from ottla.metadata.image import BROKER, TOPIC, PartitionImage, collision_name
from ottla.metadata.mirrors import MIRROR_SETTING, STATE_SETTING
from ottla.metadata.snapshot import partition_record
from ottla.protocol import metadata_records as m
from ottla.protocol.message import Message
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse

DEFAULT = -1


def create_topics(state: State, request: CreateTopicsRequest, permit: Permit) -> Slices[Outcome[CreateTopicsResponse]]:
    """Create topics; each has its own error, but a request that is too large fails as a whole."""
    count = yield from _count_names(request.topics)
    duplicates = dict.fromkeys(name for name, times in count.items() if times > 1)
    yield
    _check_partitions(state, [topic for topic in request.topics if topic.name not in duplicates])
    yield
    records: list[Message] = []
    results: list[CreatableTopicResult] = []
    # Names that this request creates can collide, too.
    collisions: dict[str, str] = {}
    described: _Described = {}
    for topic in request.topics:
        if topic.name in duplicates:
            continue
        yield
        try:
            new, result = _create(state, topic, collisions, described, permit)
        except KafkaError as error:
            results.append(_failed(topic.name, error.code, error.message))
            continue
        collision = collision_name(topic.name)
        if collision is not None:
            collisions[collision] = topic.name
        records += new
        results.append(result)
        check_size(records)
    results += [_failed(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.") for name in duplicates]
    return Outcome([] if request.validate_only else records, CreateTopicsResponse(topics=results))


def _count_names(topics: Iterable[CreatableTopic | CreatePartitionsTopic]) -> Slices[Counter[str]]:
    count: Counter[str] = Counter()
    for topic in topics:
        count[topic.name] += 1
        yield
    return count


def _check_partitions(state: State, topics: Iterable[CreatableTopic]) -> None:
    """Raise POLICY_VIOLATION if the topics would have too many partitions together."""
    total = 0
    for topic in topics:
        count = state.settings.num_partitions if topic.num_partitions == DEFAULT else topic.num_partitions
        total += len(topic.assignments) or max(count, 0)
    if total > MAX_PARTITIONS_PER_REQUEST:
        refuse(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def _failed(name: str, code: ErrorCode, message: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message)


_Described: TypeAlias = dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]]
"""The effective settings of new topics by their own settings, cached because thousands of topics have the same."""


def _create(
    state: State, topic: CreatableTopic, collisions: dict[str, str], described: _Described, permit: Permit
) -> tuple[list[Message], CreatableTopicResult]:
    check_name(state, topic.name, collisions)
    settings = _topic_settings(state, topic)
    partitions = _assigned(state, topic) if topic.assignments else _placed(state, topic)
    replication_factor = len(partitions[0].replicas)
    if state.settings.topic_policy is not None:
        state.settings.topic_policy(topic.name, len(partitions), replication_factor, settings)
    permit(len(partitions))
    topic_id = new_topic_id(state)
    records: list[Message] = [m.TopicRecord(name=topic.name, topic_id=topic_id)]
    records += [
        m.ConfigRecord(resource_type=TOPIC, resource_name=topic.name, name=name, value=value)
        for name, value in settings.items()
    ]
    records += [partition_record(topic_id, index, partition) for index, partition in enumerate(partitions)]
    key = tuple(settings.items())
    if key not in described:
        described[key] = _describe(state, settings)
    result = CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        topic_config_error_code=ErrorCode.NONE,
        num_partitions=len(partitions),
        replication_factor=replication_factor,
        configs=described[key],
    )
    return records, result


def _describe(state: State, settings: dict[str, str]) -> list[CreatableTopicConfigs]:
    entries = state.rules.describe_topic(
        settings, state.image.config(BROKER, str(state.node_id)), state.image.config(BROKER, "")
    )
    return [
        CreatableTopicConfigs(
            name=entry.name,
            value=None if entry.is_sensitive else entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
        )
        for entry in sorted(entries)
    ]


def check_name(state: State, name: str, collisions: dict[str, str]) -> None:
    """Raise KafkaError unless a topic may be created with this name; `collisions` are names of the same request."""
    validate_topic_name(name)
    if name == METADATA_TOPIC:
        refuse(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_TOPIC} is prohibited.")
    if name in state.image.topics_by_name:
        refuse(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    collision = collision_name(name)
    if collision is not None:
        other = state.image.colliding_names.get(collision) or collisions.get(collision)
        if other is not None:
            refuse(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")


def _topic_settings(state: State, topic: CreatableTopic) -> dict[str, str]:
    nulls = [config.name for config in topic.configs if config.value is None]
    if nulls:
        refuse(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
    settings = {config.name: config.value for config in topic.configs if config.value is not None}
    configs.validate(state, TOPIC, topic.name, settings, frozenset(settings), is_new=True)
    if not settings.keys().isdisjoint((MIRROR_SETTING, STATE_SETTING)):
        refuse(ErrorCode.POLICY_VIOLATION, "Only a mirror creates mirrored topics; use `ottla mirror`")
    return settings


def _assigned(state: State, topic: CreatableTopic) -> list[PartitionImage]:
    """Create partitions on the replicas that the request assigns."""
    if topic.replication_factor != DEFAULT:
        refuse(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        )
    if topic.num_partitions != DEFAULT:
        refuse(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    partitions: dict[int, PartitionImage] = {}
    replication_factor: int | None = None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in partitions:
            refuse(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        partitions[index] = _manual(state, index, assignment.broker_ids, replication_factor)
        replication_factor = len(assignment.broker_ids)
    if sorted(partitions) != list(range(len(partitions))):
        refuse(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence")
    return [partitions[index] for index in sorted(partitions)]


def _manual(state: State, index: int, broker_ids: list[int], replication_factor: int | None) -> PartitionImage:
    check_assignment(state, broker_ids, replication_factor)
    partition = new_partition(state, broker_ids)
    if partition is None:
        refuse(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
            "controlled shutdown.",
        )
    return partition


def _placed(state: State, topic: CreatableTopic) -> list[PartitionImage]:
    """Create partitions on replicas that the controller selects."""
    if topic.replication_factor < DEFAULT or topic.replication_factor == 0:
        refuse(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < DEFAULT or topic.num_partitions == 0:
        refuse(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    count = state.settings.num_partitions if topic.num_partitions == DEFAULT else topic.num_partitions
    return place_partitions(state, count, topic.replication_factor)


def place_partitions(state: State, count: int, replication_factor: int) -> list[PartitionImage]:
    """New partitions on replicas that the controller selects; raises INVALID_REPLICATION_FACTOR."""
    if replication_factor == DEFAULT:
        replication_factor = state.settings.default_replication_factor
    prefix = f"Unable to replicate the partition {replication_factor} time(s): "
    try:
        placed = place(state.image.brokers.values(), count, replication_factor, state.random)
    except KafkaError as error:
        raise KafkaError(error.code, prefix + (error.message or "")) from error
    partitions = []
    for replicas in placed:
        partition = new_partition(state, replicas)
        if partition is None:
            refuse(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{prefix}All brokers are currently fenced or in controlled shutdown.",
            )
        partitions.append(partition)
    return partitions


def new_topic_id(state: State) -> bytes:
    """Return the id of a new topic."""
    while True:
        topic_id = random_uuid(state.random)
        if topic_id not in state.image.topics_by_id:
            return topic_id


def create_partitions(
    state: State, request: CreatePartitionsRequest, permit: Permit
) -> Slices[Outcome[CreatePartitionsResponse]]:
    """Add partitions to topics that exist; each topic has its own error."""
    count = yield from _count_names(request.topics)
    records: list[Message] = []
    results: dict[str, CreatePartitionsTopicResult] = {}
    check_size(request.topics)
    for topic in request.topics:
        yield
        result = CreatePartitionsTopicResult(name=topic.name, error_code=ErrorCode.NONE, error_message=None)
        results[topic.name] = result
        try:
            if count[topic.name] > 1:
                refuse(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            new = _grow(state, topic, permit)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
            continue
        records += new
        check_size(records)
    return Outcome([] if request.validate_only else records, CreatePartitionsResponse(results=list(results.values())))


def _grow(state: State, request: CreatePartitionsTopic, permit: Permit) -> list[Message]:
    topic = state.topic(request.name)
    late.mirrors.check_growth(state, topic.name)
    present = len(topic.partitions)
    if request.count == present:
        refuse(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if request.count < present:
        refuse(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {present} partition(s); {request.count} would not be an increase.",
        )
    additional = request.count - present
    if request.assignments is not None and len(request.assignments) != additional:
        refuse(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only {len(request.assignments)} "
            "assignment(s) were specified.",
        )
    check_size(range(additional))
    permit(additional)
    replication_factor = len(topic.partitions[0].replicas)
    if request.assignments is None:
        added = place_partitions(state, additional, replication_factor)
    else:
        added = [
            _manual(state, present + i, assignment.broker_ids, replication_factor)
            for i, assignment in enumerate(request.assignments)
        ]
    return [partition_record(topic.topic_id, present + i, partition) for i, partition in enumerate(added)]


def delete_topics(
    state: State, request: DeleteTopicsRequest, api_version: int, permit: Permit
) -> Slices[Outcome[DeleteTopicsResponse]]:
    """Delete topics by name or, from version 6 on, by id; each has its own error."""
    asked: Counter[tuple[str | None, bytes]] = Counter((name, ZERO_UUID) for name in request.topic_names)
    for wanted in request.topics:
        asked[wanted.name, wanted.topic_id] += 1
        yield
    by_id = {topic_id for name, topic_id in asked if name is None}
    yield
    twice = {name for name, _ in asked if name is not None and _id_of(state, name) in by_id} if by_id else set()
    yield
    removals: list[Message] = []
    results = []
    for (name, topic_id), times in asked.items():
        if name is None and _name_of(state, topic_id) in twice:
            continue  # the error is reported with the name
        yield
        result = DeletableTopicResult(name=name, topic_id=topic_id, error_code=ErrorCode.NONE, error_message=None)
        try:
            _check_deletion(state, name, topic_id, times, api_version)
            topic = state.topic(name) if name is not None else state.image.topics_by_id.get(topic_id)
            if topic is None:
                refuse(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
            result.name, result.topic_id = topic.name, topic.topic_id
            if name in twice:
                refuse(ErrorCode.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied.")
            late.mirrors.check_deletion(state, topic.name)
            permit(len(topic.partitions))
            removals.append(m.RemoveTopicRecord(topic_id=topic.topic_id))
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
        check_size(removals)
    return Outcome(removals, DeleteTopicsResponse(responses=results))


def _id_of(state: State, name: str) -> bytes | None:
    topic = state.image.topics_by_name.get(name)
    return topic.topic_id if topic is not None else None


def _name_of(state: State, topic_id: bytes) -> str | None:
    topic = state.image.topics_by_id.get(topic_id)
    return topic.name if topic is not None else None


TOPIC_DELETION_DISABLED_SINCE_VERSION = 3


def _check_deletion(state: State, name: str | None, topic_id: bytes, times: int, api_version: int) -> None:
    if not state.settings.delete_topic_enable:
        old = api_version < TOPIC_DELETION_DISABLED_SINCE_VERSION
        refuse(ErrorCode.INVALID_REQUEST if old else ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    if name is None and topic_id == ZERO_UUID:
        refuse(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if name is not None and topic_id != ZERO_UUID:
        refuse(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if times > 1:
        kind = "id" if name is None else "name"
        refuse(ErrorCode.INVALID_REQUEST, f"Duplicate topic {kind}.")
