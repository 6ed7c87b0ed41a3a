"""Modules that the start of a broker does not need: imported at their first use.

The coordinator of groups takes 60 ms of CPU to import, those of share groups and of transactions 15 ms each, `cleaner`
6 ms, `peer_requests` 3 ms. A broker starts in 150 ms.
"""

from typing import TYPE_CHECKING

from ottla.common.lazy import LazyModule

if TYPE_CHECKING:
    from ottla.coordination import group_runtime
    from ottla.coordination import shards as coordinator_shards
    from ottla.coordination.peers import markers
    from ottla.coordination.peers import requests as peer_requests
    from ottla.coordination.shares import effects as share_effects
    from ottla.coordination.shares import groups as share_groups
    from ottla.coordination.transactions import runtime as transaction_runtime
    from ottla.coordinators.group import config as group_config
    from ottla.coordinators.transaction import config as transaction_config
    from ottla.log import cleaner
else:
    cleaner = LazyModule("ottla.log.cleaner")
    coordinator_shards = LazyModule("ottla.coordination.shards")
    group_config = LazyModule("ottla.coordinators.group.config")
    group_runtime = LazyModule("ottla.coordination.group_runtime")
    markers = LazyModule("ottla.coordination.peers.markers")
    peer_requests = LazyModule("ottla.coordination.peers.requests")
    share_effects = LazyModule("ottla.coordination.shares.effects")
    share_groups = LazyModule("ottla.coordination.shares.groups")
    transaction_config = LazyModule("ottla.coordinators.transaction.config")
    transaction_runtime = LazyModule("ottla.coordination.transactions.runtime")

__all__ = [
    "cleaner",
    "coordinator_shards",
    "group_config",
    "group_runtime",
    "markers",
    "peer_requests",
    "share_effects",
    "share_groups",
    "transaction_config",
    "transaction_runtime",
]
