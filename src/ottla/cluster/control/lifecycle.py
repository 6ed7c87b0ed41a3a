"""Registers this node's broker with the active controller and keeps its session. KIP-631.

    lifecycle = BrokerLifecycle(request, ports, settings)
    lifecycle.start()                       # registers, repeats until the deadline
    lifecycle.caught_up.on_done(...)        # this node has read its own registration
    lifecycle.allow_unfencing()             # the broker can serve: the next heartbeat says so
    lifecycle.unfenced.on_done(...)         # it is in the metadata: it may lead partitions
    lifecycle.shut_down().on_done(...)      # leaderships move to other brokers, then this completes

Kafka's BrokerLifecycleManager. The state only moves forward: STARTING, RECOVERY (caught up), RUNNING (unfenced),
PENDING_CONTROLLED_SHUTDOWN, SHUTTING_DOWN. A heartbeat is sent every `heartbeat_interval_ms`, and immediately when
something happens that the controller should know: another controller, a failed directory, metadata that fences this
broker. One request is in flight at a time.

If the controller does not know this registration any more (STALE_BROKER_EPOCH), an operator removed the broker or
another process registered with its id. The broker then registers again, as a new one. If that fails until the deadline,
e.g. because the other process lives, the node stops.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.timers import CallLater, TimerHandle
from ottla.common.values import value
from ottla.protocol.message import Message
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest

if TYPE_CHECKING:
    from ottla.common.ids import Uuid
    from ottla.config import BrokerConfig
    from ottla.metadata.image import BrokerImage, MetadataImage

logger = logging.getLogger(__name__)

# The next communication after an error, doubled each time up to the maximum, as in Kafka.
BACKOFF_S, BACKOFF_MAX_S = 0.1, 1.0
# A fenced broker asks more often than once per heartbeat interval: it serves nothing until it is unfenced.
FENCED_INTERVAL_S = 0.1
# The first pause between heartbeats of a controlled shutdown, doubled each time up to the maximum.
SHUTDOWN_INTERVAL_S, SHUTDOWN_INTERVAL_MAX_S = 0.01, 0.2
# How long another process with this node.id must be alive beyond the session timeout until this one gives up.
DUPLICATE_S = 3.0
# A controlled shutdown ends without the controller's consent if no controller answers for so long.
SHUTDOWN_WITHOUT_CONTROLLER_S = 3.0

# A broker with one of these errors cannot register, however often it tries.
_FINAL = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: "it belongs to another cluster",
    ErrorCode.INVALID_REGISTRATION: "the controller knows one of its log directories as another broker's",
}
_HINTS = {
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "another process is registered with this node.id",
    ErrorCode.UNSUPPORTED_VERSION: "it does not support a feature level of the cluster",
    ErrorCode.INVALID_REGISTRATION: _FINAL[ErrorCode.INVALID_REGISTRATION],
}


class LifecycleState(IntEnum):
    """Kafka's broker states."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


@value
class LifecycleSettings:
    """Times in milliseconds."""

    heartbeat_interval_ms: int = 2_000
    session_timeout_ms: int = 9_000
    registration_timeout_ms: int = 60_000
    directory_failure_timeout_ms: int = 30_000
    shutdown_timeout_ms: int = 300_000

    @classmethod
    def from_config(cls, config: BrokerConfig) -> LifecycleSettings:
        """Read the settings of this node."""
        return cls(
            heartbeat_interval_ms=config.int("broker.heartbeat.interval.ms"),
            session_timeout_ms=config.int("broker.session.timeout.ms"),
            registration_timeout_ms=config.int("initial.broker.registration.timeout.ms"),
            directory_failure_timeout_ms=config.int("log.dir.failure.timeout.ms"),
        )


class Sender(Protocol):
    """The part of `ControllerChannel` that is used here."""

    def send(self, request: Message, *, timeout_s: float) -> Completion[Any]:
        """Send a request to the active controller; fails with KafkaError."""
        ...


@value
class LifecyclePorts:
    """The broker as the lifecycle uses it. `image` returns the published metadata; `give_up` stops the node with a
    message.

    `cordoned` returns the ids of the directories that take no new replicas; None if the cluster does not know such.
    """

    channel: Sender
    image: Callable[[], MetadataImage]
    call_later: CallLater
    give_up: Callable[[str], None]
    cordoned: Callable[[], tuple[Uuid, ...] | None] = lambda: None


