"""Heartbeats: unfence, fence and shut down brokers, report failed directories, expire sessions. KIP-631, KIP-841.

A heartbeat also changes the soft state in `Sessions`, which no record needs: a heartbeat whose records are not appended
is repeated by the broker. A broker that starts is fenced until it has read its own registration, so it never serves
older metadata. One that stops waits until the active brokers have read that its partitions have other leaders.
"""

from __future__ import annotations

from enum import Enum

from ottla.common.slices import Slices
from ottla.controller import leaders
from ottla.controller.brokers import check_epoch, records_to_fence, records_to_unfence
from ottla.controller.state import Outcome, State
from ottla.metadata.features import CORDONED_FROM, DIRECTORIES_FROM
from ottla.metadata.image import BrokerImage
from ottla.protocol import metadata_records as m
from ottla.protocol.message import Message
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


class BrokerState(Enum):
    """A broker's state as the controller sees it."""

    FENCED = 0
    UNFENCED = 1
    CONTROLLED_SHUTDOWN = 2
    SHUTDOWN_NOW = 3


def heartbeat(state: State, request: BrokerHeartbeatRequest, now_ms: int) -> Slices[Outcome[BrokerHeartbeatResponse]]:
    """Extend the broker's session and decide on its next state. Raises STALE_BROKER_EPOCH."""
    broker = check_epoch(state, request.broker_id, request.broker_epoch)
    current = _current(broker)
    records = yield from _offline(state, broker, request)
    # A failed directory first: records of both decisions could contradict each other. The next heartbeat continues.
    following = current if records else _next(state, broker, request, current)
    if following is not current:
        records = yield from _transition(state, broker, following)
    records += _cordoned(state, broker, request)
    sessions = state.sessions
    sessions.touch(broker.broker_id, broker.epoch, now_ms)
    sessions.note_metadata_offset(broker.broker_id, request.current_metadata_offset)
    if following in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW):
        sessions.forget_shutdown(broker.broker_id)
    if following is BrokerState.SHUTDOWN_NOW:
        sessions.note_stopped(broker.broker_id, broker.epoch)
    response = BrokerHeartbeatResponse(
        error_code=0,
        is_caught_up=request.current_metadata_offset >= sessions.registered_offset(broker),
        is_fenced=following in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW),
        should_shut_down=following is BrokerState.SHUTDOWN_NOW,
    )
    return Outcome(records, response)


def _current(broker: BrokerImage) -> BrokerState:
    if broker.fenced:
        return BrokerState.FENCED
    return BrokerState.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else BrokerState.UNFENCED


def _next(state: State, broker: BrokerImage, request: BrokerHeartbeatRequest, current: BrokerState) -> BrokerState:
    if current is BrokerState.FENCED:
        if request.want_shut_down:
            return BrokerState.SHUTDOWN_NOW
        if broker.in_controlled_shutdown or state.sessions.has_stopped(broker.broker_id, broker.epoch):
            return current  # The heartbeat is from before the shutdown: its process has ended, or ends now.
        caught_up = request.current_metadata_offset >= state.sessions.registered_offset(broker)
        return BrokerState.UNFENCED if caught_up and not request.want_fence else current
    if current is BrokerState.UNFENCED:
        if request.want_fence:
            return BrokerState.SHUTDOWN_NOW if request.want_shut_down else BrokerState.FENCED
        if not request.want_shut_down:
            return current
        leads = leaders.leads_any(state, broker.broker_id)
        return BrokerState.CONTROLLED_SHUTDOWN if leads else BrokerState.SHUTDOWN_NOW
    if leaders.leads_any(state, broker.broker_id):
        return current
    needed = state.sessions.shutdown_offset(broker.broker_id, state.image.offset)
    return BrokerState.SHUTDOWN_NOW if _active_have_read(state, needed) else current


def _active_have_read(state: State, offset: int) -> bool:
    """Whether all active brokers with a session have read the metadata log up to the offset."""
    offsets = (state.sessions.metadata_offset(b.broker_id) for b in state.image.brokers.values() if b.is_active)
    return all(read is None or read >= offset for read in offsets)


def _transition(state: State, broker: BrokerImage, following: BrokerState) -> Slices[list[Message]]:
    if following is BrokerState.UNFENCED:
        return (yield from records_to_unfence(state, broker))
    if following is BrokerState.CONTROLLED_SHUTDOWN:
        change = m.BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=1
        )
        records = yield from leaders.records_for_departure(state, broker.broker_id)
        return [change, *records]
    return (yield from records_to_fence(state, broker))


def _offline(state: State, broker: BrokerImage, request: BrokerHeartbeatRequest) -> Slices[list[Message]]:
    lost = [directory for directory in broker.directories if directory in set(request.offline_log_dirs)]
    if not lost or state.image.metadata_version < DIRECTORIES_FROM:
        return []
    online = [directory for directory in broker.directories if directory not in lost]
    records = yield from leaders.records_for_offline_directories(state, broker.broker_id, lost)
    if not online:
        return records  # An empty list in the record would mean no change. The broker stops by itself.
    change = m.BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, log_dirs=online)
    return [*records, change]


def _cordoned(state: State, broker: BrokerImage, request: BrokerHeartbeatRequest) -> list[Message]:
    wanted = request.cordoned_log_dirs
    if wanted is None or state.image.metadata_version < CORDONED_FROM:
        return []
    if set(wanted) == set(broker.cordoned_directories or ()):
        return []
    change = m.BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.epoch, cordoned_log_dirs=list(wanted)
    )
    return [change]


def fence_one_expired(state: State, now_ms: int) -> Slices[Outcome[bool]]:
    """Fence at most one broker whose session has expired; the response is whether to call again at once.

    One at a time, so that the next decision sees the leaders that the previous one elected.
    """
    for broker_id, epoch in state.sessions.expired(now_ms):
        broker = state.image.brokers.get(broker_id)
        if broker_id == state.node_id:
            # The broker of this process lives as long as this controller, even if its heartbeats are late.
            state.sessions.prolong(broker_id, epoch, now_ms)
            continue
        if broker is not None and broker.epoch == epoch and not broker.fenced:
            # The session ends when the image shows the broker as fenced. If the append fails, the next call retries.
            records = yield from records_to_fence(state, broker)
            return Outcome(records, True)
        state.sessions.end(broker_id)
    return Outcome([], False)


def fence_dead(state: State, broker_id: int, epoch: int) -> Slices[Outcome[bool]]:
    """Fence this registration of a broker without waiting for its session; the response is whether it was fenced.

    If the records are not appended, `fence_one_expired` retries: the session has expired.
    """
    broker = state.image.brokers.get(broker_id)
    if broker is None or broker.epoch != epoch or broker.fenced or broker_id == state.node_id:
        return Outcome([], False)
    state.sessions.expire(broker_id, epoch)
    records = yield from records_to_fence(state, broker)
    return Outcome(records, True)
