"""The program's calls of a transaction: their arguments, waiting for them, and the `with` statement."""

from __future__ import annotations

import asyncio
import logging
from _thread import LockType, allocate_lock
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ottla.clients.errors import ClientError, ConfigurationError, ProducerUnusable, RequestTimedOut, TransactionFailed
from ottla.clients.offsets import GroupMetadata, OffsetAndMetadata
from ottla.clients.producer.transaction_requests import OffsetsOfGroup
from ottla.clients.producer.transactions import Call
from ottla.clients.producer.waiting import settle
from ottla.common.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.clients.consumer import AsyncConsumer, Consumer
    from ottla.clients.producer.asynchronous import AsyncProducer
    from ottla.clients.producer.producer import Producer

logger = logging.getLogger("ottla.clients.producer")


def offsets_of_group(offsets: Mapping[Any, int | OffsetAndMetadata], group: str | GroupMetadata) -> OffsetsOfGroup:
    """Check the arguments of `send_offsets_to_transaction`. Raises ValueError, TypeError and ConfigurationError."""
    member = GroupMetadata(group) if isinstance(group, str) else group
    if not isinstance(member, GroupMetadata):
        raise TypeError(f"The group must be a group id or the group_metadata() of a consumer, not {group!r}")
    if not member.group_id:
        raise ConfigurationError("Offsets need a group: create the consumer with a group_id, or pass a group id")
    rows = {
        TopicPartition(*tp): (row if isinstance(row, OffsetAndMetadata) else OffsetAndMetadata(row)).checked()
        for tp, row in offsets.items()
    }
    return OffsetsOfGroup(*member, rows)


def wait_for_call(call: Call, lock: LockType, timeout_s: float) -> None:
    """Block until the call is done, and raise its error. Raises RequestTimedOut; `lock` is that of the core."""
    done = allocate_lock()
    done.acquire()
    with lock:
        if call.done:
            done.release()
        else:
            call.waiters.append(done.release)
    if not done.acquire(timeout=timeout_s):
        raise _timed_out(timeout_s)
    if call.error is not None:
        raise call.error


async def wait_for_call_async(call: Call, lock: LockType, timeout_s: float) -> None:
    """As `wait_for_call`, on the producer's loop."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    with lock:
        if call.done:
            settle(done)
        else:
            call.waiters.append(lambda: settle(done))
    try:
        async with asyncio.timeout(timeout_s):
            await done
    except TimeoutError:
        raise _timed_out(timeout_s) from None
    if call.error is not None:
        raise call.error


def wait_for_last_call(call: Call, lock: LockType, timeout_s: float) -> None:
    """Block until an abort or commit has its outcome, while the producer closes. A failure is logged."""
    try:
        wait_for_call(call, lock, timeout_s)
    except ClientError as error:
        _report_open_transaction(error)


async def wait_for_last_call_async(call: Call, lock: LockType, timeout_s: float) -> None:
    """As `wait_for_last_call`, on the producer's loop."""
    try:
        await wait_for_call_async(call, lock, timeout_s)
    except ClientError as error:
        _report_open_transaction(error)


def _report_open_transaction(error: ClientError) -> None:
    logger.warning(
        "The transaction had no outcome when the producer was closed, the broker aborts it after "
        "transaction.timeout.ms unless it is committed already: %s",
        error,
    )


def _timed_out(timeout_s: float) -> RequestTimedOut:
    return RequestTimedOut(
        f"No outcome after {timeout_s:g} s; the producer keeps trying: make the same call again to wait for it"
    )


def check_consumer(consumer: Consumer[Any, Any] | AsyncConsumer[Any, Any] | None) -> None:
    """Raise ConfigurationError for a consumer that commits by itself: also the offsets of an aborted transaction."""
    if consumer is not None and consumer.auto_commits:
        raise ConfigurationError(
            "enable.auto.commit is true: the consumer would commit offsets whose transaction may be aborted, and their"
            " records would be skipped. Create it with enable_auto_commit=False: the transaction commits its offsets"
        )


class TransactionScope:
    """A transaction in a `with` statement: committed at its end, aborted after an exception.

    The offsets of a consumer are committed in it; after an abort the consumer returns to its committed offsets.
    """

    def __init__(self, producer: Producer[Any, Any], consumer: Consumer[Any, Any] | None) -> None:
        check_consumer(consumer)
        self._producer = producer
        self._consumer = consumer

    def __enter__(self) -> None:
        self._producer.begin_transaction()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._producer.in_transaction:
            return
        if error is not None:
            self._abort(error)
            return
        try:
            if self._consumer is not None:
                offsets, group = self._consumer.offsets_to_commit(), self._consumer.group_metadata()
                self._producer.send_offsets_to_transaction(offsets, group)
        except BaseException as failed:
            self._abort(failed)
            raise
        try:
            self._producer.commit_transaction()
        except TransactionFailed as failed:
            self._abort(failed)
            raise

    def _abort(self, error: BaseException) -> None:
        try:
            self._producer.abort_transaction()
        except ClientError as failed:
            if supersedes(failed, error):
                raise
        finally:
            if self._consumer is not None:
                self._consumer.seek_to_committed()


class AsyncTransactionScope:
    """As `TransactionScope`, in an `async with` statement."""

    def __init__(self, producer: AsyncProducer[Any, Any], consumer: AsyncConsumer[Any, Any] | None) -> None:
        check_consumer(consumer)
        self._producer = producer
        self._consumer = consumer

    async def __aenter__(self) -> None:
        await self._producer.begin_transaction()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._producer.in_transaction:
            return
        if error is not None:
            await self._abort(error)
            return
        try:
            if self._consumer is not None:
                offsets, group = self._consumer.offsets_to_commit(), self._consumer.group_metadata()
                await self._producer.send_offsets_to_transaction(offsets, group)
        except BaseException as failed:
            await self._abort(failed)
            raise
        try:
            await self._producer.commit_transaction()
        except TransactionFailed as failed:
            await self._abort(failed)
            raise

    async def _abort(self, error: BaseException) -> None:
        try:
            await self._producer.abort_transaction()
        except ClientError as failed:
            if supersedes(failed, error):
                raise
        finally:
            if self._consumer is not None:
                self._consumer.seek_to_committed()


def supersedes(failed: ClientError, error: BaseException) -> bool:
    """Whether the program must hear of the failed abort rather than of the error that led to it.

    An abort that failed leaves a producer to close, or a call to repeat. But an interrupt stays an interrupt, and an
    error that says to close the producer stays.
    """
    return isinstance(error, Exception) and not isinstance(error, ProducerUnusable) and failed is not error
