"""ControllerRegistration (70) registers a controller with the active one. KIP-919."""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.protocol.message import Int16, Int32, Message, Struct, UInt16, Uuid


class ControllerRegistrationRequest(Message, key=70, versions="0", flexible="0+"):
    """The controller's addresses and features."""

    controller_id: Int32 = 0
    incarnation_id: Uuid = ZERO_UUID
    zk_migration_ready: bool = False
    listeners: list[Listener] = []
    features: list[Feature] = []


class Listener(Struct):
    """An element of `ControllerRegistrationRequest.listeners`."""

    name: str = ""
    host: str = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


class Feature(Struct):
    """An element of `ControllerRegistrationRequest.features`."""

    name: str = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class ControllerRegistrationResponse(Message, key=70, versions="0", flexible="0+"):
    """The outcome."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
