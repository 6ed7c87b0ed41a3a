"""Consumer instances: one consumer of the Kafka protocol for each, with the credentials of the user who created it.

- Only that user can use an instance: for another user it does not exist.
- An instance ends after `consumer.instance.timeout.ms` without a request; its consumer leaves the group.
- Reads at the same time share the records: each record is in one answer, and each read ends at its own time.
- The records of an answer count as processed at the next read or commit, or when the instance is deleted, but not when
  it ends by its timeout. With auto-commit, a program that died reads its last answer again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.clients import AsyncConsumer
from ottla.clients.consumer import Record
from ottla.clients.errors import ClientError
from ottla.common.ids import TopicPartition
from ottla.rest.errors import overloaded, too_many_requests
from ottla.rest.pool import UserClients
from ottla.rest.settings import RestSettings
from ottla.rest.v2.media_types import Format
from ottla.web.errors import HttpError

logger = logging.getLogger(__name__)

INSTANCE_NOT_FOUND: Final = 40403
ALREADY_EXISTS: Final = 40902
_CLOSE_S: Final = 10.0

Bytes = Record[bytes, bytes]


class InstanceKey(NamedTuple):
    """The identity of an instance."""

    owner: str
    group: str
    name: str


@dataclass(frozen=True, slots=True)
class InstanceSettings:
    """Settings that the creator of an instance chose; times in seconds."""

    format: Format
    min_bytes: int
    """A read answers with more bytes than this; -1: at the end of its time."""
    request_timeout_s: float
    consumer: dict[str, object]


class ConsumerInstance:
    """One instance. `lock` serializes its polls and the changes of its position."""

    def __init__(self, key: InstanceKey, settings: InstanceSettings, consumer: AsyncConsumer[bytes, bytes]) -> None:
        self.key = key
        self.settings = settings
        self.consumer = consumer
        self.lock = asyncio.Lock()
        self.polled: deque[Bytes] = deque()
        """Records that no answer has had yet."""
        self.error: ClientError | None = None
        """The error of a poll whose read had records; the next read raises it."""
        self.is_closed = False
        self.uses = 0
        self.used_at = 0.0
        self._answered: dict[TopicPartition, int] = {}

    def note_answered(self, records: list[Bytes]) -> None:
        """Remember the records of an answer."""
        last: Bytes | None = None
        for record in records:
            # The records of a partition are adjacent, and have the same class.
            if last is not None and record.__class__ is not last.__class__:
                self._answered[last.topic_partition] = last.offset + 1
            last = record
        if last is not None:
            self._answered[last.topic_partition] = last.offset + 1

    def settle(self) -> None:
        """Count the records of all answers as processed."""
        assigned = set(self.consumer.assignment())
        for tp, offset in self._answered.items():
            if tp in assigned:
                # The position may have been reset since, because the log does not contain it any more.
                with contextlib.suppress(ValueError):
                    self.consumer.store_offsets({tp: offset})
        self._answered.clear()

    def forget(self, partitions: list[TopicPartition]) -> None:
        """Drop records of partitions whose position changes, or that belong to another member now."""
        dropped = set(partitions)
        self.polled = deque(record for record in self.polled if record.topic_partition not in dropped)
        for tp in dropped:
            self._answered.pop(tp, None)

    async def close(self, *, settled: bool) -> None:
        """Leave the group. `settled`: the records of all answers are processed."""
        if self.is_closed:
            return
        self.is_closed = True
        if settled:
            self.settle()
        await self.consumer.close(_CLOSE_S)


class Instances:
    """The instances of the proxy."""

    def __init__(self, settings: RestSettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._instances: dict[InstanceKey, ConsumerInstance] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._instances)

    def create(self, key: InstanceKey, settings: InstanceSettings, clients: UserClients) -> ConsumerInstance:
        """Create an instance. Raises HttpError, ConfigurationError."""
        if key in self._instances:
            text = "Consumer with specified consumer ID already exists in the specified consumer group."
            raise HttpError(409, ALREADY_EXISTS, text)
        if len(self._instances) + len(self._closing) >= self._settings.consumer_instances_max:
            raise overloaded(f"The proxy has {len(self._instances)} consumer instances, its limit.")
        own = sum(each.owner == key.owner for each in self._instances)
        if own >= self._settings.consumer_instances_per_user_max:
            raise too_many_requests(f"You have {own} consumer instances, the limit for a user: delete one.")
        instance = ConsumerInstance(key, settings, clients.consumer(settings.consumer))
        instance.used_at = self._clock()
        self._instances[key] = instance
        return instance

    def enter(self, key: InstanceKey) -> ConsumerInstance:
        """Return an instance for one request. Raises HttpError. Each call needs a `leave`."""
        instance = self._instances.get(key)
        if instance is None:
            raise instance_not_found()
        instance.uses += 1
        return instance

    def leave(self, instance: ConsumerInstance) -> None:
        """End a request of an instance."""
        instance.uses -= 1
        instance.used_at = self._clock()

    async def delete(self, key: InstanceKey) -> None:
        """Close an instance: its consumer leaves the group. Raises HttpError."""
        instance = self._instances.pop(key, None)
        if instance is None:
            raise instance_not_found()
        await self._close(instance, settled=True)

    def sweep(self) -> None:
        """Close the instances that no request has used for their time."""
        limit_s = self._settings.seconds("consumer_instance_timeout_ms")
        now = self._clock()
        for key, instance in list(self._instances.items()):
            if instance.uses == 0 and now - instance.used_at >= limit_s:
                logger.info("Closing consumer instance %s of group %s: it was idle", key.name, key.group)
                del self._instances[key]
                task = asyncio.create_task(self._close(instance, settled=False))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all instances."""
        instances = list(self._instances.values())
        self._instances.clear()
        await asyncio.gather(*(self._close(instance, settled=False) for instance in instances), *self._closing)

    async def _close(self, instance: ConsumerInstance, *, settled: bool) -> None:
        try:
            await instance.close(settled=settled)
        except ClientError as error:
            logger.warning("Closing consumer instance %s failed: %s", instance.key.name, error)


def instance_not_found() -> HttpError:
    """Return the error of an instance that does not exist, or belongs to another user."""
    return HttpError(404, INSTANCE_NOT_FOUND, "Consumer instance not found.")
