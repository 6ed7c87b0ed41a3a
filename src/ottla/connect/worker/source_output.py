"""Writes the records of a source task and its offsets: at least once, or exactly once (KIP-618).

At least once: offsets are written at intervals, of records that are acknowledged, and at once after a poll that returns
offsets alone. Power off: records after the last written offsets are sent again.

Exactly once: the producer is transactional. A transaction has the records of a poll, of an interval, or between two
ends that the connector asks for (`transaction.boundary`), and their offsets. Power off: an open transaction is aborted
by the next producer with the same id, a committed one is complete.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from ottla.clients.errors import ClientError, ConfigurationError
from ottla.clients.producer.producer import Delivery, Producer
from ottla.connect.api import SourceOffset
from ottla.connect.cluster.offset_records import canonical, value
from ottla.connect.errors import ConnectError, RetriableError
from ottla.connect.records import Position, SourceRecord
from ottla.connect.worker.conversion import Serialized, SerializedBatch
from ottla.connect.worker.environment import TaskEnvironment
from ottla.connect.worker.offset_store import OffsetStore
from ottla.connect.worker.steps import Step
from ottla.connect.worker.task_settings import SourceSettings
from ottla.connect.worker.transaction_boundaries import End, RequestedEnds

logger = logging.getLogger("ottla.connect.worker")
_CLOSE_S: Final = 5.0
_MAX_TRANSACTION_MS: Final = 900_000
_CONNECTOR_TRANSACTION_MS: Final = 300_000
_MOST_OPEN: Final = 0.75
"""The part of its timeout for which a transaction of the connector may be open: the broker aborts it at the end."""
Converted: TypeAlias = "tuple[SourceRecord, Serialized | SerializedBatch | None]"


class Offsets:
    """The latest offset of each source partition."""

    def __init__(self) -> None:
        self._rows: dict[bytes, SourceOffset] = {}
        self._known: dict[int, tuple[Position, bytes]] = {}

    def add(self, record: SourceRecord) -> None:
        """Take the offset of a record; records without a source partition have none."""
        partition = record.source_partition
        if partition is None:
            return
        # Connectors reuse the object of a partition; its JSON is made once.
        known = self._known.get(id(partition))
        if known is None or known[0] is not partition:
            if len(self._known) >= 10_000:
                self._known.clear()
            known = self._known[id(partition)] = partition, canonical(partition)
        self._rows[known[1]] = SourceOffset(partition, record.source_offset)

    def update(self, other: Offsets) -> None:
        """Take newer offsets."""
        self._rows |= other._rows

    def rows(self) -> list[SourceOffset]:
        """Return all offsets."""
        return list(self._rows.values())

    def __bool__(self) -> bool:
        return bool(self._rows)


class Output(Protocol):
    """The destination of a task's records."""

    def start(self) -> None:
        """Connect. After it no older task writes. Raises ClientError."""
        ...

    def write(self, records: Sequence[Converted]) -> None:
        """Write the records of one poll. Raises ClientError."""
        ...

    def tick(self, *, now: bool = False) -> None:
        """Commit what is due; `now`: all. Raises ClientError."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether records are written that no commit covers yet, since the connector has not asked for it."""
        ...

    def close(self) -> None:
        """Release the clients; records that are not committed may be lost, and are read again."""
        ...


class _Sent(NamedTuple):
    """The records of a poll, until all are acknowledged."""

    offsets: Offsets
    deliveries: list[Delivery]


