"""Transactions of producers, as one shard for each partition of `__transaction_state`. KIP-98, KIP-360, KIP-890.

The caller's duties, in this order:

1. Create `TransactionShard(config, partition, coordinator_epoch, transaction_version)`: the number of the partition,
   its leader epoch, and a function that returns the finalized level of the feature `transaction.version`.
2. Pass each record of the partition's log to `replay`, then call `loaded`.
3. Call `step` for each request and `handle_timer` for each elapsed timer, and execute the effects in their order.
4. `Append`: append the records as one batch, then pass the outcome to `handle_appended` and obey the effects that it
   returns before any later effect.
5. `Reply` and `WriteMarkers`: execute them once everything appended so far is committed, not before. Pass the outcome
   of `WriteMarkers` to `handle_markers`.
6. `AllocateProducerId`: pass the outcome to `handle_producer_id`.
7. When the partition is lost, call `unload` and execute its effects, which append nothing. Discard the shard, and the
   outcomes of its effects.

Reading order: `events`, `states`, `metadata`, `records`, `follow_ups`, `core`, `init_producer_id`, `add_partitions`,
`end_transaction`, `markers`, `timeouts`, `expiry`, `admin`, `shard`.
"""

from ottla.coordinators.events import Append, Appended, Call, LogLine, Moment, Reply
from ottla.coordinators.transaction.config import TransactionConfig
from ottla.coordinators.transaction.events import (
    AddPartitions,
    AllocateProducerId,
    DescribeTransaction,
    ListTransactions,
    MarkersWritten,
    ProducerIdAllocated,
    WriteMarkers,
)
from ottla.coordinators.transaction.shard import TransactionShard

__all__ = [
    "AddPartitions",
    "AllocateProducerId",
    "Append",
    "Appended",
    "Call",
    "DescribeTransaction",
    "ListTransactions",
    "LogLine",
    "MarkersWritten",
    "Moment",
    "ProducerIdAllocated",
    "Reply",
    "TransactionConfig",
    "TransactionShard",
    "WriteMarkers",
]
