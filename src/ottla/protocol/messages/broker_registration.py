"""BrokerRegistration (62) registers a broker with the controller. KIP-631, KIP-858, KIP-866."""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.protocol.message import Int16, Int32, Int64, Message, Struct, UInt16, Uuid, since


class BrokerRegistrationRequest(Message, key=62, versions="0-4", flexible="0+"):
    """The broker's addresses, features and log directories."""

    broker_id: Int32 = 0
    cluster_id: str = ""
    incarnation_id: Uuid = ZERO_UUID
    listeners: list[Listener] = []
    features: list[Feature] = []
    rack: str | None = ""
    is_migrating_zk_broker: bool = since(1)
    log_dirs: list[Uuid] = since(2)
    previous_broker_epoch: Int64 = since(3, default=-1)


class Listener(Struct):
    """An element of `BrokerRegistrationRequest.listeners`."""

    name: str = ""
    host: str = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


class Feature(Struct):
    """An element of `BrokerRegistrationRequest.features`."""

    name: str = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class BrokerRegistrationResponse(Message, key=62, versions="0-4", flexible="0+"):
    """The broker's epoch."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    broker_epoch: Int64 = -1
