"""Forwards requests of clients to the active controller, and answers for it if it does not answer. KIP-590."""

from __future__ import annotations

from collections.abc import Callable
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Protocol

from ottla.broker import envelope
from ottla.cluster.control.requests import failed
from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.common.slices import Slices, result_of
from ottla.protocol.message import Message

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.security import Security
    from ottla.cluster.controller_channel import ControllerChannel
    from ottla.cluster.metadata.log import MetadataShell
    from ottla.cluster.metadata.operations import Operation
    from ottla.cluster.node.endpoints import NodeEndpoints
    from ottla.metadata.image import MetadataImage

# Kafka's clients wait 30 seconds for a response.
TIMEOUT_S = 30.0
Handle = Callable[..., Any]


class Forwarding:
    """Sends the requests of this broker's clients to the active controller."""

    def __init__(self, channel: ControllerChannel) -> None:
        self._channel = channel

    def send(self, context: RequestContext, request: Message) -> Completion[Any]:
        """Complete with the controller's response; fails with KafkaError."""
        sent = self._channel.send(envelope.encode(context, request), timeout_s=TIMEOUT_S)
        return sent.then(lambda response: envelope.decode_response(context, response))


class Forwards(Protocol):
    """The part of `ControllerClient` that is used here."""

    @property
    def forwarding(self) -> Forwarding: ...


class DecisionPorts(Protocol):
    """The parts of a node that decide where a request is handled, or answer it if no controller is reached."""

    @property
    def metadata(self) -> MetadataShell: ...

    @property
    def endpoints(self) -> NodeEndpoints: ...

    @property
    def controller(self) -> Forwards: ...

    @property
    def node_id(self) -> int: ...

    @property
    def security(self) -> Security: ...


def handled_by_controller(handle: Handle) -> Handle:
    """Return a handler that forwards the request, unless this node is the active controller or was asked as one."""

    def handle_or_forward(broker: DecisionPorts, context: RequestContext, request: Message) -> Any:
        if decides_here(broker, context):
            return handle(broker, context, request)
        return _forward(broker, context, request, handle)

    return handle_or_forward


def decides_here(broker: DecisionPorts, context: RequestContext) -> bool:
    """Whether the controller of this node decides the request: on its listener it does, or answers NOT_CONTROLLER."""
    return broker.metadata.is_active_controller or broker.endpoints.is_controller_listener(context.listener)


def decide_or_forward(
    broker: DecisionPorts, context: RequestContext, request: Message, operation: Operation[Any]
) -> Completion[Any]:
    """Decide the request by `operation` here, or by the active controller; fails with KafkaError."""
    if decides_here(broker, context):
        return broker.metadata.submit(operation)
    return broker.controller.forwarding.send(context, request)


def _forward(broker: DecisionPorts, context: RequestContext, request: Message, handle: Handle) -> Slices[Any]:
    try:
        return (yield from result_of(broker.controller.forwarding.send(context, request)))
    except KafkaError as error:
        answer = handle(_Unreachable(broker, error), context, request)
        if isinstance(answer, GeneratorType):
            return (yield from answer)
        return answer


class _Unreachable:
    """A node whose controller fails each operation, so that the handler builds the response with the error."""

    def __init__(self, broker: DecisionPorts, error: KafkaError) -> None:
        self.node_id = broker.node_id
        self.endpoints = broker.endpoints
        self.security = broker.security
        self.metadata = _FailingMetadata(broker.metadata.image, error)


class _FailingMetadata:
    def __init__(self, image: MetadataImage, error: KafkaError) -> None:
        self.image = image
        self.quorum = _FailingQuorum(error)
        self._error = error

    def submit(self, _operation: object) -> Completion[Any]:
        return Completion.failed(self._error)

    def describe_quorum(self) -> None:
        return None


class _FailingQuorum:
    def __init__(self, error: KafkaError) -> None:
        self._error = error

    def receive(self, message: Message, _listener: str) -> Completion[Message]:
        return Completion.of(failed(message, self._error))
