"""Brokers: register, fence and unfence, shut down, unregister; blocks of producer ids. KIP-631, KIP-730.

A registration's epoch is the offset of its record, so a later registration always has a higher epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode
from ottla.common.ids import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED
from ottla.common.slices import Slices
from ottla.controller import leaders
from ottla.controller.state import Outcome, State, refuse
from ottla.metadata.features import CONTROLLERS_FROM, DIRECTORIES_FROM, served_level
from ottla.metadata.image import BrokerImage
from ottla.protocol import metadata_records as m
from ottla.protocol.message import Message
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from ottla.protocol.messages.controller_registration import ControllerRegistrationResponse
from ottla.protocol.messages.unregister_broker import UnregisterBrokerResponse

if TYPE_CHECKING:
    from ottla.protocol.messages.controller_registration import ControllerRegistrationRequest

RESERVED_DIRECTORIES = frozenset({DIRECTORY_UNASSIGNED, DIRECTORY_LOST, DIRECTORY_MIGRATING})
PRODUCER_ID_BLOCK = 1000
MAX_PRODUCER_ID = (1 << 63) - 1


def register(
    state: State,
    request: BrokerRegistrationRequest,
    *,
    now_ms: int = 0,
    clean_shutdown: bool | None = None,
    fenced: bool = True,
) -> Slices[Outcome[BrokerRegistrationResponse]]:
    """Register a broker as fenced; the controller's own node is registered unfenced, because it is ready.

    A restart is clean if `clean_shutdown` says so or, without it, if the request names the epoch of the present
    registration. Raises DUPLICATE_BROKER_REGISTRATION while another incarnation has a live session.
    """
    if request.cluster_id != state.cluster_id:
        refuse(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {state.cluster_id}, but got cluster ID {request.cluster_id}",
        )
    existing = state.image.brokers.get(request.broker_id)
    same = existing is not None and existing.incarnation_id == request.incarnation_id
    if existing is not None and not same:
        _check_no_live_session(state, existing, request, now_ms)
    _check_directories(state, request)
    _check_features(state, request)
    if clean_shutdown is None:
        clean_shutdown = existing is not None and request.previous_broker_epoch == existing.epoch
    records: list[Message] = []
    if not same and fenced:
        # Also without a registration: an unregistered broker may still be in the ISR of its partitions.
        records += yield from leaders.records_for_departure(state, request.broker_id, unclean=not clean_shutdown)
    # The epoch of a new incarnation is the offset of its registration, which comes after these records.
    registration = _registration(request, state.next_offset + len(records), fenced=fenced)
    if existing is not None and same:
        registration.broker_epoch, registration.fenced = existing.epoch, existing.fenced
        registration.in_controlled_shutdown = existing.in_controlled_shutdown
    records.append(registration)
    if fenced:
        state.sessions.begin(request.broker_id, registration.broker_epoch, now_ms)
    else:
        records += yield from leaders.records_for_arrival(state, request.broker_id, any_directory=True)
        if existing is not None and not same and not clean_shutdown:
            records += yield from leaders.records_for_restart(state, request.broker_id)
    response = BrokerRegistrationResponse(error_code=ErrorCode.NONE, broker_epoch=registration.broker_epoch)
    return Outcome(records, response)


def _check_no_live_session(
    state: State, existing: BrokerImage, request: BrokerRegistrationRequest, now_ms: int
) -> None:
    # A broker in controlled shutdown may return before its old session expires.
    if existing.in_controlled_shutdown or not state.sessions.is_valid(existing.broker_id, existing.epoch, now_ms):
        return
    # A process locks its log directories. The connection of the previous process was closed, and the new process has
    # its directories: the previous one has ended.
    is_replaced = not set(existing.directories).isdisjoint(request.log_dirs)
    if is_replaced and state.sessions.is_disconnected(existing.broker_id):
        return
    refuse(
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        "Another broker is registered with that broker id. If the broker was recently restarted this should "
        "self-resolve once the heartbeat manager expires the broker's session.",
    )


def _check_directories(state: State, request: BrokerRegistrationRequest) -> None:
    directories = request.log_dirs
    if not directories and state.image.metadata_version < DIRECTORIES_FROM:
        return
    if not directories:
        refuse(ErrorCode.INVALID_REGISTRATION, "No directories specified in request")
    if RESERVED_DIRECTORIES & set(directories):
        refuse(ErrorCode.INVALID_REGISTRATION, "Reserved directory ID in request")
    if len(set(directories)) != len(directories):
        refuse(ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID in request")
    for other in state.image.brokers.values():
        if other.broker_id != request.broker_id and set(other.directories) & set(directories):
            refuse(
                ErrorCode.INVALID_REGISTRATION,
                f"Broker {other.broker_id} is already registered with one of these directories",
            )


def _check_features(state: State, request: BrokerRegistrationRequest) -> None:
    """Compare with the levels that this cluster serves; finalized levels retained for stock Kafka do not count."""
    supported = {f.name: (f.min_supported_version, f.max_supported_version) for f in request.features}
    for name, finalized in state.image.features.items():
        level = served_level(name, finalized)
        low, high = supported.get(name, (0, 0))
        if level and not low <= level <= high:
            refuse(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of {name}. The "
                f"broker wants a version between {low} and {high}, inclusive.",
            )


def _registration(request: BrokerRegistrationRequest, epoch: int, *, fenced: bool) -> m.RegisterBrokerRecord:
    return m.RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=epoch,
        end_points=[
            m.BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in request.listeners
        ],
        features=[m.BrokerFeature(f.name, f.min_supported_version, f.max_supported_version) for f in request.features],
        rack=request.rack,
        fenced=fenced,
        log_dirs=list(request.log_dirs),
    )


def _registered(state: State, broker_id: int) -> BrokerImage:
    broker = state.image.brokers.get(broker_id)
    if broker is None:
        refuse(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
    return broker


def check_epoch(state: State, broker_id: int, epoch: int) -> BrokerImage:
    """Return the broker's registration; raises STALE_BROKER_EPOCH unless it has this epoch."""
    broker = state.image.brokers.get(broker_id)
    if broker is None:
        refuse(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
    if broker.epoch != epoch:
        refuse(ErrorCode.STALE_BROKER_EPOCH, f"Expected broker epoch {broker.epoch}, but got broker epoch {epoch}")
    return broker


def records_to_fence(state: State, broker: BrokerImage) -> Slices[list[Message]]:
    """Remove a broker from leadership and ISR, and fence it; nothing if it is fenced."""
    if broker.fenced:
        return []
    change = m.BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=1)
    records = yield from leaders.records_for_departure(state, broker.broker_id)
    return [*records, change]


