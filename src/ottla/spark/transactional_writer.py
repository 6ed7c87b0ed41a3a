"""Writes the rows of one task in one transaction, in Spark's Python workers; decision record 19 has the protocol.

A task without rows sends no request: no attempt of it writes anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from pyspark.taskcontext import TaskContext

from ottla.clients.admin import Admin
from ottla.clients.errors import BrokerError, ClientError, RequestTimedOut, UnsupportedByBroker
from ottla.clients.offsets import OffsetAndMetadata
from ottla.clients.producer import Producer
from ottla.common.errors import ErrorCode
from ottla.spark.batch_writer import SETTINGS, TaskRows, task_result
from ottla.spark.client_pool import ClientPool
from ottla.spark.exactly_once import (
    MARKERS,
    Attempt,
    ExactlyOnce,
    Marker,
    check_rows,
    has_written,
    identify,
    may_continue,
)
from ottla.spark.left_producers import Left, Place, Places
from ottla.spark.markers import PLACE, begin_run, read_marker
from ottla.spark.options import common_settings
from ottla.spark.write_plan import Plan, WriteFailed, Written

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

TRANSACTIONAL: Final[Mapping[str, object]] = {**SETTINGS, "transaction.timeout.ms": 900_000}
"""Defaults of the producer here: the longest transaction that a broker allows by default."""

Counts = dict[tuple[str, int], tuple[int, int]]


class SinkProducer:
    """A producer of the tasks of one sink, which a worker keeps from task to task."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        self.client: Producer[Any, Any] = Producer(settings)
        self.places = Places(settings)

    def close(self) -> None:
        """Abort an open transaction and close the producer."""
        self.client.close()


_producers: ClientPool[SinkProducer] = ClientPool(SinkProducer)
_admins: ClientPool[Admin] = ClientPool(Admin)


def write_task_once(plan: Plan, once: ExactlyOnce, batches: Iterator[pa.RecordBatch]) -> Written:
    """Write the rows of one task, unless an earlier attempt has. Raises SinkError, WriteFailed, ExactlyOnceError."""
    context = TaskContext.get()
    if context is None:
        raise WriteFailed("exactlyOnce needs a Spark task")
    attempt = identify(once, context.partitionId(), context.getLocalProperty, context.attemptNumber())
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return task_result({})
    # All tasks of a sink share the producers of a worker, one after the other: the less memory, the less it costs.
    settings = {**TRANSACTIONAL, **plan.client, "transactional.id": attempt.write_name}
    with _explained(attempt), _producers.client(settings) as sink, closing(sink.places.of_task(attempt.task)) as place:
        producer = sink.client
        marker = _begin(producer, plan, attempt, place)
        is_first = marker.run != attempt.run
        rows, written = chain((first,), batches), Counts()
        if has_written(attempt, marker):
            marker = _skip(producer, attempt, marker, rows)
        else:
            marker, written = _write(producer, plan, attempt, rows)
        identity = producer.leave_transactions()
        if identity is not None:
            place.leave(Left(identity, marker))
    return task_result(written, attempt.write_name, is_first_of_run=is_first and attempt.is_lasting)


def _begin(producer: Producer[Any, Any], plan: Plan, attempt: Attempt, place: Place) -> Marker:
    """Return the marker of the task, final because no earlier attempt can commit any more."""
    left = place.take()
    if left is not None and may_continue(attempt, left.marker):
        producer.continue_transactions(left.identity)
        return left.marker
    with _admins.client(common_settings(plan.client)) as admin:
        producer.init_transactions(transactional_id=attempt.transactional_id)
        marker = read_marker(admin, attempt)
        if marker.run != attempt.run:
            begin_run(admin, attempt)
    return marker


def _write(
    producer: Producer[Any, Any], plan: Plan, attempt: Attempt, batches: Iterator[pa.RecordBatch]
) -> tuple[Marker, Counts]:
    producer.begin_transaction()
    task = TaskRows(producer, plan)
    for batch in batches:
        task.take(batch)
    task.send()
    marker = Marker(attempt.batch + 1, attempt.run, attempt.write, task.rows, attempt.layout)
    try:
        # The producer ends the transaction after all rows are acknowledged: one wait for its thread instead of two.
        _commit(producer, attempt, marker)
    except ClientError as error:
        is_early = isinstance(error, RequestTimedOut) and not task.is_acknowledged
        task.finish()  # The error of a row says more than its transaction's error.
        if not is_early:
            raise
        _commit(producer, attempt, marker)  # Continues the first call, whose time the rows took.
    task.finish()
    return marker, task.written


def _skip(producer: Producer[Any, Any], attempt: Attempt, marker: Marker, batches: Iterator[pa.RecordBatch]) -> Marker:
    """Read the input of a task that has written: Spark's state stores commit only what their task has read."""
    check_rows(attempt, marker, sum(batch.num_rows for batch in batches))
    if marker.run != attempt.run:
        # So that a second write with this name is noticed in this run, too.
        marker = replace(marker, run=attempt.run, write=attempt.write)
        producer.begin_transaction()
        _commit(producer, attempt, marker)
    return marker


def _commit(producer: Producer[Any, Any], attempt: Attempt, marker: Marker) -> None:
    offsets = {PLACE: OffsetAndMetadata(marker.batches, metadata=marker.metadata)}
    producer.commit_transaction(offsets=offsets, group=attempt.transactional_id)


@contextmanager
def _explained(attempt: Attempt) -> Iterator[None]:
    """Convert errors of the clients to a WriteFailed that names the task, and the setting or permission to change."""
    try:
        yield
    except ClientError as error:
        raise WriteFailed(
            f"Task {attempt.task} of batch {attempt.batch} ({attempt.transactional_id!r}): {error}{_advice(error)}"
        ) from error


def _advice(error: ClientError) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UnsupportedByBroker):
            return ". exactlyOnce needs brokers with transactions (Kafka 3.0 or newer)"
        if isinstance(cause, BrokerError) and cause.code in _ADVICE:
            return f". {_ADVICE[cause.code]}"
        cause = cause.__cause__
    return ""


_FENCED: Final = (
    "Another attempt of this task or another run of this query has started, or the task took longer than "
    "kafka.transaction.timeout.ms"
)
_ADVICE: Final = {
    ErrorCode.PRODUCER_FENCED: _FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH: _FENCED,
    ErrorCode.INVALID_TXN_STATE: _FENCED,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "Set kafka.transaction.timeout.ms to at most transaction.max.timeout.ms of the brokers"
    ),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "The user needs Write and Describe on transactional ids with the prefix of the option transactionalIdPrefix"
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (
        "The user needs Read on groups with the prefix of the option transactionalIdPrefix"
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (
        f"The user needs Read on the topic {MARKERS!r}, and Write on the topics of the rows"
    ),
}
