"""Skipping: moves a group past one record, which is copied into a dead letter topic.

The dead letter and the group's next offset are written in one transaction, so both exist or neither does, wherever the
command is killed. The next start aborts the transaction that a killed one left open: the transactional id is derived
from the group.

A coordinator accepts offsets of a transaction without a membership, so it does not fence the members of the group. The
position is therefore compared after the offset was added to the transaction. If a member commits later than that, its
commit has a higher place in the log of offsets, and it wins when the transaction ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla import clients
from ottla.clients import GroupMetadata, OffsetAndMetadata
from ottla.clients import admin as api
from ottla.clients.errors import ClientError
from ottla.common import units
from ottla.common.failure import Failure
from ottla.common.ids import TopicPartition

CLASS_NAME: Final = "ottla.group.skip"
_PREFIX: Final = "__connect.errors."
_MARK: Final = "ottla.skip:"
_REDRIVE: Final = "ottla.redrive"
READ_S: Final = 10.0
ACKNOWLEDGED_S: Final = 60.0
# A coordinator rejects longer metadata (offset.metadata.max.bytes).
_MOST_METADATA: Final = 1024


class Audit(NamedTuple):
    """Who skips the record, when, and why."""

    user: str
    time: str
    reason: str


class Skip(NamedTuple):
    """The record to skip: the first one at or after the position of a group. `to` is the dead letter topic."""

    group: str
    partition: TopicPartition
    offset: int
    to: str


def transactional_id(group: str) -> str:
    """Return the transactional id of skips in a group: a second skip fences the first one."""
    return f"ottla.skip.{group}"


def read_position(admin: api.Admin, skip: Skip) -> api.GroupOffset:
    """Return the committed offset of the group. Raises Failure if the group may not skip here.

    Transactions that commit offsets are not waited for: this may be the skip's own.
    """
    described = admin.describe_group(skip.group)
    if described.type is api.GroupType.SHARE:
        raise Failure(
            f"{skip.group} is a share group, which has no position of its own",
            "A consumer of it rejects the record: it is not delivered again.",
        )
    if described.members:
        raise Failure(
            f"{skip.group} has {units.plural(len(described.members), 'member')}: a record can be skipped only without",
            f"Stop its consumers first; `ottla group describe {skip.group}` shows them.",
        )
    at = admin.list_group_offsets(skip.group, [skip.partition]).get(skip.partition)
    if at is None:
        raise Failure(
            f"{skip.group} has no committed offset of {skip.partition}",
            f"`ottla group reset {skip.group} --topic {skip.partition.topic}:{skip.partition.partition}` sets one.",
        )
    if at.metadata.startswith(_REDRIVE):
        raise Failure(f"{skip.group} is the group of a redrive: its offsets name dead letters, not a position")
    return at


def was_skipped(skip: Skip, at: api.GroupOffset) -> bool:
    """Whether the position shows that this record was skipped already."""
    return at.metadata.startswith(f"{_MARK}{skip.offset} ")


def check_position(skip: Skip, at: api.GroupOffset, position: int) -> None:
    """Raise Failure unless the group is still at a position."""
    if at.offset != position:
        raise _elsewhere(skip, f"the position of {skip.group} in {skip.partition} is {at.offset}, not {position}")


def _elsewhere(skip: Skip, problem: str, *advice: str) -> Failure:
    why = f"`ottla group why {skip.group}` shows the record at the position."
    return Failure(f"{problem}: nothing was skipped", *advice, why)


def read_record(consumer: clients.Consumer, skip: Skip, position: int) -> clients.Record:
    """Return the record to skip. Raises Failure if the first one at or after the position is another one.

    Transactions and compaction leave gaps, so the record's offset may be higher than the position.
    """
    if position > skip.offset:
        raise _elsewhere(skip, f"the position of {skip.group} in {skip.partition} is {position}, not {skip.offset}")
    record = _read_first(consumer, skip, position)
    if record.offset != skip.offset:
        raise _elsewhere(
            skip,
            f"the first record of {skip.partition} from the position {position} on is {record.offset}, "
            f"not {skip.offset}",
            f"If the group fails at it, name {skip.partition.topic}/{skip.partition.partition}@{record.offset}; "
            "if the group reads uncommitted records, --read-uncommitted.",
        )
    return record


def _read_first(consumer: clients.Consumer, skip: Skip, position: int) -> clients.Record:
    consumer.assign([skip.partition])
    consumer.seek(skip.partition, position)
    deadline_ms = units.now_ms() + 1000 * READ_S
    advice = f"`ottla group why {skip.group}` explains it."
    try:
        while (left_ms := deadline_ms - units.now_ms()) > 0:
            for record in consumer.poll(left_ms / 1000):
                return record
    except ClientError as error:
        text = " ".join(str(error).split())
        raise Failure(f"the record {skip.partition}@{position} cannot be read: {text}", advice) from error
    raise Failure(f"there is no committed record at or after {skip.partition}@{position}", advice)


def write_skip(
    producer: clients.Producer, admin: api.Admin, skip: Skip, record: clients.Record, audit: Audit, *, position: int
) -> TopicPartition:
    """Write the dead letter and the next offset in one transaction; returns the partition of the letter.

    `position` is the group's when the record was read. Raises Failure, and changes nothing, if the group has members or
    another position now. Metadata of other programs is kept.
    """
    metadata = read_position(admin, skip).metadata
    if not metadata or metadata.startswith(_MARK):
        metadata = _metadata(skip, audit)
    next_offset = OffsetAndMetadata(record.offset + 1, metadata=metadata)
    timestamp_ms = record.timestamp if record.timestamp >= 0 else None
    with producer.transaction():
        sent = producer.send(
            skip.to, record.value, record.key, timestamp_ms=timestamp_ms, headers=letter_headers(skip, record, audit)
        )
        try:
            letter = sent.result(ACKNOWLEDGED_S)
        except ClientError as error:
            text = " ".join(str(error).split())
            raise Failure(
                f"the dead letter cannot be written to {skip.to}: {text}", "The group was not moved."
            ) from error
        producer.send_offsets_to_transaction({skip.partition: next_offset}, GroupMetadata(skip.group))
        check_position(skip, read_position(admin, skip), position)
    return TopicPartition(letter.topic, letter.partition)


def letter_headers(skip: Skip, record: clients.Record, audit: Audit) -> list[tuple[str, bytes | None]]:
    """Return the headers of the dead letter: the record's, and Kafka Connect's (KIP-298) with the group and the audit.

    All of the names begin with Connect's prefix, so that a redrive removes them.
    """
    about: Mapping[str, Any] = {
        "topic": skip.partition.topic,
        "partition": skip.partition.partition,
        "offset": record.offset,
        "connector.name": skip.group,
        "task.id": 0,
        "stage": "TASK_PUT",
        "class.name": CLASS_NAME,
        "exception.class.name": "ottla.SkippedRecord",
        "exception.message": audit.reason,
        "skipped.by": audit.user,
        "skipped.at": audit.time,
    }
    added = [(f"{_PREFIX}{name}", str(value).encode(errors="replace")) for name, value in about.items()]
    return [*record.headers, *added]


def _metadata(skip: Skip, audit: Audit) -> str:
    """Return the audit as the metadata of the committed offset, which also shows that the record was skipped."""
    text = f"{_MARK}{skip.offset} to {skip.to} by {audit.user} at {audit.time}: {audit.reason}"
    return text.encode(errors="replace")[:_MOST_METADATA].decode(errors="ignore")
