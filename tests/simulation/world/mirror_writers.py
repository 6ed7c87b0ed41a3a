"""Idempotent and transactional producers of one cluster in a simulation of mirrors, and the promises to them.

Each has at most one batch or marker in flight, and sends it again until its outcome is known. The ids of producers
begin at 0 in each cluster. A value is `cluster/producer/number`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.common.completion import DONE, Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.log.transaction_marker import TransactionEnd
from ottla.partitions.partition import ACKS_ALL, Partition
from ottla.records import BatchProducer, encode_batch
from ottla.records.batch import TRANSACTIONAL

if TYPE_CHECKING:
    from ottla.log import AppendInfo
    from tests.simulation.world.mirrored_replicas import MirrorWorld

KEYS: Final = 5
# A client that loses records in an unclean election begins a new epoch.
_OUT_OF_STEP: Final = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.UNKNOWN_PRODUCER_ID,
)


class Transaction:
    """The values of a transaction, and how it ended."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.is_committed: bool | None = None
        """None as long as it is open, and if records or markers of it may be lost."""
        self.end_offset = -1
        """The offset of the acknowledged marker."""
        self.may_be_torn = False


class Promises:
    """The records and transactions that the active cluster has acknowledged, and that are not lost with reason."""

    def __init__(self) -> None:
        self.acknowledged: dict[bytes, tuple[int, bytes]] = {}
        """Offset and key by value."""
        self.transactions: list[Transaction] = []
        self.lost = 0
        self._order: dict[tuple[bytes, int], int] = {}
        """When a value was appended at an offset, as a number that counts the appends."""
        self._newest: dict[bytes, int] = {}
        """The newest append of each key."""

    def appended(self, value: bytes, key: bytes, offset: int) -> None:
        """A leader has appended the value, or has found it as a duplicate."""
        if (value, offset) not in self._order:
            self._order[value, offset] = self._newest[key] = len(self._order)

    def may_be_compacted(self, value: bytes, key: bytes, offset: int) -> bool:
        """Whether a record of the key was appended later, even if it was lost afterwards.

        A replica may have removed the value before it lost that record, and becomes the leader, or is copied.
        """
        return self._newest[key] > self._order[value, offset]

    def forget(self, end: int, survivors: dict[bytes, int] | None = None, *, tears: bool = False) -> None:
        """Records from the offset `end` on are lost; or all except `survivors`, whose offsets are by value.

        With `tears`, transactions may lose records and have a marker of their coordinator afterwards.
        """
        known = self.acknowledged.items()
        if survivors is None:
            lost = [value for value, (offset, _) in known if offset >= end]
        else:
            lost = [value for value, (offset, _) in known if survivors.get(value, -1) != offset]
        for value in lost:
            del self.acknowledged[value]
        self.lost += len(lost)
        for each in self.transactions:
            if each.end_offset < 0 or each.end_offset >= end:
                each.may_be_torn = each.may_be_torn or tears
                if each.is_committed is not None or tears:
                    each.is_committed = None


class _Pending:
    """A batch or a marker whose outcome is not known."""

    def __init__(self, values: list[tuple[bytes, bytes]], data: bytes = b"", end: TransactionEnd | None = None) -> None:
        self.values, self.data, self.end = values, data, end
        self.is_sent = False


