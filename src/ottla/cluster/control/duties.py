"""The active controller's own duties: fence brokers, balance leaders, elect unclean leaders. Decision 22.

It also writes a record without a change every `metadata.max.idle.interval.ms`, as Kafka does, so that an idle quorum
shows whether it commits records and which nodes keep up. That costs 0.2 % of a core and 12 MB a day on each of three
nodes. A node that is a cluster of its own has no duties, and writes none.

A broker is fenced when its session expires, or earlier when its process has evidently ended: its connection to this
controller was closed, it did not connect again, and its listeners refuse connections. A new active controller
probes the brokers that do not connect to it, because the previous one may have ended together with its broker.

Fencing only moves leadership and shrinks the ISR, by the same rules as an expired session. A broker that is fenced
wrongly returns with its next heartbeat.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ottla.cluster.control.connections import BrokerConnections
from ottla.common.clock import Clock
from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.common.timers import CallLater, TimerHandle
from ottla.common.values import value

if TYPE_CHECKING:
    from ottla.cluster.metadata.operations import Operation
    from ottla.config import BrokerConfig
    from ottla.metadata.image import BrokerImage, Endpoint, MetadataImage

logger = logging.getLogger(__name__)

Probe = Callable[["Sequence[Endpoint]"], Completion[bool]]

# How long a new active controller waits for the connections of live brokers before it probes the others.
GRACE_S = 0.02
# A timer that is late by more shows that this process did not run, so that no heartbeat could arrive.
LATE_MS = 1_000
MOST_CALLS = 1_000


@value
class DutySettings:
    """The controller's own settings. Leaders are not balanced without `balance_interval_ms`."""

    session_timeout_ms: int = 9_000
    balance_interval_ms: int | None = 300_000
    unclean_interval_ms: int = 300_000
    idle_interval_ms: int = 500
    """How often a record without a change is written; 0: never. KIP-835."""

    @classmethod
    def from_config(cls, config: BrokerConfig) -> DutySettings:
        """Read the settings of this node."""
        balances = config.bool("auto.leader.rebalance.enable")
        return cls(
            session_timeout_ms=config.int("broker.session.timeout.ms"),
            balance_interval_ms=config.int("leader.imbalance.check.interval.seconds") * 1000 if balances else None,
            unclean_interval_ms=config.int("unclean.leader.election.interval.ms"),
            idle_interval_ms=config.int("metadata.max.idle.interval.ms"),
        )


class Metadata(Protocol):
    """The part of `MetadataShell` that is used here."""

    node_id: int
    image: MetadataImage

    @property
    def is_active_controller(self) -> bool:
        """Whether this node decides operations."""
        ...

    def on_leader_change(self, callback: Callable[[], None]) -> None:
        """Call `callback` now, and when the active controller changes."""
        ...

    def submit(self, operation: Operation[Any]) -> Completion[Any]:
        """Decide an operation."""
        ...


