"""A node of a quorum without a network: the test chooses the active controller and answers the requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import finish
from ottla.controller import Controller, Outcome
from ottla.protocol.message import Message
from ottla.raft.values import Endpoint, Endpoints

NODE = 1


class Quorum:
    """Knows the active controller. Operations of this node are decided by `controller`, if it is the active one."""

    def __init__(self, controller: Controller | None = None) -> None:
        self.leader: tuple[int, Endpoints] | None = None
        self.controller = controller
        self.operations = 0
        self._callbacks: list[Callable[[], None]] = []

    @property
    def is_active_controller(self) -> bool:
        return self.leader is not None and self.leader[0] == NODE

    def on_leader_change(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)
        callback()

    def elect(self, node_id: int | None) -> None:
        self.leader = None if node_id is None else (node_id, (Endpoint("CONTROLLER", f"host{node_id}", 9093),))
        for callback in self._callbacks:
            callback()

    def submit(self, operation: Callable[[Controller], Any]) -> Completion[Any]:
        self.operations += 1
        completion: Completion[Any] = Completion()
        if not self.is_active_controller or self.controller is None:
            completion.fail(KafkaError(ErrorCode.NOT_CONTROLLER, "another node leads"))
            return completion
        try:
            decided = operation(self.controller)
            outcome = decided if isinstance(decided, Outcome) else finish(decided)
        except KafkaError as error:
            completion.fail(error)
            return completion
        if outcome.records:
            last_offset = self.controller.image.offset + len(outcome.records)
            self.controller.replay(outcome.records, last_offset, 1)
        completion.complete(outcome.response)
        return completion


class Channels:
    """Stores the requests to other nodes; the test answers them."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Message, Completion[Any]]] = []
        self.closed = False

    def to(self, node_id: int, host: str, port: int) -> _Channel:
        assert (host, port) == (f"host{node_id}", 9093)
        return _Channel(node_id, self)

    def close(self) -> None:
        self.closed = True

    @property
    def nodes(self) -> list[int]:
        return [node_id for node_id, _, _ in self.sent]

    def answer(self, response: Any) -> None:
        """Answer the oldest request with a response, or with an exception."""
        _, _, completion = self.sent.pop(0)
        if isinstance(response, Exception):
            completion.fail(response)
        else:
            completion.complete(response)


class _Channel:
    def __init__(self, node_id: int, channels: Channels) -> None:
        self._node_id = node_id
        self._channels = channels

    def send(self, request: Message, *, timeout_s: float, version: int | None = None) -> Completion[Any]:
        assert timeout_s > 0
        completion: Completion[Any] = Completion()
        self._channels.sent.append((self._node_id, request, completion))
        return completion
