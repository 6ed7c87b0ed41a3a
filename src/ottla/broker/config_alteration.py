"""Common checks of AlterConfigs and IncrementalAlterConfigs: each resource once, and no other broker's resource.

As in Kafka, a request may change the settings and log levels of the broker that receives it and the cluster-wide
defaults, but not those of another broker. The broker checks what only it knows: its own log directories.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Protocol, TypeVar

from ottla.broker.envelope import Client
from ottla.cluster.config_rules import check_changes_this_node
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices
from ottla.config import BrokerConfig, check_cordoned
from ottla.controller.configs import CORDONED
from ottla.metadata.image import BROKER


class Config(Protocol):
    """A setting in either request."""

    name: str
    value: str | None


class Resource(Protocol):
    """A resource of either request: a topic, a broker, a group or another."""

    resource_type: int
    resource_name: str


R = TypeVar("R", bound=Resource)
A = TypeVar("A")


def separate_resources(
    node_id: int | None,
    resources: Collection[R],
    is_done_here: Callable[[R], bool],
    answer: Callable[[R, KafkaError | None], A],
) -> Slices[tuple[list[R], list[A]]]:
    """Return (resources for the controller to decide, responses for the others).

    `node_id` is None on a controller's listener, where the settings of every broker can be changed.
    `is_done_here` changes a resource that does not belong to the controller and returns True; it may raise KafkaError.
    """
    times: Counter[tuple[int, str]] = Counter()
    for resource in resources:
        times[resource.resource_type, resource.resource_name] += 1
        yield
    left: list[R] = []
    answers: list[A] = []
    for resource in resources:
        yield
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            if node_id is not None and resource.resource_type == BROKER and resource.resource_name:
                check_changes_this_node(node_id, resource.resource_name)
            if is_done_here(resource):
                answers.append(answer(resource, None))
            else:
                left.append(resource)
        except KafkaError as error:
            answers.append(answer(resource, error))
    return left, answers


def check_directories(config: BrokerConfig, resource: Resource, added: Iterable[Config]) -> None:
    """Raise INVALID_REQUEST if the settings that are set or appended to cordon directories of another broker."""
    if resource.resource_type == BROKER and resource.resource_name:
        for change in added:
            if change.name == CORDONED and change.value:
                check_cordoned(change.value, config)


def is_direct(node_id: int | None, connection: object) -> bool:
    """Whether the request came to the controller from a client, and not through a broker; `node_id` as above."""
    return node_id is None and not isinstance(connection, Client)