class ControllerDuties:
    """The periodic work of the active controller; idle on other nodes."""

    def __init__(
        self,
        metadata: Metadata,
        clock: Clock,
        call_later: CallLater,
        settings: DutySettings,
        connections: BrokerConnections,
        probe: Probe,
    ) -> None:
        self._metadata = metadata
        self._clock = clock
        self._call_later = call_later
        self._settings = settings
        self._connections = connections
        self._probe = probe
        self._timer: TimerHandle | None = None
        self._grace: TimerHandle | None = None
        self._idle: TimerHandle | None = None
        self._ticked_ms = 0
        self._balanced_ms = 0
        self._elected_ms = 0
        self._busy: set[str] = set()
        self._probing: set[int] = set()
        self._closed = False
        connections.on_lost = self._lost
        metadata.on_leader_change(self._leader_changed)

    def close(self) -> None:
        """Stop."""
        self._closed = True
        self._stop()

    # -- becoming active -----------------------------------------------------------------------------------------

    def _leader_changed(self) -> None:
        if self._metadata.is_active_controller == (self._timer is not None) or self._closed:
            return
        if self._metadata.is_active_controller:
            self._ticked_ms = self._balanced_ms = self._elected_ms = self._clock.monotonic_ms()
            self._schedule()
            self._grace = self._call_later(GRACE_S, self._probe_silent)
            self._schedule_idle()
        else:
            self._stop()

    def _stop(self) -> None:
        for timer in (self._timer, self._grace, self._idle):
            if timer is not None:
                timer.cancel()
        self._timer = self._grace = self._idle = None

    # -- periodic work -------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        self._timer = self._call_later(self._period_ms / 1000, self._tick)

    @property
    def _period_ms(self) -> int:
        return max(10, min(1_000, self._settings.session_timeout_ms // 8))

    def _tick(self) -> None:
        now_ms = self._clock.monotonic_ms()
        late_ms = now_ms - self._ticked_ms - self._period_ms
        self._ticked_ms = now_ms
        self._schedule()
        if late_ms > LATE_MS:
            logger.warning("Extending the sessions of brokers by %d ms, in which this process did not run", late_ms)
            self._submit(lambda controller: controller.extend_sessions(late_ms))
            return
        self._repeat("fence expired brokers", lambda c: c.fence_one_expired_broker(self._clock.monotonic_ms()))
        settings = self._settings
        if settings.balance_interval_ms is not None and now_ms - self._balanced_ms >= settings.balance_interval_ms:
            self._balanced_ms = now_ms
            self._repeat("balance leaders", lambda controller: controller.balance_leaders())
        if now_ms - self._elected_ms >= settings.unclean_interval_ms:
            self._elected_ms = now_ms
            self._repeat("elect unclean leaders", lambda controller: controller.elect_unclean_leaders())

    def _schedule_idle(self) -> None:
        if self._settings.idle_interval_ms:
            self._idle = self._call_later(self._settings.idle_interval_ms / 1000, self._write_idle)

    def _write_idle(self) -> None:
        self._schedule_idle()
        self._repeat("write an empty record", lambda controller: controller.write_nothing())

    def _repeat(self, name: str, operation: Operation[bool], calls: int = 0) -> None:
        """Submit the operation until it reports that nothing is left; at most once at a time."""
        if not calls:
            if name in self._busy:
                return
            self._busy.add(name)

        def decided(done: Completion[Any]) -> None:
            try:
                again = done.result()
            except KafkaError as error:
                logger.info("Failed to %s: %s", name, error)
                again = False
            if again and calls < MOST_CALLS:
                self._repeat(name, operation, calls + 1)
            else:
                self._busy.discard(name)

        self._metadata.submit(operation).on_done(decided)

    def _submit(self, operation: Operation[Any]) -> None:
        def decided(done: Completion[Any]) -> None:
            if done.error is not None:
                logger.info("An operation of the controller failed: %s", done.error)

        self._metadata.submit(operation).on_done(decided)

    # -- dead processes ------------------------------------------------------------------------------------------

    def _probe_silent(self) -> None:
        """Probe the brokers that did not connect to this new active controller."""
        self._grace = None
        # The next process on the same directories need not wait until the session ends. The published image may lack
        # brokers that registered last, because this controller has committed nothing yet.
        self._submit(lambda controller: controller.note_silent(self._connections.is_connected))
        for broker in self._metadata.image.brokers.values():
            if not self._connections.is_connected(broker.broker_id):
                self._examine(broker, remote_host=None)

    def _lost(self, broker_id: int, remote_host: str) -> None:
        """The last connection of a broker was closed."""
        broker = self._metadata.image.brokers.get(broker_id)
        if self._closed or broker is None or not self._metadata.is_active_controller:
            return
        self._submit(lambda controller: controller.note_disconnected(broker_id))
        self._examine(broker, remote_host)

    def _examine(self, broker: BrokerImage, remote_host: str | None) -> None:
        broker_id = broker.broker_id
        if broker.fenced or broker_id == self._metadata.node_id or broker_id in self._probing:
            return
        endpoints = [each for each in broker.endpoints if _is_evidence(each, remote_host)]
        self._probing.add(broker_id)

        def probed(done: Completion[bool]) -> None:
            self._probing.discard(broker_id)
            if done.result() and not self._connections.is_connected(broker_id):
                self._fence(broker)

        self._probe(endpoints).on_done(probed)

    def _fence(self, broker: BrokerImage) -> None:
        if self._closed or not self._metadata.is_active_controller:
            return
        logger.info(
            "Fencing broker %d with epoch %d: its connection was closed, and its listeners refuse connections",
            broker.broker_id,
            broker.epoch,
        )
        self._submit(lambda controller: controller.fence_dead_broker(broker.broker_id, broker.epoch))


def _is_evidence(endpoint: Endpoint, remote_host: str | None) -> bool:
    """Whether a refused connection proves something: a loopback address of another machine does not."""
    if remote_host is None or not _is_loopback(endpoint.host):
        return True
    return _is_loopback(remote_host)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
