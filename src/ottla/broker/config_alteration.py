"""The common part of AlterConfigs and IncrementalAlterConfigs: each resource once, and no other broker's resource.

Each resource changes on its own, completely or not at all. As in Kafka, a request may change the settings and log
levels of the broker that receives it and the cluster-wide defaults, but not another broker's. The broker checks what
only it knows: its own log directories.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ottla.broker.config_authorization import check_authorized, check_copied_rules, check_mirror_change
from ottla.broker.envelope import Client
from ottla.broker.forwarding import decide_or_forward, decides_here
from ottla.cluster.config_rules import check_changes_this_node
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices, result_of
from ottla.config import BrokerConfig, check_cordoned
from ottla.controller.configs import CORDONED
from ottla.metadata.image import BROKER, MIRROR, TOPIC
from ottla.protocol.messages.alter_configs import AlterConfigsRequest
from ottla.security.acl import Operation

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import ConfigPorts
    from ottla.controller.controller import Controller


class Config(Protocol):
    """A setting in either request."""

    name: str
    value: str | None


class Resource(Protocol):
    """A resource of either request: a topic, a broker, a group or another."""

    resource_type: int
    resource_name: str

    @property
    def configs(self) -> Sequence[Config]:
        """The settings of the resource."""


class Alteration(NamedTuple):
    """A request of either kind, and how to handle and answer it."""

    request: Any
    response: Any
    """A response without rows."""
    row: Callable[..., Any]
    """The class of a row of the response."""
    is_done_here: Callable[[Any, int | None], bool]
    """Changes a resource that does not belong to the controller and returns True; may raise KafkaError."""
    decide: Callable[[Controller, bool], Any]
    """Has the controller change the resources. True: no broker has checked those about its own directories."""


def alter(broker: ConfigPorts, context: RequestContext, alteration: Alteration) -> Slices[Any]:
    """Return the response: with the result of each resource, decided here or by the controller."""
    request = alteration.request
    # The settings of every broker can be changed on a controller's listener.
    node_id = None if broker.endpoints.is_controller_listener(context.listener) else broker.node_id
    is_direct = node_id is None and not isinstance(context.connection, Client)
    request.resources, answered = yield from _separate(broker, context, alteration, node_id)
    if decides_here(broker, context):
        answered += yield from _take_forbidden(broker, context, alteration)
    try:
        decided = decide_or_forward(
            broker, context, request, lambda controller: alteration.decide(controller, is_direct)
        )
        response = yield from result_of(decided)
    except KafkaError as error:
        response = alteration.response
        for resource in request.resources:
            response.responses.append(_answer(alteration, resource, error))
            yield
    response.responses += answered
    return response


def _separate(
    broker: ConfigPorts, context: RequestContext, alteration: Alteration, node_id: int | None
) -> Slices[tuple[list[Any], list[Any]]]:
    """Return (resources for the controller to decide, responses for the others)."""
    times: Counter[tuple[int, str]] = Counter()
    for resource in alteration.request.resources:
        times[resource.resource_type, resource.resource_name] += 1
        yield
    left: list[Any] = []
    answers: list[Any] = []
    for resource in alteration.request.resources:
        yield
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            if node_id is not None and resource.resource_type == BROKER and resource.resource_name:
                check_changes_this_node(node_id, resource.resource_name)
                _check_certificates(broker, context, resource)
            if alteration.is_done_here(resource, node_id):
                answers.append(_answer(alteration, resource, None))
            else:
                left.append(resource)
        except KafkaError as error:
            answers.append(_answer(alteration, resource, error))
    return left, answers


def _take_forbidden(broker: ConfigPorts, context: RequestContext, alteration: Alteration) -> Slices[list[Any]]:
    """Remove the resources that the client may not alter; returns their errors."""
    left: list[Any] = []
    answers: list[Any] = []
    for resource in alteration.request.resources:
        try:
            check_authorized(broker, context, Operation.ALTER_CONFIGS, resource)
            if resource.resource_type == TOPIC:
                given = {config.name: config.value for config in resource.configs}
                present = broker.metadata.image.config(TOPIC, resource.resource_name)
                replaced = present if isinstance(alteration.request, AlterConfigsRequest) else None
                check_mirror_change(broker, context, given, replaced)
            elif resource.resource_type == MIRROR:
                given = {config.name: config.value for config in resource.configs}
                present = broker.metadata.image.config(MIRROR, resource.resource_name)
                check_copied_rules(broker, context, given, present)
            left.append(resource)
        except KafkaError as error:
            answers.append(_answer(alteration, resource, error))
        yield
    alteration.request.resources = left
    return answers


def _answer(alteration: Alteration, resource: Resource, error: KafkaError | None) -> Any:
    return alteration.row(
        error_code=error.code if error is not None else ErrorCode.NONE,
        error_message=error.message if error is not None else None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _check_certificates(broker: ConfigPorts, context: RequestContext, resource: Resource) -> None:
    """Raise INVALID_REQUEST if the settings would make a listener's key store or trust store unusable.

    Only for a client that may change them: the error says what is in a file of this machine.
    """
    if broker.security.certificates is not None:
        check_authorized(broker, context, Operation.ALTER_CONFIGS, resource)
        changed = {config.name: config.value for config in resource.configs if config.value is not None}
        broker.security.certificates.check(changed)


def check_directories(config: BrokerConfig, resource: Resource, added: Iterable[Config]) -> None:
    """Raise INVALID_REQUEST if the settings that are set or appended to cordon directories of another broker."""
    if resource.resource_type == BROKER and resource.resource_name:
        for change in added:
            if change.name == CORDONED and change.value:
                check_cordoned(change.value, config)
