"""Appends to the topic of schemas on behalf of the primary, so that two primaries cannot both succeed.

Fencing. All nodes of a group use one transactional id. A new primary calls InitProducerId, after which the broker
refuses what an older primary sends, and aborts its open transaction. Then the primary appends a NOOP record and waits
until its reader has applied it: the state contains everything that older primaries committed. Only then it changes
anything, so that an id cannot be used twice.

Group commit. Changes that arrive during a transaction share the next one. They are built one after the other, each on
the state that the previous ones lead to. The state must not show records that are not committed: a client could use an
id that belongs to another schema after a failure. So new versions are applied, and removed again before the next event
loop iteration; the reader applies them when they are committed. A change with other records ends its group.

Control records. The last record of the topic must be an ordinary one, since other registries wait until they have read
the last offset. So a NOOP record follows outside of the transaction when no change waits.

An error in a transaction leaves its outcome unknown, and may mean that another primary has fenced this one. The term
ends then, and the next election decides. A primary that fenced itself and went on could fence the new one instead.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from ottla.clients import AsyncProducer
from ottla.clients.errors import ClientError
from ottla.registry.errors import RegistryError, operation_timed_out, schema_too_large, store_error
from ottla.registry.records import NOOP, ContextKey, Record, SchemaKey, decode_key, encode_key

if TYPE_CHECKING:
    from ottla.registry.state import State
    from ottla.registry.topic import LogSettings

logger = logging.getLogger(__name__)

S = TypeVar("S")
R = TypeVar("R")

Build: TypeAlias = Callable[[S], tuple[Sequence[Record], R]]

_LARGEST_GROUP: Final = 200
_LARGEST_GROUP_BYTES: Final = 512 * 1024
# A batch has a header, and each record its lengths.
_BATCH_OVERHEAD_BYTES: Final = 256
_NOOP_AFTER_S: Final = 0.1
_RETRY_S: Final = 0.2
_LONGEST_RETRY_S: Final = 5.0
_CLOSE_S: Final = 1.0
_TRANSACTION_TIMEOUT_MS: Final = 10_000


class NotPrimary(Exception):
    """This node must not append: the request is for the primary."""


class _Change:
    """A change that waits. `build` runs when the previous changes are applied."""

    __slots__ = ("build", "done", "result")

    def __init__(self, build: Build[State, Any]) -> None:
        self.build = build
        self.done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.result: Any = None

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)

    def succeed(self) -> None:
        if not self.done.done():
            self.done.set_result(self.result)


class _Group(NamedTuple):
    """Changes of one transaction and their records."""

    changes: list[_Change]
    records: list[Record]


class Writer:
    """One term of a primary: `start`, then `change`, then `close`."""

    def __init__(
        self,
        settings: LogSettings,
        largest_bytes: int,
        state: State,
        reach: Callable[[int], Awaitable[None]],
        ended: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._largest_bytes = largest_bytes - _BATCH_OVERHEAD_BYTES
        self._state = state
        self._reach = reach
        self._ended = ended
        self._waiting: deque[_Change] = deque()
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._owes_noop = False
        self.is_ready = False
        """Whether the previous primary is fenced, and the state has everything that it wrote."""

    @property
    def is_closed(self) -> bool:
        """Whether the term has ended."""
        return self._is_closed

    def start(self) -> None:
        """Begin to fence the previous primary."""
        self._task = asyncio.create_task(self._run(), name="write schemas")
        self._task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        """After a defect, the next election begins another term."""
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("Unhandled error of the primary", exc_info=error)
            self._ended()

    async def close(self) -> None:
        """Fail the changes that are not committed with NotPrimary."""
        self._end()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _end(self) -> None:
        self._is_closed, self.is_ready = True, False
        while self._waiting:
            self._waiting.popleft().fail(NotPrimary())

    async def change(self, build: Build[State, R]) -> R:
        """Append what `build` returns; see `log.SchemaLog.change`."""
        if self._is_closed:
            raise NotPrimary
        change = _Change(build)
        self._waiting.append(change)
        self._arrived.set()
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                result: R = await change.done
                return result
        except TimeoutError as error:
            raise operation_timed_out("Register operation timed out: the record may still be written") from error

    # -- one term -----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        pause_s = _RETRY_S
        try:
            while True:
                try:
                    await self._term()
                except ClientError as error:
                    if self.is_ready:
                        logger.warning("This node is not the primary until the next election: %s", error)
                        self._end()
                        self._ended()
                        return
                    logger.warning("Cannot become the primary, trying again: %s", error)
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_RETRY_S)
        finally:
            self._end()

    async def _term(self) -> None:
        """Fence, catch up, and append until an error."""
        clients, topic = self._settings.clients, self._settings.topic.name
        plain: AsyncProducer[bytes, bytes] = AsyncProducer({**clients, "acks": "all", "linger.ms": 0})
        producer: AsyncProducer[bytes, bytes] = AsyncProducer(
            {
                **clients,
                "acks": "all",
                "linger.ms": 0,
                "transactional.id": self._settings.transactional_id,
                "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
            }
        )
        try:
            await producer.init_transactions(self._settings.init_timeout_s)
            await self._catch_up(plain)
            self.is_ready = True
            logger.info("This node is the primary: it has fenced earlier ones and read %s to its end", topic)
            while True:
                await self._next_change(plain)
                group = self._group()
                if group.records:
                    await self._commit(producer, group)
                for change in group.changes:
                    change.succeed()
        finally:
            await producer.close(_CLOSE_S)
            await plain.close(_CLOSE_S)

    async def _catch_up(self, plain: AsyncProducer[bytes, bytes]) -> None:
        offset = await self._append_noop(plain)
        await self._reach(offset)

    async def _append_noop(self, plain: AsyncProducer[bytes, bytes]) -> int:
        delivery = await plain.send(self._settings.topic.name, NOOP.value, NOOP.key, partition=0)
        return (await delivery).offset

    async def _next_change(self, plain: AsyncProducer[bytes, bytes]) -> None:
        """Wait for a change. If none arrives soon after a commit, append a NOOP record."""
        if self._waiting:
            return
        self._arrived.clear()
        if self._owes_noop:
            try:
                async with asyncio.timeout(_NOOP_AFTER_S):
                    await self._arrived.wait()
            except TimeoutError:
                await self._append_noop(plain)
                self._owes_noop = False
        await self._arrived.wait()

    async def _commit(self, producer: AsyncProducer[bytes, bytes], group: _Group) -> None:
        """Append the records of a group in one transaction, and wait until they are applied."""
        topic = self._settings.topic.name
        self._owes_noop = True
        try:
            await producer.begin_transaction()
            deliveries = [await producer.send(topic, record.value, record.key, partition=0) for record in group.records]
            await producer.commit_transaction(self._settings.timeout_s)
            await self._reach((await deliveries[-1]).offset)
        except ClientError as error:
            # A schema that was parsed for the group may use a version that does not come back.
            self._state.parsed.clear()
            for change in group.changes:
                change.fail(store_error(f"The outcome of the write to {topic} is unknown: {error}"))
            raise

    # -- groups -------------------------------------------------------------------------------------------------

    def _group(self) -> _Group:
        """Build changes one after the other, without a visible effect on the state. Does not wait."""
        group = _Group([], [])
        size = 0
        preview = _Preview(self._state)
        while self._waiting and len(group.changes) < _LARGEST_GROUP and size < _LARGEST_GROUP_BYTES:
            change = self._waiting.popleft()
            if change.done.done():
                continue
            records = self._built(change)
            if records is None:
                continue
            group.changes.append(change)
            group.records.extend(records)
            size += sum(map(_size, records))
            if self._waiting and not preview.apply(records):
                break
        preview.undo()
        return group

    def _built(self, change: _Change) -> Sequence[Record] | None:
        try:
            records, change.result = change.build(self._state)
        except RegistryError as error:
            change.fail(error)
            return None
        except Exception as error:  # noqa: BLE001 - its caller gets it; other changes must go on
            change.fail(error)
            return None
        if any(_size(record) > self._largest_bytes for record in records):
            change.fail(schema_too_large())
            return None
        return records


class _Preview:
    """New versions that are applied to the state, and removed again."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._next_offset = state.next_offset
        self._keys: list[SchemaKey | ContextKey] = []

    def apply(self, records: Sequence[Record]) -> bool:
        """Apply the records of a change; False, without an effect, if they are not only new versions."""
        keys = [key for key in map(self._new_key, records) if key is not None]
        if len(keys) < len(records):
            return False
        for record in records:
            self._state.apply(record.key, record.value, self._next_offset)
        self._keys += keys
        return True

    def _new_key(self, record: Record) -> SchemaKey | ContextKey | None:
        key = decode_key(record.key)
        if record.value is None:
            return None
        if isinstance(key, SchemaKey):
            known = self._state.version(key.subject, key.version, deleted=True)
            return key if known is None else None
        return key if isinstance(key, ContextKey) and not self._state.has_context(key.context) else None

    def undo(self) -> None:
        """Remove what was applied, the last one first. The ids remain used, which only leaves gaps after an error."""
        for key in reversed(self._keys):
            if isinstance(key, SchemaKey):
                self._state.discard(key)
            else:
                self._state.apply(encode_key(key), None, self._next_offset)
        self._state.next_offset = self._next_offset


def _size(record: Record) -> int:
    return len(record.key) + len(record.value or b"")