class _Pace:
    """Whether a request is in flight, and when the next one is due."""

    def __init__(self) -> None:
        self.in_flight = False
        self.is_due = False
        """Whether the next request must follow immediately, because something happened meanwhile."""
        self.failures = 0
        self._shutdown_pauses = 0

    def begin(self) -> None:
        self.in_flight, self.is_due = True, False

    def backoff_s(self) -> float:
        """The pause after one more failure."""
        delay_s: float = min(BACKOFF_S * 2 ** min(self.failures, 10), BACKOFF_MAX_S)
        self.failures += 1
        return delay_s

    def shutdown_pause_s(self) -> float:
        """The pause after one more heartbeat of a controlled shutdown."""
        delay_s = min(SHUTDOWN_INTERVAL_S * 2 ** min(self._shutdown_pauses, 10), SHUTDOWN_INTERVAL_MAX_S)
        self._shutdown_pauses += 1
        return 0 if self.is_due else delay_s


class _Timers:
    """The timer of the next request, the deadlines, and the time that another process with this node.id has."""

    def __init__(self, call_later: CallLater) -> None:
        self._call_later = call_later
        self._next: TimerHandle | None = None
        self._duplicate: TimerHandle | None = None
        self._deadlines: list[TimerHandle] = []

    def after(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call at a deadline."""
        self._deadlines.append(self._call_later(delay_s, callback))

    def next_in(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call for the next request, instead of an earlier call."""
        self.cancel_next()
        self._next = self._call_later(delay_s, callback)

    def cancel_next(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def met_duplicate(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call when the session of another process has lasted this long."""
        if self._duplicate is None:
            self._duplicate = self._call_later(delay_s, callback)

    def forget_duplicate(self) -> None:
        if self._duplicate is not None:
            self._duplicate.cancel()
            self._duplicate = None

    def cancel(self) -> None:
        self.cancel_next()
        self.forget_duplicate()
        for timer in self._deadlines:
            timer.cancel()
        self._deadlines.clear()


class _Directories:
    """The state of the log directories, as the controller knows it."""

    def __init__(self) -> None:
        self.offline: dict[bytes, bool] = {}
        """The directories that failed: True once the controller knows."""
        self.cordoned: tuple[Uuid, ...] | None = None
        """As the last heartbeat had it."""


class BrokerLifecycle:
    """The state of this node's broker. Not thread safe: use it on the event loop."""

    def __init__(
        self, registration: BrokerRegistrationRequest, ports: LifecyclePorts, settings: LifecycleSettings
    ) -> None:
        """`registration` has a new incarnation id, and the broker epoch of the last clean stop if there was one."""
        self.state = LifecycleState.NOT_RUNNING
        self.broker_epoch = -1
        """The epoch of the present registration; -1 before the first one."""
        self.registered: Completion[None] = Completion()
        self.caught_up: Completion[None] = Completion()
        self.unfenced: Completion[None] = Completion()
        self._registration = registration
        self._ports = ports
        self._settings = settings
        self._stopped: Completion[None] = Completion()
        self._is_registered = False
        self._may_unfence = False
        self._pace = _Pace()
        self._timers = _Timers(ports.call_later)
        self._brokers: Mapping[int, BrokerImage] = {}
        self._directories = _Directories()

    @property
    def _node_id(self) -> int:
        return self._registration.broker_id

    # -- what the node calls -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Register; if that does not succeed in time, `give_up` is called."""
        self.state = LifecycleState.STARTING
        logger.info(
            "[BrokerLifecycleManager id=%d] Incarnation %s of broker %d in cluster %s is now STARTING.",
            self._node_id,
            self._registration.incarnation_id.hex(),
            self._node_id,
            self._registration.cluster_id,
        )
        self._timers.after(self._settings.registration_timeout_ms / 1000, self._registration_timed_out)
        self._communicate()

    def adopt(self, broker_epoch: int) -> None:
        """Continue a registration that this node's own controller made without fencing the broker."""
        self.broker_epoch = broker_epoch
        self._is_registered = self._may_unfence = True
        self.state = LifecycleState.RUNNING
        for completion in (self.registered, self.caught_up, self.unfenced):
            completion.complete(None)
        self._communicate_in(0 if self._ports.cordoned() else self._settings.heartbeat_interval_ms / 1000)

    def allow_unfencing(self) -> None:
        """The broker can serve clients: ask the controller to unfence it."""
        if not self._may_unfence:
            self._may_unfence = True
            self._communicate_soon()

    def metadata_published(self, image: MetadataImage) -> None:
        """Called with each published image: send a heartbeat that the controller waits for.

        It waits if this broker has to be unfenced, and if another one stops: that one may end only after all brokers
        have read that its partitions have other leaders.
        """
        is_news, self._brokers = image.brokers is not self._brokers, image.brokers
        if not is_news or not self._is_registered or self.state >= LifecycleState.PENDING_CONTROLLED_SHUTDOWN:
            return
        own = image.brokers.get(self._node_id)
        is_fenced = own is not None and own.epoch == self.broker_epoch and own.fenced
        if is_fenced or any(each.in_controlled_shutdown and not each.fenced for each in image.brokers.values()):
            self._communicate_soon()

    def controller_changed(self) -> None:
        """Send a heartbeat to the new active controller, so that it knows this broker's connection.

        A new controller extends all sessions, also the session of a previous process with this node.id.
        """
        self._timers.forget_duplicate()
        if self._is_registered and self.state is not LifecycleState.SHUTTING_DOWN:
            self._communicate_soon()

    def directory_failed(self, directory_id: bytes) -> None:
        """Report a failed log directory; `give_up` is called if the controller cannot be notified in time."""
        if directory_id in self._directories.offline:
            return
        self._directories.offline[directory_id] = False

        def check() -> None:
            if not self._directories.offline[directory_id]:
                self._ports.give_up(
                    f"Shutting down because offline log dir {directory_id.hex()} could not be communicated with"
                    " controllers"
                )

        self._timers.after(self._settings.directory_failure_timeout_ms / 1000, check)
        self._communicate_soon()

    def directories_changed(self) -> None:
        """Report the cordoned directories if they are others than before."""
        if self.state is LifecycleState.RUNNING and self._ports.cordoned() != self._directories.cordoned:
            self._communicate_soon()

    def shut_down(self) -> Completion[None]:
        """Begin a controlled shutdown; completes when the leaderships have moved, or at a deadline. Never fails."""
        if self.state is LifecycleState.RUNNING and self._is_registered:
            logger.info("[BrokerLifecycleManager id=%d] Beginning controlled shutdown.", self._node_id)
            self.state = LifecycleState.PENDING_CONTROLLED_SHUTDOWN
            self._timers.after(self._settings.shutdown_timeout_ms / 1000, self.close)
            self._communicate_soon()
        else:
            self.close()
        return self._stopped

    def close(self) -> None:
        """Stop immediately: no heartbeat is sent any more."""
        self.state = LifecycleState.SHUTTING_DOWN
        self._timers.cancel()
        stopping = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "The node is shutting down")
        for completion in (self.registered, self.caught_up, self.unfenced):
            completion.fail(stopping)
        self._stopped.complete(None)

    # -- communication -------------------------------------------------------------------------------------------

    def _communicate_soon(self) -> None:
        if self._pace.in_flight:
            self._pace.is_due = True
        elif self._is_registered:
            self._communicate()

    def _communicate_in(self, delay_s: float) -> None:
        if self.state is not LifecycleState.SHUTTING_DOWN:
            self._timers.next_in(delay_s, self._communicate)

    def _communicate(self) -> None:
        if self._pace.in_flight or self.state is LifecycleState.SHUTTING_DOWN:
            return
        self._timers.cancel_next()
        self._pace.begin()
        if self._is_registered:
            reported = tuple(self._directories.offline)
            timeout_s = self._settings.session_timeout_ms / 1000
            if self.state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN:
                timeout_s = SHUTDOWN_WITHOUT_CONTROLLER_S
            answer = self._ports.channel.send(self._heartbeat(reported), timeout_s=timeout_s)
            answer.on_done(lambda done: self._beaten(done, reported))
        else:
            self._ports.channel.send(self._registration, timeout_s=self._settings.session_timeout_ms / 1000).on_done(
                self._answered
            )

    def _heartbeat(self, offline: tuple[bytes, ...]) -> BrokerHeartbeatRequest:
        # Before that, changes of the setting while this broker was down may be missing.
        cordoned = self._ports.cordoned() if self.state >= LifecycleState.RECOVERY else None
        self._directories.cordoned = cordoned
        return BrokerHeartbeatRequest(
            broker_id=self._node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._ports.image().offset,
            want_fence=not self._may_unfence,
            want_shut_down=self.state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN,
            offline_log_dirs=list(offline),
            cordoned_log_dirs=None if cordoned is None else list(cordoned),
        )

    def _failed(self, problem: object) -> None:
        logger.info("[BrokerLifecycleManager id=%d] %s", self._node_id, problem)
        self._communicate_in(self._pace.backoff_s())

    # -- registration --------------------------------------------------------------------------------------------

    def _answered(self, done: Completion[Any]) -> None:
        self._pace.in_flight = False
        if self.state is LifecycleState.SHUTTING_DOWN:
            return
        try:
            response = done.result()
        except KafkaError as error:
            self._failed(f"Unable to register the broker: {error}")
            return
        code = response.error_code
        if code in _FINAL:
            self._ports.give_up(f"Unable to register broker {self._node_id}: {_FINAL[code]} (error {code})")
            return
        if code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            # The session of a process that has ended expires in this time.
            delay_s = self._settings.session_timeout_ms / 1000 + DUPLICATE_S
            self._timers.met_duplicate(delay_s, self._give_up_as_duplicate)
        if code:
            hint = _HINTS.get(code, "it tries again")
            self._failed(f"Unable to register broker {self._node_id}: {hint} (error {code})")
            return
        self._pace.failures = 0
        self.broker_epoch = response.broker_epoch
        self._is_registered = True
        self._timers.forget_duplicate()
        text = "[BrokerLifecycleManager id=%d] Successfully registered broker %d with broker epoch %d"
        logger.info(text, self._node_id, self._node_id, self.broker_epoch)
        self.registered.complete(None)
        self._communicate()

    def _give_up_as_duplicate(self) -> None:
        problem = _HINTS[ErrorCode.DUPLICATE_BROKER_REGISTRATION]
        self._ports.give_up(f"Unable to register broker {self._node_id}: {problem}, and it is alive")

    def _registration_timed_out(self) -> None:
        if not self._is_registered:
            self._ports.give_up("Shutting down because we were unable to register with the controller quorum.")

    # -- heartbeats ----------------------------------------------------------------------------------------------

    def _beaten(self, done: Completion[Any], reported: tuple[bytes, ...]) -> None:
        self._pace.in_flight = False
        if self.state is LifecycleState.SHUTTING_DOWN:
            return
        try:
            response: BrokerHeartbeatResponse = done.result()
        except KafkaError as error:
            if self.state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN:
                logger.warning("[BrokerLifecycleManager id=%d] Stopping without a controller: %s", self._node_id, error)
                self.close()
                return
            self._failed(f"Unable to send a heartbeat: {error}")
            return
        if response.error_code == ErrorCode.STALE_BROKER_EPOCH:
            self._register_again()
        elif response.error_code:
            self._failed(f"Broker {self._node_id} sent a heartbeat request but received error {response.error_code}.")
        else:
            self._pace.failures = 0
            for directory_id in reported:
                self._directories.offline[directory_id] = True
            self._follow(response)

    def _register_again(self) -> None:
        if self.state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN:
            self.close()
            return
        logger.warning(
            "[BrokerLifecycleManager id=%d] The controller does not know broker epoch %d any more: registering again",
            self._node_id,
            self.broker_epoch,
        )
        self._is_registered = False
        self._timers.after(self._settings.registration_timeout_ms / 1000, self._registration_timed_out)
        self._communicate()

    def _follow(self, response: BrokerHeartbeatResponse) -> None:
        """Take the step that the controller allows, and plan the next heartbeat."""
        if self.state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN:
            if response.should_shut_down:
                text = "[BrokerLifecycleManager id=%d] The controller has asked us to exit controlled shutdown."
                logger.info(text, self._node_id)
                self.close()
                return
            self._communicate_in(self._pace.shutdown_pause_s())
            return
        if self.state is LifecycleState.STARTING and response.is_caught_up:
            self._enter(LifecycleState.RECOVERY, "The broker has caught up.")
            self.caught_up.complete(None)
        if self.state is LifecycleState.RECOVERY and not response.is_fenced:
            self._enter(LifecycleState.RUNNING, "The broker has been unfenced.")
            self.unfenced.complete(None)
        interval_s = self._settings.heartbeat_interval_ms / 1000
        if response.is_fenced and (self._may_unfence or not response.is_caught_up):
            interval_s = min(interval_s, FENCED_INTERVAL_S)
        self._communicate_in(0 if self._pace.is_due else interval_s)

    def _enter(self, state: LifecycleState, reason: str) -> None:
        text = "[BrokerLifecycleManager id=%d] %s Transitioning from %s to %s."
        logger.info(text, self._node_id, reason, self.state.name, state.name)
        self.state = state
