"""Verifies that partitions belong to a producer's transaction before the first batch of it is appended there. KIP-890.

Without this check a batch that is delayed beyond the end of its transaction would begin a transaction that no marker
ever ends, and committed readers would wait for it forever. Producers with transaction version 2 do not name their
partitions beforehand: the partitions are added to the transaction instead of being verified.

While the coordinator's answer is on its way, a marker may end the transaction. Each partition counts its markers
(`ProducerState.markers`): if the number changed, the answer is void.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ottla.common.completion import DONE, Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices, result_of
from ottla.coordinators.transaction.events import AddPartitions

if TYPE_CHECKING:
    from ottla.config import BrokerConfig
    from ottla.coordination.transactions.runtime import Errors, TransactionRuntime
    from ottla.partitions.partition import Partition
    from ottla.records import BatchHeader


# Errors of the coordinator that a producer retries. Older producers do not know them, but retry NOT_ENOUGH_REPLICAS.
_RETRIED = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
    }
)


Batches: TypeAlias = "list[tuple[Partition, BatchHeader]]"
"""The transactional batches of a request."""


def are_in_open_transaction(
    batches: Batches, transactional_id: str, transactions: TransactionRuntime, *, adds: bool
) -> bool:
    """Whether this node knows at once that all batches belong to one open transaction of one producer.

    Then they may be appended now, before any other event; otherwise they need a `Verification`. `adds` as there.
    """
    producer: tuple[int, int] | None = None
    unopened: list[tuple[str, int]] = []
    for partition, header in batches:
        producer_id, epoch = header.producer_id, header.producer_epoch
        if producer is None:
            producer = producer_id, epoch
        elif producer != (producer_id, epoch):
            return False
        entry = partition.log.producers.entries.get(producer_id)
        if entry is not None and entry.epoch == epoch and entry.transaction_start >= 0:
            continue
        if adds or (entry is not None and entry.epoch > epoch):
            return False
        unopened.append(partition.topic_partition)
    return producer is None or not unopened or transactions.has_open(transactional_id, producer, unopened)


class Verification:
    """Partitions to which a producer writes in its transaction.

    Call `include` for each partition, then `attempt`, and `settle` if partitions are left. Call `check` directly
    before each append. With `adds` the partitions are added to the transaction. `abortable` is whether the client
    knows TRANSACTION_ABORTABLE. Unless `is_enabled`, the coordinator is not asked.
    """

    def __init__(self, transactional_id: str, *, adds: bool, abortable: bool, is_enabled: bool = True) -> None:
        self.transactional_id = transactional_id
        self.adds = adds
        self.abortable = abortable
        self.is_enabled = is_enabled
        self.unsettled: set[Partition] = set()
        self._producer: tuple[int, int] | None = None
        self._refusal: ErrorCode | None = None
        # The number of markers of each partition when its verification began.
        self._markers: dict[Partition, int] = {}
        self._errors: dict[Partition, ErrorCode] = {}

    def include(self, partition: Partition, producer_id: int, epoch: int, base_sequence: int = -1) -> None:
        """Verify the partition, unless it has an open transaction of this producer and epoch."""
        if self._producer not in (None, (producer_id, epoch)):
            self._refusal = ErrorCode.INVALID_PRODUCER_ID_MAPPING
            self.unsettled.clear()
        if self._refusal is not None:
            return
        self._producer = producer_id, epoch
        producers = partition.log.producers
        self._markers[partition] = producers.markers
        entry = producers.entries.get(producer_id)
        if not self.is_enabled:
            return
        if entry is not None and entry.epoch > epoch:
            self._errors[partition] = ErrorCode.INVALID_PRODUCER_EPOCH
        elif entry is None and self.adds and base_sequence > 0:
            # An earlier batch of the transaction did not arrive.
            self._errors[partition] = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        elif entry is None or entry.epoch < epoch or entry.transaction_start < 0:
            self.unsettled.add(partition)

    def attempt(self, transactions: TransactionRuntime, api_version: int) -> Completion[None]:
        """Send the unsettled partitions to the coordinator once."""
        if not self.unsettled or self._producer is None:
            return DONE
        if not self.adds:
            named = [partition.topic_partition for partition in self.unsettled]
            if transactions.has_open(self.transactional_id, self._producer, named):
                self.unsettled.clear()
                return DONE
        asked = sorted(self.unsettled, key=lambda partition: partition.topic_partition)
        for partition in asked:
            self._markers[partition] = partition.log.producers.markers
        request = AddPartitions(
            self.transactional_id,
            *self._producer,
            tuple(partition.topic_partition for partition in asked),
            not self.adds,
            2 if self.adds else 0,
        )
        return transactions.add_anywhere(request, api_version).then(lambda errors: self._take(asked, errors))

    def _take(self, asked: list[Partition], errors: Errors) -> None:
        for partition in asked:
            error = errors[partition.topic_partition]
            if partition.log.producers.markers != self._markers[partition]:
                continue
            if error is ErrorCode.CONCURRENT_TRANSACTIONS and self.adds:
                continue
            self.unsettled.discard(partition)
            if error is ErrorCode.PRODUCER_FENCED:
                error = ErrorCode.INVALID_PRODUCER_EPOCH
            elif error is ErrorCode.TRANSACTION_ABORTABLE and not self.abortable:
                error = ErrorCode.INVALID_TXN_STATE
            if error is not ErrorCode.NONE:
                self._errors[partition] = error

    def settle(self, transactions: TransactionRuntime, config: BrokerConfig, api_version: int) -> Slices[None]:
        """Retry for a short time, while the previous transaction is being completed. The rest stays unsettled."""
        backoff_ms = config.int("add.partitions.to.txn.retry.backoff.ms")
        left_ms = config.int("add.partitions.to.txn.retry.backoff.max.ms")
        while self.unsettled and left_ms > 0:
            yield from result_of(transactions.pause(backoff_ms))
            left_ms -= backoff_ms
            yield from result_of(self.attempt(transactions, api_version))

    def error(self, partition: Partition) -> ErrorCode:
        """The error for which no batch of the transaction may be appended now, or NONE."""
        if self._refusal is not None:
            return self._refusal
        if partition not in self._markers:
            return ErrorCode.NONE
        if partition in self.unsettled or partition.log.producers.markers != self._markers[partition]:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return self._errors.get(partition, ErrorCode.NONE)

    def check(self, partition: Partition) -> bool:
        """Whether a producer's transactional batch may be appended now. Raises KafkaError with the error for it."""
        error = self.error(partition)
        if error in _RETRIED:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                "Unable to verify the partition has been added to the transaction. Underlying error: " + error.name,
            )
        if error is not ErrorCode.NONE:
            is_missing = error is ErrorCode.INVALID_TXN_STATE
            raise KafkaError(error, "Partition was not added to the transaction" if is_missing else None)
        return partition in self._markers
