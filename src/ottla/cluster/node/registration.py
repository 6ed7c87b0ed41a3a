"""The registrations of a broker and a controller with the active controller. KIP-631, KIP-919."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature
from ottla.protocol.messages.broker_registration import Listener as RegisteredListener
from ottla.protocol.messages.controller_registration import ControllerRegistrationRequest
from ottla.protocol.messages.controller_registration import Feature as ControllerFeature
from ottla.protocol.messages.controller_registration import Listener as ControllerListener

if TYPE_CHECKING:
    from ottla.common.ids import Uuid
    from ottla.config import BrokerConfig, Listener
    from ottla.log.directory import LogDirectory


def registration(
    config: BrokerConfig,
    cluster_id: str,
    listeners: Iterable[Listener],
    online: Sequence[LogDirectory],
    missing: Iterable[Uuid],
) -> BrokerRegistrationRequest:
    """The registration of one start of the broker, which has a new incarnation id.

    Without the epoch of a clean stop, the records that were not flushed may be lost (KIP-966).
    """
    return BrokerRegistrationRequest(
        broker_id=config.node_id,
        cluster_id=cluster_id,
        incarnation_id=os.urandom(16),
        listeners=[
            RegisteredListener(name=each.name, host=each.host, port=each.port, security_protocol=each.protocol)
            for each in listeners
        ],
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        rack=config.rack,
        log_dirs=[*(directory.directory_id for directory in online), *missing],
        previous_broker_epoch=online[0].broker_epoch,
    )


def controller_registration(node_id: int, listeners: Iterable[Listener]) -> ControllerRegistrationRequest:
    """The registration of one start of the controller, which has a new incarnation id."""
    return ControllerRegistrationRequest(
        controller_id=node_id,
        incarnation_id=os.urandom(16),
        listeners=[
            ControllerListener(name=each.name, host=each.host, port=each.port, security_protocol=each.protocol)
            for each in listeners
        ],
        features=[
            ControllerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
    )
