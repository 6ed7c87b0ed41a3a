"""Sends this node's requests to the active controller (Kafka's NodeToControllerChannelManager).

    channel = ControllerChannel(metadata, clock, call_later, NodeChannels(...))
    channel.send(AlterPartitionRequest(...), timeout_s=30.0).on_done(...)

If this node is the active controller, it decides the request itself, without a connection. Otherwise the request goes
to the listener of the active controller; so does an Envelope that a node has when it becomes the active controller: its
listener has the handlers of clients' requests. A request is sent again, to the controller that is active then, when the
controller answers NOT_CONTROLLER, when the connection is lost, and when another controller becomes active. The
controller may therefore execute a request twice, as in Kafka: requests of brokers contain the epochs that make a
repetition harmless.

Requests of one channel are answered in their order. Requests that may take long, such as client requests, need another
channel than heartbeats. Pending requests are bounded by the callers, each of which waits for its answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ottla.cluster.control.requests import OPERATIONS, Submits, decide, lost_leadership
from ottla.common.clock import Clock
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.timers import CallLater, TimerHandle
from ottla.network.errors import NetworkError, UnsupportedRequest
from ottla.protocol.message import Message
from ottla.raft.values import Endpoints

RETRY_BACKOFF_S = 0.05


class Quorum(Submits, Protocol):
    """The part of `MetadataShell` that knows the active controller."""

    @property
    def is_active_controller(self) -> bool:
        """Whether this node is the active controller."""
        ...

    @property
    def leader(self) -> tuple[int, Endpoints] | None:
        """The node id and the controller listeners of the active controller; None while it is unknown."""
        ...

    def on_leader_change(self, callback: Callable[[], None]) -> None:
        """Call `callback` now, and when the active controller or its known endpoint changes."""
        ...


class Channel(Protocol):
    """The part of `NodeChannel` that sends requests."""

    def send(self, request: Message, *, timeout_s: float, version: int | None = None) -> Completion[Message]:
        """Send a request; fails with NetworkError."""
        ...


class Channels(Protocol):
    """The part of `NodeChannels` that finds a channel."""

    def to(self, node_id: int, host: str, port: int) -> Channel:
        """The channel to a node."""
        ...

    def close(self) -> None:
        """Close all channels."""
        ...


class _Pending:
    """A request without an answer. Answers of earlier attempts than `attempt` are ignored."""

    __slots__ = ("attempt", "completion", "deadline", "expires_ms", "problem", "request", "retry", "version")

    def __init__(self, request: Message, version: int | None, expires_ms: int) -> None:
        self.request = request
        self.version = version
        self.expires_ms = expires_ms
        self.completion: Completion[Any] = Completion()
        self.attempt = 0
        self.problem: object = "the active controller is unknown"
        self.deadline: TimerHandle | None = None
        self.retry: TimerHandle | None = None


class ControllerChannel:
    """The way from this node to the active controller. Not thread safe: use it on the event loop."""

    def __init__(self, metadata: Quorum, clock: Clock, call_later: CallLater, channels: Channels | None = None) -> None:
        """Without `channels` only a node that is the active controller gets answers."""
        self._metadata = metadata
        self._clock = clock
        self._call_later = call_later
        self._channels = channels
        self._pending: dict[int, _Pending] = {}
        self._closed = False
        metadata.on_leader_change(self._leader_changed)

    def send(self, request: Message, *, timeout_s: float, version: int | None = None) -> Completion[Any]:
        """Send a request to the active controller, in `version` or the highest common one.

        Completes with the response, whose errors the caller handles; never with NOT_CONTROLLER for the whole request.
        Fails with REQUEST_TIMED_OUT after `timeout_s` seconds: the request may or may not have been executed. Fails
        with UNSUPPORTED_VERSION, and with BROKER_NOT_AVAILABLE once this channel is closed.
        """
        pending = _Pending(request, version, self._clock.monotonic_ms() + round(timeout_s * 1000))
        if self._closed:
            pending.completion.fail(_closed())
            return pending.completion
        self._pending[id(pending)] = pending
        self._try(pending)
        if not pending.completion.done:
            pending.deadline = self._call_later(timeout_s, lambda: self._expire(pending, timeout_s))
        return pending.completion

    def close(self) -> None:
        """Fail all requests with BROKER_NOT_AVAILABLE, and close the connections."""
        self._closed = True
        for pending in list(self._pending.values()):
            self._remove(pending)
            pending.completion.fail(_closed())
        if self._channels is not None:
            self._channels.close()

    # -- attempts ----------------------------------------------------------------------------------------------

    def _try(self, pending: _Pending) -> None:
        pending.attempt += 1
        attempt = pending.attempt
        if pending.retry is not None:
            pending.retry.cancel()
            pending.retry = None
        answer = self._attempt(pending)
        if answer is not None:
            answer.on_done(lambda done: self._answered(pending, attempt, done))

    def _attempt(self, pending: _Pending) -> Completion[Any] | None:
        """Send the request; None if the active controller is unknown: the request waits until it is known."""
        request, version = pending.request, pending.version
        if self._metadata.is_active_controller and request.API_KEY in OPERATIONS:
            return decide(self._metadata, self._clock, request, request.MAX_VERSION if version is None else version)
        leader = self._metadata.leader
        if leader is None or self._channels is None or not leader[1]:
            return None
        node_id, endpoints = leader
        endpoint = endpoints[0]
        left_s = (pending.expires_ms - self._clock.monotonic_ms()) / 1000
        channel = self._channels.to(node_id, endpoint.host, endpoint.port)
        return channel.send(request, timeout_s=max(left_s, 0.001), version=version)

    def _answered(self, pending: _Pending, attempt: int, done: Completion[Any]) -> None:
        if pending.completion.done or pending.attempt != attempt:
            return
        try:
            response = done.result()
        except UnsupportedRequest as error:
            self._remove(pending)
            pending.completion.fail(KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(error)))
        except NetworkError as error:
            self._retry_later(pending, error)
        except Exception as error:  # noqa: BLE001 - not swallowed: the caller gets it
            self._remove(pending)
            pending.completion.fail(error)
        else:
            if lost_leadership(response):
                self._retry_later(pending, "the node that was asked is not the active controller")
                return
            self._remove(pending)
            pending.completion.complete(response)

    def _retry_later(self, pending: _Pending, problem: object) -> None:
        pending.problem = problem
        pending.retry = self._call_later(RETRY_BACKOFF_S, lambda: self._try(pending))

    def _leader_changed(self) -> None:
        """Send all pending requests to the new controller: the previous one may never answer."""
        for pending in list(self._pending.values()):
            if not pending.completion.done:
                self._try(pending)

    def _expire(self, pending: _Pending, timeout_s: float) -> None:
        self._remove(pending)
        text = f"No answer of the active controller within {timeout_s:g} s: {pending.problem}"
        pending.completion.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT, text))

    def _remove(self, pending: _Pending) -> None:
        self._pending.pop(id(pending), None)
        for timer in (pending.deadline, pending.retry):
            if timer is not None:
                timer.cancel()


def _closed() -> KafkaError:
    return KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "The node is shutting down")
