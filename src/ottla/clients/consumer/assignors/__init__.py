"""Assignors: who reads which partition in a group. Pure functions of the members and of the partition counts.

Kafka's names, results and user data, so that our members and those of other clients may lead each other: range,
roundrobin, sticky (KIP-54, KIP-341), cooperative-sticky (KIP-429, KIP-792).
"""

from ottla.clients.consumer.assignors.base import Assignor, Member
from ottla.clients.consumer.assignors.range import RangeAssignor
from ottla.clients.consumer.assignors.roundrobin import RoundRobinAssignor
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