class Writer:
    """One producer of one cluster."""

    def __init__(self, world: MirrorWorld, name: str, producer_id: int, promises: Promises) -> None:
        """Producers with odd ids have transactions."""
        self.world, self.name, self.producer_id, self.promises = world, name, producer_id, promises
        self.is_transactional = producer_id % 2 == 1
        self.is_stopping = self.is_refused = False
        self.is_heard = True
        """Whether acknowledgements count: not if the cluster is replaced by its copy."""
        self._epoch = self._sequence = self._number = 0
        self._pending: _Pending | None = None
        self._transaction: Transaction | None = None

    @property
    def is_idle(self) -> bool:
        """Whether it has stopped, and the outcome of all its records is known, perhaps with an open transaction."""
        return self.is_refused or (self.is_stopping and self._pending is None)

    def step(self, *, ends_transactions: bool = True) -> None:
        """Send something, if nothing waits for its outcome; a client also repeats a request without an answer."""
        if self.is_refused:
            return
        if self._pending is None:
            self._pending = self._next(ends_transactions=ends_transactions)
        if self._pending is not None and (not self._pending.is_sent or self.world.random.random() < 0.03):
            self._send(self._pending)

    def _next(self, *, ends_transactions: bool) -> _Pending | None:
        if self.is_stopping:
            ends = self._transaction is not None and ends_transactions
            return self._end(commit=self.world.random.random() < 0.6) if ends else None
        if self._transaction is not None and self.world.random.random() < 0.35:
            return self._end(commit=self.world.random.random() < 0.6)
        return self._batch()

    def _batch(self) -> _Pending:
        random = self.world.random
        values = []
        for _ in range(random.choice((1, 1, 2))):
            self._number += 1
            value = f"{self.name}/{self.producer_id}/{self._number}".encode()
            values.append((b"%d" % random.randrange(KEYS), value + b"." * random.choice((0, 60))))
        if self.is_transactional:
            if self._transaction is None:
                self._transaction = Transaction()
                self.promises.transactions.append(self._transaction)
            self._transaction.values += [value for _, value in values]
        rows = [(self.world.loop.wall_ms(), key, value, []) for key, value in values]
        producer = BatchProducer(self.producer_id, self._epoch, self._sequence)
        data = encode_batch(rows, producer=producer, attributes=TRANSACTIONAL if self.is_transactional else 0)
        return _Pending(values, bytes(data))

    def _end(self, *, commit: bool) -> _Pending:
        return _Pending([], end=TransactionEnd(self.producer_id, self._epoch, 0, commit=commit))

    # -- sending -------------------------------------------------------------------------------------------------

    def _send(self, pending: _Pending) -> None:
        leaders = [node.leads for node in self.world.nodes.values()]
        led = [each for each in leaders if each is not None]
        if not led:
            return
        partition = self.world.random.choice(led)
        pending.is_sent = True
        try:
            info = self._append(partition, pending)
        except KafkaError as error:
            self._failed(pending, error)
            return
        for at, (key, value) in enumerate(pending.values):
            self.promises.appended(value, key, info.first_offset + at)
        done: Completion[None] = partition.when_durable(info.last_offset + 1) or DONE
        done.on_done(lambda each: self._answered(pending, info, each))

    def _append(self, partition: Partition, pending: _Pending) -> AppendInfo:
        if pending.end is None:
            data = memoryview(bytearray(pending.data))
            return partition.append_produced(data, ACKS_ALL, self.world.loop.wall_ms(), is_verified=True)
        if partition.refusal is not None:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        return partition.append_marker(pending.end)

    def _failed(self, pending: _Pending, error: KafkaError) -> None:
        if self._pending is not pending:
            return
        pending.is_sent = False
        if error.code is ErrorCode.POLICY_VIOLATION:
            self.is_refused = True
        elif error.code in _OUT_OF_STEP:
            self._epoch, self._sequence, self._pending = self._epoch + 1, 0, None
            if self._transaction is not None:
                self._transaction.may_be_torn = True
                self._pending = self._end(commit=False)

    def _answered(self, pending: _Pending, info: AppendInfo, done: Completion[None]) -> None:
        if done.error is not None:
            pending.is_sent = False
            return
        if self.is_heard:
            for at, (key, value) in enumerate(pending.values):
                self.promises.acknowledged[value] = info.first_offset + at, key
        if self._pending is not pending:
            return
        self._pending = None
        self._sequence += len(pending.values)
        if pending.end is not None and self._transaction is not None:
            if self.is_heard:
                self._transaction.is_committed = pending.end.commit
                self._transaction.end_offset = info.last_offset
            self._transaction = None
