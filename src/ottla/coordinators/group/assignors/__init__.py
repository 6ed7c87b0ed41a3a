"""Server-side assignors (KIP-848): pure functions from members and topics to a target assignment.

`ASSIGNORS` names the assignors of consumer groups as `group.consumer.assignors` does; share groups use `simple`. All
are deterministic: members are visited in the order of their ids. Neither considers racks, as in Kafka 4.3.
"""

from ottla.coordinators.group.assignors.range import assign_ranges
from ottla.coordinators.group.assignors.simple import assign_simply
from ottla.coordinators.group.assignors.spec import Assignor, GroupSpec, MemberSpec, Partitions, TargetPartitions
from ottla.coordinators.group.assignors.uniform import assign_uniformly

ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}

__all__ = [
    "ASSIGNORS",
    "Assignor",
    "GroupSpec",
    "MemberSpec",
    "Partitions",
    "TargetPartitions",
    "assign_ranges",
    "assign_simply",
    "assign_uniformly",
]
