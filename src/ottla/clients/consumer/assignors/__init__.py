"""Assignors: pure functions from members and partition counts to the partitions of each member.

Names, results and user data are Kafka's, so that members of different clients can share a group: range, roundrobin,
sticky (KIP-54, KIP-341), cooperative-sticky (KIP-429, KIP-792).
"""

from ottla.clients.consumer.assignors.base import Assignor, Member, RangeAssignor, RoundRobinAssignor
from ottla.clients.consumer.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

ASSIGNORS: dict[str, type[Assignor]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}

__all__ = [
    "ASSIGNORS",
    "Assignor",
    "CooperativeStickyAssignor",
    "Member",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
]
