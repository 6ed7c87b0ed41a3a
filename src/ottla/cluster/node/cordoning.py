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
    from ottla.cluster.metadata.log import MetadataShell
    from ottla.common.clock import Clock
    from ottla.common.ids import Uuid
    from ottla.log import LogManager
    from ottla.metadata.image import MetadataImage


def cordoned_ids(image: MetadataImage, logs: LogManager) -> tuple[Uuid, ...] | None:
    """The ids of the cordoned directories; None if the level of metadata.version is too low for them."""
    if image.metadata_version < CORDONED_FROM:
        return None
    return tuple(each.directory_id for each in logs.log_directories() if each.is_cordoned)


def report_to_itself(node_id: int, metadata: MetadataShell, logs: LogManager, clock: Clock) -> None:
    """Report them to the controller of this node, which has no other nodes and gets no heartbeats."""
    registered = metadata.image.brokers.get(node_id)
    cordoned = cordoned_ids(metadata.image, logs)
    if registered is None or cordoned is None or set(cordoned) == set(registered.cordoned_directories or ()):
        return
    request = BrokerHeartbeatRequest(node_id, registered.epoch, metadata.image.offset)
    request.cordoned_log_dirs = list(cordoned)
    requests.decide(metadata, clock, request, BrokerHeartbeatRequest.MAX_VERSION)
