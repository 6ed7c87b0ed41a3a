"""Common parts of consumer groups (KIP-848) and share groups (KIP-932).

Both keep members, a group epoch that counts changes of membership, subscription and topics, and a target assignment
that a server-side assignor computes for an epoch. They differ in how a member reaches its target: a partition of a
consumer group has one owner, so that members give partitions up before others get them (`group.consumer`).

Reading order: `topics`, `subscriptions`, `target`, `state`, `epochs`, `settings`, `change`, `records`,
`replay`, `requests`. `kinds` has what the shard does with the groups of each type.
"""

from ottla.coordinators.group.modern.state import ModernGroup, ModernState
from ottla.coordinators.group.modern.subscriptions import TopicCounts
from ottla.coordinators.group.modern.target import TargetAssignment, may_assign_again
from ottla.coordinators.group.modern.topics import EMPTY_TOPICS, Topics, metadata_hash

__all__ = [
    "EMPTY_TOPICS",
    "ModernGroup",
    "ModernState",
    "TargetAssignment",
    "TopicCounts",
    "Topics",
    "may_assign_again",
    "metadata_hash",
]