class AtLeastOnce:
    """Writes offsets of acknowledged records at intervals."""

    def __init__(self, environment: TaskEnvironment, commit: Any, store: OffsetStore) -> None:
        self._environment = environment
        self._commit = commit
        self._store = store
        self._sent: deque[_Sent] = deque()
        self._due = Offsets()
        self._flushed_at = time.monotonic()
        self._producer: Producer[Any, Any] | None = None
        self._offsets_producer: Producer[Any, Any] | None = None

    def start(self) -> None:
        """Create the producer."""
        self._producer = self._environment.clients.producer(client_id=f"connector-producer-{self._environment.task}")

    def write(self, records: Sequence[Converted]) -> None:
        """Send records, and look at the outcomes of earlier ones. Raises the error of a delivery."""
        assert self._producer is not None
        offsets = Offsets()
        deliveries = _send_all(self._producer.send, records, offsets)
        if records and not any(record.topic for record, _ in records):
            self._flushed_at = -math.inf
        self._sent.append(_Sent(offsets, deliveries))
        self._environment.reached(Step.AFTER_SEND, self._environment.task)
        self._settle()

    def _settle(self) -> None:
        """Take the offsets of polls from the front whose records are all acknowledged."""
        while self._sent and all(each.done() for each in self._sent[0].deliveries):
            sent = self._sent.popleft()
            for each in sent.deliveries:
                error = each.exception()
                if error is not None:
                    raise error
            self._due.update(sent.offsets)
            self._environment.control.succeeded()

    def tick(self, *, now: bool = False) -> None:
        """Write offsets if it is time. Raises RetriableError if records are not acknowledged in time."""
        self._settle()
        worker = self._environment.worker
        if not now and time.monotonic() - self._flushed_at < worker.flush_interval_ms / 1000:
            return
        assert self._producer is not None
        timeout_s = worker.flush_timeout_ms / 1000
        left = self._producer.flush(timeout_s)
        self._settle()
        if now and left:
            raise RetriableError(f"{left} records were not acknowledged within {timeout_s:g} s")
        self._flushed_at = time.monotonic()
        if not self._due:
            return
        rows, self._due = self._due.rows(), Offsets()
        self._write_offsets(rows, timeout_s)
        self._environment.reached(Step.AFTER_COMMIT, self._environment.task)
        self._commit(rows)
        self._environment.reached(Step.AFTER_TASK_COMMIT, self._environment.task)

    def _write_offsets(self, rows: list[SourceOffset], timeout_s: float) -> None:
        if self._offsets_producer is None:
            self._offsets_producer = self._environment.clients.producer(
                client_id=f"connector-offsets-{self._environment.task}"
            )
        name = self._environment.task.connector
        records = [(self._store.key(name, each.partition), value(each.offset)) for each in rows]
        sent = [self._offsets_producer.send(self._store.topic, data, key) for key, data in records]
        self._environment.reached(Step.AFTER_OFFSETS, self._environment.task)
        for each in sent:
            each.result(timeout_s)

    @property
    def is_open(self) -> bool:
        """False: offsets are committed at any time."""
        return False

    def close(self) -> None:
        """Close the producers."""
        for producer in (self._producer, self._offsets_producer):
            if producer is not None:
                producer.close(_CLOSE_S)