def records_to_unfence(state: State, broker: BrokerImage) -> Slices[list[Message]]:
    """Let a broker serve, and lead partitions without a leader; nothing if it is not fenced."""
    if not broker.fenced:
        return []
    change = m.BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=-1)
    records = yield from leaders.records_for_arrival(state, broker.broker_id)
    return [change, *records]


def fence(state: State, broker_id: int) -> Slices[Outcome[None]]:
    """Fence a broker at once, e.g. because its connection was closed; it leads no partition until it returns."""
    records = yield from records_to_fence(state, _registered(state, broker_id))
    return Outcome(records, None)


def unfence(state: State, broker_id: int, epoch: int) -> Slices[Outcome[None]]:
    """Unfence a broker that has caught up with the metadata, so that it may serve."""
    records = yield from records_to_unfence(state, check_epoch(state, broker_id, epoch))
    return Outcome(records, None)


def unregister(state: State, broker_id: int) -> Slices[Outcome[UnregisterBrokerResponse]]:
    """Delete a broker's registration, but not this running node's. Raises BROKER_ID_NOT_REGISTERED."""
    broker = _registered(state, broker_id)
    if broker_id == state.node_id:
        refuse(ErrorCode.INVALID_REQUEST, f"Broker {broker_id} is running: stop it before it is unregistered.")
    records = yield from leaders.records_for_departure(state, broker_id)
    records.append(m.UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch))
    return Outcome(records, UnregisterBrokerResponse(error_code=ErrorCode.NONE, error_message=None))


def register_controller(
    state: State, request: ControllerRegistrationRequest
) -> Outcome[ControllerRegistrationResponse]:
    """Register a controller's listeners and features, for other nodes to find. Raises UNSUPPORTED_VERSION. KIP-919."""
    if state.image.metadata_version < CONTROLLERS_FROM:
        refuse(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller registrations.",
        )
    record = m.RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=request.zk_migration_ready,
        end_points=[
            m.ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in request.listeners
        ],
        features=[
            m.ControllerFeature(f.name, f.min_supported_version, f.max_supported_version) for f in request.features
        ],
    )
    return Outcome([record], ControllerRegistrationResponse(error_code=ErrorCode.NONE, error_message=None))


def allocate_producer_ids(state: State, broker_id: int, epoch: int) -> Outcome[AllocateProducerIdsResponse]:
    """Allocate a block of 1000 producer ids that no other broker gets."""
    check_epoch(state, broker_id, epoch)
    first = state.image.producer_ids_next
    if first > MAX_PRODUCER_ID - PRODUCER_ID_BLOCK:
        refuse(ErrorCode.UNKNOWN_SERVER_ERROR, "Exhausted all producerIds as the next block's end is too large.")
    record = m.ProducerIdsRecord(broker_id=broker_id, broker_epoch=epoch, next_producer_id=first + PRODUCER_ID_BLOCK)
    response = AllocateProducerIdsResponse(
        error_code=ErrorCode.NONE, producer_id_start=first, producer_id_len=PRODUCER_ID_BLOCK
    )
    return Outcome([record], response)
