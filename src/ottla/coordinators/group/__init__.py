"""Groups of consumers and their committed offsets, as one shard per `__consumer_offsets` partition.

The caller's duties, in this order:

1. Pass each record of the partition's log to `GroupShard.replay` and each transaction marker to `end_transaction`,
   then call `loaded`.
2. Call `step` for each request and `handle_timer` for each elapsed timer, and execute the effects in their order.
3. `Append`: append the records as one batch, then pass the outcome to `handle_appended` as `Appended` and obey the
   effects that it returns before any later effect.
4. `Reply`: send it once everything appended so far is committed, not before.
5. `LogLine`: write it to the broker's log. Effects of `share/events.py`: execute them like a `Reply`, then pass
   the outcome to `shares_initialized`, `shares_deleted`, `shares_reset` or `shares_forgotten`;
   `ReleaseRecords` has none.
6. Pass the cluster's metadata to `metadata_changed`, before the first request and after each change.
7. When the partition is lost, call `unload` and execute its effects, which append nothing. Discard the shard.

Reading order: `events`, `follow_ups`, `states`, `member`, `group`, `core`, `rebalance`, `join`, `sync`, `session`,
`offsets`, `transactional_offsets`, `unserved`, `admin`, `expiry`, `shard`. KIP-62, KIP-134, KIP-345, KIP-394, KIP-447,
KIP-496, KIP-800, KIP-814.
Groups of the consumer protocol (KIP-848) are in `consumer`, share groups (KIP-932) in `share`, their common state and
rules in `modern`, and their assignors in `assignors`. Streams groups (KIP-1071) are in `streams`. `unserved` preserves
the records of later versions of Kafka.
"""

from ottla.coordinators.events import Append, Appended, Call, Effects, LogLine, Moment, Reply
from ottla.coordinators.group.config import GroupConfig
from ottla.coordinators.group.events import (
    DeleteGroup,
    DescribeConsumerGroup,
    DescribeGroup,
    FetchOffsets,
    ListGroups,
    TopicsDeleted,
)
from ottla.coordinators.group.shard import GroupShard

__all__ = [
    "Append",
    "Appended",
    "Call",
    "DeleteGroup",
    "DescribeConsumerGroup",
    "DescribeGroup",
    "Effects",
    "FetchOffsets",
    "GroupConfig",
    "GroupShard",
    "ListGroups",
    "LogLine",
    "Moment",
    "Reply",
    "TopicsDeleted",
]
