"""The requests of brokers and controllers to the active controller, as operations of its core.

The handlers of the controller's listener decide them here, and so does the `ControllerChannel` of the node that is the
active controller itself. A request that fails as a whole gets a response with the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ottla.common.clock import Clock
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.message import Message
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.registry import response_class

if TYPE_CHECKING:
    from ottla.cluster.metadata.operations import Operation
    from ottla.controller import Controller

Decide = Callable[["Controller", Any, int, int], Any]
"""(controller, request, version of the request, monotonic milliseconds) -> what the operation returns."""


class Submits(Protocol):
    """The part of `MetadataShell` that decides operations."""

    def submit(self, operation: Operation[Any]) -> Completion[Any]:
        """Decide an operation."""
        ...


def _register(controller: Controller, request: Any, _version: int, now_ms: int) -> Any:
    return controller.register_broker(request, now_ms=now_ms)


def _heartbeat(controller: Controller, request: Any, _version: int, now_ms: int) -> Any:
    return controller.heartbeat(request, now_ms)


def _alter_partition(controller: Controller, request: Any, version: int, _now_ms: int) -> Any:
    return controller.alter_partition(request, version)


def _allocate_producer_ids(controller: Controller, request: Any, _version: int, _now_ms: int) -> Any:
    return controller.allocate_producer_ids(request.broker_id, request.broker_epoch)


def _register_controller(controller: Controller, request: Any, _version: int, _now_ms: int) -> Any:
    return controller.register_controller(request)


def _assign_directories(controller: Controller, request: Any, _version: int, _now_ms: int) -> Any:
    return controller.assign_replicas_to_dirs(request)


def _create_topics(controller: Controller, request: Any, _version: int, _now_ms: int) -> Any:
    return controller.create_topics(request)


OPERATIONS: Mapping[int, Decide] = {
    19: _create_topics,
    56: _alter_partition,
    62: _register,
    63: _heartbeat,
    67: _allocate_producer_ids,
    70: _register_controller,
    73: _assign_directories,
}
"""By API key. Requests of clients have handlers of their own; CreateTopics is for topics that brokers create."""


def decide(metadata: Submits, clock: Clock, request: Message, version: int) -> Completion[Any]:
    """Decide a request as the active controller; completes with the response when its records are committed.

    Never fails with KafkaError: the response has the error, NOT_CONTROLLER if this node is not the active controller.
    """
    operation = OPERATIONS[request.API_KEY]
    # The time of the decision counts: the broker must not lose its session to a queue in the controller.
    decided = metadata.submit(lambda controller: operation(controller, request, version, clock.monotonic_ms()))
    return decided.otherwise(lambda error: failed(request, error))


def failed(request: Message, error: KafkaError) -> Message:
    """The response to a request that failed as a whole; all responses but that to CreateTopics have one error."""
    if isinstance(request, CreateTopicsRequest):
        results = [
            CreatableTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            for topic in request.topics
        ]
        return CreateTopicsResponse(topics=results)
    response = response_class(request.API_KEY)()
    response.error_code = error.code  # type: ignore[attr-defined]  # all of these responses have it
    if hasattr(response, "error_message"):
        response.error_message = error.message
    return response


def lost_leadership(response: Message) -> bool:
    """Whether the response comes from a node that is not the active controller."""
    if isinstance(response, CreateTopicsResponse):
        return any(topic.error_code == ErrorCode.NOT_CONTROLLER for topic in response.topics)
    code: int = response.error_code  # type: ignore[attr-defined]  # all other responses to brokers have it
    return code == ErrorCode.NOT_CONTROLLER
