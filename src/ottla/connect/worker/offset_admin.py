"""Reads, alters and resets the offsets of a connector (KIP-875). All functions block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ottla.clients.admin.core import PartialFailure
from ottla.clients.errors import (
    BrokerError,
    GroupNotFound,
    GroupSubscribedToTopic,
    NonEmptyGroup,
    UnknownMember,
)
from ottla.common.ids import TopicPartition
from ottla.connect.api import Connector, Kind, SourceOffset
from ottla.connect.cluster.offset_records import value
from ottla.connect.errors import BadRequestError
from ottla.connect.records import Position
from ottla.connect.worker.clients import Clients
from ottla.connect.worker.offset_store import OffsetStore
from ottla.connect.worker.source_output import transactional_id

_TOPIC: Final = "kafka_topic"
_PARTITION: Final = "kafka_partition"
_OFFSET: Final = "kafka_offset"


def read_sink_offsets(name: str, clients: Clients) -> list[SourceOffset]:
    """Return the offsets of a sink's group in the form of the REST API. Raises ClientError."""
    with clients.admin() as admin:
        found = admin.list_group_offsets(f"connect-{name}")
    return [
        SourceOffset({_TOPIC: tp.topic, _PARTITION: tp.partition}, {_OFFSET: each.offset})
        for tp, each in sorted(found.items())
    ]


def alter_sink_offsets(name: str, clients: Clients, offsets: Sequence[SourceOffset] | None) -> None:
    """Set or delete offsets of a sink's group; None deletes the group. Raises BadRequestError, ClientError."""
    group = f"connect-{name}"
    with clients.admin() as admin:
        if offsets is None:
            _change(name, lambda: admin.delete_group(group))
            return
        given = [(_kafka_partition(each.partition), each.offset) for each in offsets]
        changed = {tp: _kafka_offset(offset) for tp, offset in given if offset is not None}
        deleted = [tp for tp, offset in given if offset is None]
        if changed:
            _change(name, lambda: admin.alter_group_offsets(group, changed))
        if deleted:
            _change(name, lambda: admin.delete_group_offsets(group, deleted))


def _change(name: str, change: Callable[[], Any]) -> None:
    try:
        change()
    except PartialFailure as failure:
        errors: Sequence[Exception] = list(failure.errors.values())
    except BrokerError as error:
        errors = [error]
    else:
        return
    if any(isinstance(each, (NonEmptyGroup, UnknownMember, GroupSubscribedToTopic)) for each in errors):
        raise BadRequestError(
            f"Failed to alter consumer group offsets for connector {name} either because its tasks haven't stopped "
            "completely yet or the connector was resumed before the request to alter its offsets could be "
            "successfully completed. If the connector is in a stopped state, this operation can be safely retried."
        ) from errors[0]
    others = [each for each in errors if not isinstance(each, GroupNotFound)]
    if others:
        raise others[0]


def _kafka_partition(partition: Position) -> TopicPartition:
    topic, number = partition.get(_TOPIC), partition.get(_PARTITION)
    if not isinstance(topic, str) or isinstance(number, bool):
        raise BadRequestError(
            f"The partition for a sink connector offset must contain the keys '{_TOPIC}' and '{_PARTITION}', "
            f"but one is {dict(partition)}"
        )
    try:
        return TopicPartition(topic, int(str(number)))
    except ValueError as error:
        raise BadRequestError(f"Partition {number!r} of topic {topic} is not an integer") from error


def _kafka_offset(offset: Position) -> int:
    number = offset.get(_OFFSET)
    try:
        found = int(str(number))
    except ValueError as error:
        raise BadRequestError(
            f"The offset for a sink connector should either be null or contain the key '{_OFFSET}' with an integer, "
            f"but one is {dict(offset)}"
        ) from error
    if found < 0:
        raise BadRequestError(f"The offset {found} of a sink connector is negative")
    return found


def alter_source_offsets(
    name: str, clients: Clients, store: OffsetStore, offsets: Sequence[SourceOffset] | None
) -> None:
    """Write offsets of a source; None deletes all. With exactly-once support in one transaction, as stock does."""
    store.refresh()
    rows = offsets if offsets is not None else [SourceOffset(each.partition, None) for each in store.all(name)]
    records = [(store.key(name, each.partition), value(each.offset)) for each in rows]
    worker = clients.worker
    needed = {"transactional_id": transactional_id(worker.group_id, name, 0)} if worker.exactly_once else {}
    with clients.producer(**needed) as producer:
        if worker.exactly_once:
            producer.init_transactions()
            producer.begin_transaction()
        sent = [producer.send(store.topic, data, key) for key, data in records]
        for each in sent:
            each.result(worker.flush_timeout_ms / 1000)
        if worker.exactly_once:
            producer.commit_transaction()


def message(connector_class: type[Connector], offsets: Sequence[SourceOffset] | None) -> str:
    """Return stock's sentence about a change of offsets."""
    done = "reset" if offsets is None else "altered"
    if connector_class.alter_offsets.__func__ is not Connector.alter_offsets.__func__:  # type: ignore[attr-defined]
        return f"The offsets for this connector have been {done} successfully"
    return (
        f"The Connect framework-managed offsets for this connector have been {done} successfully. However, if this "
        f"connector manages offsets externally, they will need to be manually {done} in the system that the connector "
        "uses."
    )


def is_source(connector_class: type[Connector]) -> bool:
    """Whether a connector is a source."""
    return connector_class.kind is Kind.SOURCE
