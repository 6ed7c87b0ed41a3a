"""Which log directories of this node take no new replicas: `cordoned.log.dirs`. KIP-1066.

The broker itself creates no logs in them. The controller learns of them from heartbeats, and places no replicas on a
broker without other directories.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster.control import requests
from ottla.metadata.features import CORDONED_FROM
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.common.ids import Uuid


def cordoned_ids(broker: Broker) -> tuple[Uuid, ...] | None:
    """The ids of the cordoned directories; None if the level of metadata.version is too low for them."""
    if broker.metadata.image.metadata_version < CORDONED_FROM:
        return None
    return tuple(each.directory_id for each in broker.logs.log_directories() if each.is_cordoned)


def report_to_itself(broker: Broker) -> None:
    """Report them to the controller of this node, which has no other nodes and gets no heartbeats."""
    registered = broker.metadata.image.brokers.get(broker.node_id)
    cordoned = cordoned_ids(broker)
    if registered is None or cordoned is None or set(cordoned) == set(registered.cordoned_directories or ()):
        return
    request = BrokerHeartbeatRequest(broker.node_id, registered.epoch, broker.metadata.image.offset)
    request.cordoned_log_dirs = list(cordoned)
    requests.decide(broker.metadata, broker.clock, request, BrokerHeartbeatRequest.MAX_VERSION)
