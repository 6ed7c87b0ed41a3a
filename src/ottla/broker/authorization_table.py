"""Which right each API needs, and what its response contains without it: Kafka 4.3's checks as one table.

A need with the effect REFUSED that names its resources is checked by `authorization_guard`, before the handler or at
its beginning. All other needs are checked by the handler, because they depend on what the handler finds; the table
describes them. `tests/unit/broker/test_authorization_table.py` sends each API with and without each right.

READ, WRITE, DELETE and ALTER imply DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, NamedTuple

from ottla.common.errors import ErrorCode
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType

CLUSTER, TOPIC, GROUP = ResourceType.CLUSTER, ResourceType.TOPIC, ResourceType.GROUP
TRANSACTIONAL_ID, USER, DELEGATION_TOKEN = (
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.USER,
    ResourceType.DELEGATION_TOKEN,
)
READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
ALTER, DESCRIBE, CLUSTER_ACTION = Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS

ERRORS: dict[ResourceType, ErrorCode] = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The error of a request that needs a right on a resource of the type."""


MESSAGES: dict[ErrorCode, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "Delegation Token authorization failed.",
}
"""Kafka's texts of the errors."""


class Effect(Enum):
    """The response without a right."""

    REFUSED = "the error, for the whole request"
    ERROR = "the error, for the resource"
    OMITTED = "the resource is omitted"
    HIDDEN = "a part of the response is omitted"


Names = Callable[[Any], Iterable[str]]
"""The names of the resources that a request names."""


class Right(NamedTuple):
    """An operation on a kind of resource."""

    operation: Operation
    resource_type: ResourceType

    def __str__(self) -> str:
        """Return the right as the documentation shows it."""
        return f"{self.operation.name} of {self.resource_type.name}"


class Need(NamedTuple):
    """The rights of which an API needs one, and the effect without it."""

    any_of: tuple[Right, ...]
    """One of these rights is enough."""
    effect: Effect
    when: str = ""
    """The condition under which it is needed, for the documentation."""
    names: Names | None = None
    """For needs that are checked from the table."""
    since: int = 0
    """The first version of the API that needs it."""
    only_controller: bool = False
    """Whether only the listeners of controllers need it."""
    other_error: ErrorCode | None = None
    """The error, if the type of the last right does not determine it."""

    @property
    def error(self) -> ErrorCode:
        """The error without the right."""
        return ERRORS[self.any_of[-1].resource_type] if self.other_error is None else self.other_error


def _cluster_name(_request: object) -> tuple[str]:
    return (CLUSTER_NAME,)


def _cluster(*operations: Operation, when: str = "", since: int = 0, only_controller: bool = False) -> Need:
    rights = tuple(Right(operation, CLUSTER) for operation in operations)
    return Need(rights, Effect.REFUSED, when, _cluster_name, since, only_controller)


def _named(operation: Operation, resource_type: ResourceType, field: str) -> Need:
    """The right on the resource whose name is in a field of the request."""

    def names(request: object) -> tuple[str]:
        return (getattr(request, field),)

    return Need((Right(operation, resource_type),), Effect.REFUSED, "", names)


def _refused(operation: Operation, resource_type: ResourceType, when: str) -> Need:
    return Need((Right(operation, resource_type),), Effect.REFUSED, when)


def _error(operation: Operation, resource_type: ResourceType, when: str = "") -> Need:
    return Need((Right(operation, resource_type),), Effect.ERROR, when)


def _omitted(operation: Operation, resource_type: ResourceType, when: str = "") -> Need:
    return Need((Right(operation, resource_type),), Effect.OMITTED, when)


def _hidden(operation: Operation, resource_type: ResourceType, when: str) -> Need:
    return Need((Right(operation, resource_type),), Effect.HIDDEN, when)


def _subscribed(request: Any) -> Iterable[str]:
    return dict.fromkeys(request.subscribed_topic_names or ())