class ExactlyOnce:
    """Writes records and offsets in transactions."""

    def __init__(
        self,
        environment: TaskEnvironment,
        commit: Any,
        store: OffsetStore,
        settings: SourceSettings,
        requested: RequestedEnds | None = None,
    ) -> None:
        """`requested`: the connector defines the ends of transactions."""
        self._environment = environment
        self._commit = commit
        self._store = store
        interval = settings.boundary_interval_ms
        self._interval_ms = environment.worker.flush_interval_ms if interval is None else interval
        self._is_interval = settings.boundary == "interval"
        self._requested = requested
        self._most_open_s = 0.0
        self._offsets = Offsets()
        self.is_open = False
        """Whether a transaction is open."""
        self._began_at = 0.0
        self._producer: Producer[Any, Any] | None = None

    def start(self) -> None:
        """Fence older producers, and make sure that this task is not an older one itself."""
        environment = self._environment
        environment.check_generation()
        needed: dict[str, object] = {
            "transactional_id": transactional_id(environment.worker.group_id, *environment.task),
            "client_id": f"connector-producer-{environment.task}",
        }
        if self._is_interval:
            needed["transaction_timeout_ms"] = min(_MAX_TRANSACTION_MS, self._interval_ms + 60_000)
        elif self._requested is not None:
            needed["transaction_timeout_ms"] = _CONNECTOR_TRANSACTION_MS
        self._producer = environment.clients.producer(**needed)
        if self._producer.failure is not None:
            raise ConfigurationError(str(self._producer.failure))
        if self._requested is not None:
            timeout_ms = environment.clients.transaction_timeout_ms(_CONNECTOR_TRANSACTION_MS)
            self._most_open_s = timeout_ms / 1000 * _MOST_OPEN
        self._producer.init_transactions()
        environment.check_generation()

    def write(self, records: Sequence[Converted]) -> None:
        """Add the records of a poll to the transaction, and end it where its boundary is."""
        if self._requested is None:
            self._send(records)
            if not self._is_interval:
                self._end()
            return
        begin = 0
        for number, end in self._requested.ends([each for each, _ in records]):
            self._send(records[begin:number])
            begin = number
            if end is End.COMMIT:
                self._end()
            elif end is End.ABORT:
                self._abort()
                self._end()

    def _send(self, records: Sequence[Converted]) -> None:
        assert self._producer is not None
        if not records:
            return
        self._begin()
        _send_all(self._producer.send, records, self._offsets)
        self._environment.reached(Step.AFTER_SEND, self._environment.task)

    def _begin(self) -> None:
        assert self._producer is not None
        if not self.is_open:
            self._producer.begin_transaction()
            self.is_open, self._began_at = True, time.monotonic()

    def tick(self, *, now: bool = False) -> None:
        """Commit the transaction if its interval is over, or if the connector has asked for it after an empty poll."""
        if self._requested is not None:
            self.write(())
            self._check_age()
        elif self.is_open and (now or time.monotonic() - self._began_at >= self._interval_ms / 1000):
            self._end()

    def _check_age(self) -> None:
        """Raise ConnectError before the broker aborts a transaction that the connector does not end."""
        if self.is_open and time.monotonic() - self._began_at > self._most_open_s:
            raise ConnectError(
                f"The connector has not ended its transaction for {self._most_open_s:g} s, three quarters of "
                "transaction.timeout.ms: set producer.override.transaction.timeout.ms to more, or "
                "transaction.boundary=poll to write a large transaction of the source in parts."
            )

    def _abort(self) -> None:
        """Discard the records of the transaction, but not their offsets: `_end` commits those."""
        if not self.is_open:
            return
        assert self._producer is not None
        logger.info("Aborting a transaction of %s: the connector asked for it", self._environment.task)
        self._producer.abort_transaction()
        self.is_open = False

    def _end(self) -> None:
        producer, environment = self._producer, self._environment
        assert producer is not None
        rows = self._offsets.rows()
        if not rows and not self.is_open:
            return
        self._begin()  # offsets of an aborted transaction
        for each in rows:
            producer.send(
                self._store.topic, value(each.offset), self._store.key(environment.task.connector, each.partition)
            )
        environment.reached(Step.AFTER_OFFSETS, environment.task)
        producer.commit_transaction()
        self.is_open, self._offsets = False, Offsets()
        environment.control.succeeded()
        environment.reached(Step.AFTER_COMMIT, environment.task)
        self._commit(rows)
        environment.reached(Step.AFTER_TASK_COMMIT, environment.task)

    def close(self) -> None:
        """Abort an open transaction, so that readers need not wait for its timeout, and close the producer."""
        if self._producer is None:
            return
        if self.is_open:
            with suppress(ClientError):  # the next producer with this id aborts it
                self._producer.abort_transaction(_CLOSE_S)
        self._producer.close(_CLOSE_S)


def transactional_id(group_id: str, connector: str, task: int) -> str:
    """Return the id of the transactions of a task, as stock has it, whose ACLs then fit."""
    return f"{group_id}-{connector}-{task}"


def _send_all(send: Any, records: Sequence[Converted], offsets: Offsets) -> list[Delivery]:
    """Send records, and add their offsets: of consecutive records from one source partition just the last."""
    deliveries: list[Delivery] = []
    append = deliveries.append
    last: SourceRecord | None = None
    for record, data in records:
        if last is not None and record.source_partition is not last.source_partition:
            offsets.add(last)
        last = record
        if type(data) is Serialized and not data.headers:  # a call less for the records of most connectors
            topic, partition, key, record_value, _, timestamp = data
            append(send(topic, record_value, key, partition=partition, timestamp_ms=timestamp))
        elif data is not None:
            deliveries += _send(send, data)
    if last is not None:
        offsets.add(last)
    return deliveries


def _send(send: Any, data: Serialized | SerializedBatch) -> list[Delivery]:
    if isinstance(data, SerializedBatch):
        topic, partition, key, values, timestamp = data
        return [send(topic, each, key, partition=partition, timestamp_ms=timestamp) for each in values]
    topic, partition, key, record_value, headers, timestamp = data
    if headers:
        return [send(topic, record_value, key, partition=partition, timestamp_ms=timestamp, headers=headers)]
    return [send(topic, record_value, key, partition=partition, timestamp_ms=timestamp)]
