"""Which records of a table a micro-batch sees: all before its *ends*, one offset for each partition of the topic.

The first task that reads the table in a micro-batch chooses the current ends of the partitions, and commits them to a
group, with the query and the number of the micro-batch as metadata. Every other read of the table in this micro-batch
uses these ends: other tasks, other scans of the plan, and all reads of a repetition after a failure or restart. The
driver has no part in it: Spark plans the reads of a Python source once in a query, but their tasks run in each
micro-batch.

Two tasks may choose at the same time. So the ends are committed in a transaction: a task commits only if no other task
has initialized the transactional id of the table since this task found that nothing was chosen. A task that is fenced
starts again, and finds the other task's ends.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.clients.admin import Admin, GroupOffset, OffsetSpec
from ottla.clients.errors import InvalidProducerEpoch, ProducerUnusable, TransactionFailed
from ottla.clients.offsets import OffsetAndMetadata
from ottla.clients.producer import Producer
from ottla.common.ids import TopicPartition
from ottla.spark.client_pool import ClientPool
from ottla.spark.exactly_once import BATCH_ID, QUERY_ID
from ottla.spark.offsets import Positions
from ottla.spark.options import common_settings

LIMIT_S: Final = 60.0
"""How long a task tries to choose ends while other tasks do, too."""
FIRST_TASK_S: Final = 0.2
"""How long the other tasks of a read leave the choice to its first task."""
POLL_S: Final = 0.01
_TIMEOUT_MS: Final = 60_000
_LOST: Final = (ProducerUnusable, TransactionFailed, InvalidProducerEpoch)


class TableError(Exception):
    """A table cannot be read as it was; the message says what to do."""


@dataclass(frozen=True)
class MicroBatch:
    """A micro-batch of a query."""

    query: str
    number: int

    @classmethod
    def of_task(cls, get_property: Callable[[str], str | None]) -> MicroBatch | None:
        """The micro-batch of the Spark task with these local properties; None outside of a streaming query."""
        query, number = get_property(QUERY_ID), get_property(BATCH_ID)
        return None if query is None or number is None else cls(query, int(number))


def metadata(number: int) -> str:
    """The text that is committed with the ends of a micro-batch."""
    return json.dumps({"batch": number})


def chosen_ends(committed: Mapping[TopicPartition, GroupOffset], number: int) -> Positions | None:
    """The ends that were chosen for a micro-batch; None if there are none yet.

    Raises TableError if a later micro-batch has chosen already: the checkpoint was replaced by an older one, or this
    task was cut off and continues.
    """
    ends: Positions = {}
    for tp, row in committed.items():
        found = _batch_of(row.metadata)
        if found == number:
            ends[tp] = row.offset
        elif found > number:
            raise TableError(
                f"Micro-batch {number} reads the table {tp.topic!r}, which micro-batch {found} of the query has read "
                "already. If the checkpoint was replaced by an older one, use a new checkpoint"
            )
    return ends or None


def _batch_of(metadata: str) -> int:
    """The micro-batch that committed an offset; -1 if the metadata is of another program."""
    try:
        return int(json.loads(metadata)["batch"])
    except (ValueError, KeyError, TypeError):
        return -1


@dataclass(frozen=True)
class TablePlace:
    """A table and how it is read. `client` are settings of a client, by Kafka's names: some are secret."""

    topic: str
    client: Mapping[str, str] = field(repr=False)
    isolation_level: str
    prefix: str | None = None
    """The beginning of the name of the group that has the ends; without one, each read has the current ends."""

    def group(self, batch: MicroBatch) -> str:
        """The group that has the ends of the last micro-batch of a query."""
        return f"{self.prefix}{batch.query}"


@dataclass(frozen=True)
class Extent:
    """The visible part of a table: the records of a topic from `firsts` to before `ends`."""

    topic_id: str
    firsts: Positions
    ends: Positions


class Claim:
    """The right to choose the ends of a table, until another task claims it."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._producer: Producer[Any, Any] = Producer(settings)
        self._is_ready = False
        self._last: tuple[MicroBatch, Positions] | None = None

    def choose(
        self, admin: Admin, place: TablePlace, batch: MicroBatch, partitions: Sequence[TopicPartition]
    ) -> Positions:
        """Return the ends of a micro-batch, and choose them if no task has. Raises ClientError, TableError.

        An error of `_LOST` means that another task has claimed the table meanwhile.
        """
        if self._last is not None and self._last[0] == batch:
            # The transaction with these ends may be committed, but not visible yet.
            return self._last[1]
        if not self._is_ready:
            self._producer.init_transactions()
            self._is_ready = True
            # After init_transactions no earlier claim can commit, so this is final.
            found = admin.list_group_offsets(place.group(batch), partitions, require_stable=True)
            ends = chosen_ends(found, batch.number)
            if ends is not None:
                return ends
        ends = current_ends(admin, place, partitions)
        self._producer.begin_transaction()
        rows = {tp: OffsetAndMetadata(end, metadata=metadata(batch.number)) for tp, end in ends.items()}
        self._producer.send_offsets_to_transaction(rows, place.group(batch))
        self._producer.commit_transaction()
        self._last = batch, ends
        return ends

    def close(self) -> None:
        """Close the producer."""
        self._producer.close()


_admins: ClientPool[Admin] = ClientPool(Admin)
_claims: ClientPool[Claim] = ClientPool(Claim)


def find_extent(place: TablePlace, batch: MicroBatch | None, task: int = 0, fixed: Positions | None = None) -> Extent:
    """Return what a task of this micro-batch reads: up to `fixed`, or without a micro-batch what exists now.

    `task` is the number of the task in the read. Raises TableError, ClientError.
    """
    with _admins.client(common_settings(place.client)) as admin:
        described = admin.describe_topic(place.topic)
        partitions = [TopicPartition(place.topic, each.partition) for each in described.partitions]
        if fixed is not None:
            ends = fixed
        elif batch is None or place.prefix is None:
            ends = current_ends(admin, place, partitions)
        else:
            ends = _ends_of_batch(admin, place, batch, partitions, task)
        found = admin.list_offsets(dict.fromkeys(ends, OffsetSpec.EARLIEST))
    return Extent(described.topic_id, {tp: row.offset for tp, row in found.items()}, ends)


def current_ends(admin: Admin, place: TablePlace, partitions: Iterable[TopicPartition]) -> Positions:
    """Return the offset after the last record of each partition that the table may see."""
    found = admin.list_offsets(
        dict.fromkeys(partitions, OffsetSpec.LATEST), read_committed=place.isolation_level == "read_committed"
    )
    return {tp: row.offset for tp, row in found.items()}


def _ends_of_batch(
    admin: Admin, place: TablePlace, batch: MicroBatch, partitions: list[TopicPartition], task: int
) -> Positions:
    group = place.group(batch)
    settings = {
        **common_settings(place.client),
        "transactional.id": f"{group}.{place.topic}",
        "transaction.timeout.ms": _TIMEOUT_MS,
    }
    started_s = time.monotonic()
    while True:
        # Ignores open transactions: a killed task's transaction would block this until it times out.
        ends = chosen_ends(admin.list_group_offsets(group, partitions), batch.number)
        if ends is not None:
            return ends
        waited_s = time.monotonic() - started_s
        if task and waited_s < FIRST_TASK_S:
            time.sleep(POLL_S)
            continue
        try:
            with _claims.client(settings) as claim:
                return claim.choose(admin, place, batch, partitions)
        except _LOST:
            if waited_s >= LIMIT_S:
                raise
            time.sleep(POLL_S * random.random())