_READ_GROUP = _named(READ, GROUP, "group_id")
_WRITE_TRANSACTION = _named(WRITE, TRANSACTIONAL_ID, "transactional_id")
_SUBSCRIBED = Need((Right(DESCRIBE, TOPIC),), Effect.REFUSED, "each subscribed topic", _subscribed)
_BETWEEN_NODES = (_cluster(CLUSTER_ACTION),)
_ADMINISTRATION = (_cluster(ALTER),)
_CREATE = (Right(CREATE, CLUSTER), Right(CREATE, TOPIC))
_OPERATIONS = _hidden(DESCRIBE, CLUSTER, "authorized operations of the cluster")
_DESCRIBED_GROUP = _error(DESCRIBE, GROUP)
_DESCRIBED_TOPICS = _error(DESCRIBE, TOPIC, "each topic of the group; the error is the group's")
_NAMED_OR_ALL = (_error(DESCRIBE, TOPIC, "topics that are named"), _omitted(DESCRIBE, TOPIC, "all topics"))

NEEDS: dict[int, tuple[Need, ...]] = {
    0: (
        _refused(WRITE, TRANSACTIONAL_ID, "transactional batches"),
        _error(WRITE, TOPIC),
    ),
    1: (
        _error(READ, TOPIC, "clients"),
        Need((Right(CLUSTER_ACTION, CLUSTER),), Effect.ERROR, "followers", other_error=ERRORS[TOPIC]),
        _cluster(CLUSTER_ACTION, when="replicas of the metadata log", only_controller=True),
    ),
    2: (_error(DESCRIBE, TOPIC),),
    3: (
        *_NAMED_OR_ALL,
        Need(_CREATE, Effect.ERROR, "automatic creation"),
        _OPERATIONS,
    ),
    8: (_READ_GROUP, _error(READ, TOPIC)),
    9: (
        _DESCRIBED_GROUP,
        *_NAMED_OR_ALL,
    ),
    10: (
        _DESCRIBED_GROUP,
        _error(DESCRIBE, TRANSACTIONAL_ID),
        _refused(CLUSTER_ACTION, CLUSTER, "share partitions"),
    ),
    11: (_READ_GROUP,),
    12: (_READ_GROUP,),
    13: (_READ_GROUP,),
    14: (_READ_GROUP,),
    15: (_DESCRIBED_GROUP,),
    16: (Need((Right(DESCRIBE, CLUSTER), Right(DESCRIBE, GROUP)), Effect.OMITTED),),
    17: (),
    18: (),
    19: (
        Need(_CREATE, Effect.ERROR),
        _hidden(DESCRIBE_CONFIGS, TOPIC, "settings of the new topic"),
    ),
    20: (
        Need((Right(DELETE, CLUSTER), Right(DELETE, TOPIC)), Effect.ERROR),
        _hidden(DESCRIBE, TOPIC, "the name of a topic that the request names by id"),
    ),
    21: (_error(DELETE, TOPIC),),
    22: (
        _refused(WRITE, TRANSACTIONAL_ID, "with a transactional id"),
        Need(
            (Right(WRITE, TOPIC), Right(Operation.IDEMPOTENT_WRITE, CLUSTER)),
            Effect.REFUSED,
            "without a transactional id; WRITE of any topic",
        ),
    ),
    23: (Need((Right(CLUSTER_ACTION, CLUSTER), Right(DESCRIBE, TOPIC)), Effect.ERROR),),
    24: (
        _refused(WRITE, TRANSACTIONAL_ID, "until version 3"),
        _error(WRITE, TOPIC, "until version 3"),
        _cluster(CLUSTER_ACTION, when="since version 4", since=4),
    ),
    25: (_WRITE_TRANSACTION, _READ_GROUP),
    26: (_WRITE_TRANSACTION,),
    27: (_cluster(ALTER, CLUSTER_ACTION),),
    28: (_WRITE_TRANSACTION, _READ_GROUP, _error(READ, TOPIC)),
    29: (_cluster(DESCRIBE),),
    30: _ADMINISTRATION,
    31: _ADMINISTRATION,
    32: (
        _error(DESCRIBE_CONFIGS, TOPIC, "topics"),
        _error(DESCRIBE_CONFIGS, GROUP, "groups"),
        _error(DESCRIBE_CONFIGS, CLUSTER, "brokers, loggers, client metrics"),
    ),
    33: (
        _error(ALTER_CONFIGS, TOPIC, "topics"),
        _error(ALTER_CONFIGS, GROUP, "groups"),
        _error(ALTER_CONFIGS, CLUSTER, "brokers, client metrics"),
    ),
    34: _ADMINISTRATION,
    35: (_cluster(DESCRIBE),),
    36: (),
    37: (_error(ALTER, TOPIC),),
    38: (_refused(Operation.CREATE_TOKENS, USER, "a token for another owner"),),
    39: (),
    40: (),
    41: (
        Need(
            (Right(DESCRIBE, DELEGATION_TOKEN), Right(Operation.DESCRIBE_TOKENS, USER)),
            Effect.OMITTED,
            "tokens of other owners",
        ),
    ),
    42: (_error(DELETE, GROUP),),
    43: _ADMINISTRATION,
    44: (
        _error(ALTER_CONFIGS, TOPIC, "topics"),
        _error(ALTER_CONFIGS, GROUP, "groups"),
        _error(ALTER_CONFIGS, CLUSTER, "brokers, loggers, client metrics"),
        _error(CLUSTER_ACTION, CLUSTER, "loggers, on listeners of controllers"),
    ),
    45: _ADMINISTRATION,
    46: (_cluster(DESCRIBE),),
    47: (_named(DELETE, GROUP, "group_id"), _error(READ, TOPIC)),
    48: (_cluster(DESCRIBE_CONFIGS),),
    49: (_cluster(ALTER_CONFIGS),),
    50: (_cluster(DESCRIBE),),
    51: _ADMINISTRATION,
    52: _BETWEEN_NODES,
    53: _BETWEEN_NODES,
    54: _BETWEEN_NODES,
    55: (_cluster(DESCRIBE),),
    56: _BETWEEN_NODES,
    57: _ADMINISTRATION,
    58: _BETWEEN_NODES,
    59: _BETWEEN_NODES,
    60: (_OPERATIONS, _cluster(ALTER, when="on listeners of controllers", only_controller=True)),
    61: (_error(READ, TOPIC),),
    62: _BETWEEN_NODES,
    63: _BETWEEN_NODES,
    64: _ADMINISTRATION,
    65: (_error(DESCRIBE, TRANSACTIONAL_ID), _omitted(DESCRIBE, TOPIC)),
    66: (_omitted(DESCRIBE, TRANSACTIONAL_ID),),
    67: _BETWEEN_NODES,
    68: (_READ_GROUP, _SUBSCRIBED, _omitted(DESCRIBE, TOPIC, "topics that a regular expression matches")),
    69: (_DESCRIBED_GROUP, _DESCRIBED_TOPICS),
    70: _BETWEEN_NODES,
    71: (),
    72: (),
    73: _BETWEEN_NODES,
    74: (_cluster(DESCRIBE_CONFIGS),),
    75: _NAMED_OR_ALL,
    76: (_READ_GROUP, _SUBSCRIBED),
    77: (_DESCRIBED_GROUP, _DESCRIBED_TOPICS),
    78: (_READ_GROUP, _error(READ, TOPIC)),
    79: (_READ_GROUP, _error(READ, TOPIC)),
    80: _ADMINISTRATION,
    81: _ADMINISTRATION,
    82: _BETWEEN_NODES,
    83: _BETWEEN_NODES,
    84: _BETWEEN_NODES,
    85: _BETWEEN_NODES,
    86: _BETWEEN_NODES,
    87: _BETWEEN_NODES,
    88: (
        _READ_GROUP,
        _refused(DESCRIBE, TOPIC, "each topic of the topology"),
        Need(_CREATE, Effect.HIDDEN, "creation of internal topics; the status says that it failed"),
    ),
    89: (_DESCRIBED_GROUP, _DESCRIBED_TOPICS),
    90: (
        _DESCRIBED_GROUP,
        *_NAMED_OR_ALL,
    ),
    91: (_READ_GROUP, _error(READ, TOPIC)),
    92: (_named(DELETE, GROUP, "group_id"), _error(READ, TOPIC)),
}
"""By API key. APIs without a need answer every client: they authenticate it, or authorize it by a token."""

CHECKED_BY_HANDLER = frozenset({14, 29, 30, 31, 68, 76, 78, 79, 88, 91, 92})
"""APIs whose handlers check the needs themselves, because Kafka reports other errors first."""


def whole_needs(key: int, *, is_controller: bool = False) -> tuple[Need, ...]:
    """The needs of an API that are checked from the table."""
    return tuple(need for need in NEEDS[key] if need.names is not None and (is_controller or not need.only_controller))
