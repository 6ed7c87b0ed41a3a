"""Log levels of the running process, as the resource BROKER_LOGGER (KIP-412): Kafka's names for Python's levels.

A changed level takes effect at once and is lost at the next start. Only Ottla's own loggers, the audit log
and the root logger exist as resources.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Sequence
from typing import NamedTuple

from ottla.cluster.config_rules import is_integer
from ottla.common.errors import ErrorCode, KafkaError

ROOT = "root"
SET, DELETE = 0, 1
_LIST_OPERATIONS = {2: "APPEND", 3: "SUBTRACT"}
TRACE = 5
LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": TRACE,
}
# These modules are imported when they are first needed, but their levels may be set before that.
AUDIT = "kafka.authorizer.logger"
"""The logger of decisions about requests, with Kafka's name."""
for _name in (
    "ottla.broker.authentication",
    "ottla.broker.jwks",
    "ottla.broker.oauthbearer",
    "ottla.coordinators.group",
    "ottla.log.cleaner",
    "ottla.log.retention",
    "ottla.broker.acl_view",
    AUDIT,
):
    logging.getLogger(_name)
_NAMES = {level: name for name, level in LEVELS.items()}


class Change(NamedTuple):
    """A requested change of one logger."""

    name: str
    operation: int
    level: str | None


def levels() -> dict[str, str]:
    """The effective level of each logger, by name."""
    names = [name for name in logging.Logger.manager.loggerDict if name.split(".")[0] == "ottla" or name == AUDIT]
    found = {name: logging.getLogger(name).getEffectiveLevel() for name in sorted(names)}
    found[ROOT] = logging.getLogger().level
    return {name: _NAMES.get(level, "INFO") for name, level in found.items()}


def alter(node_id: int, resource_name: str, changes: Sequence[Change], *, apply: bool) -> None:
    """Set levels, or delete them to inherit the root's level.

    Applies all changes or none. Raises INVALID_REQUEST and INVALID_CONFIG.
    """
    if not is_integer(resource_name):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {resource_name}")
    if resource_name != str(node_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unexpected node id. Expected {node_id}, but received {resource_name}"
        )
    if len({change.name for change in changes}) < len(changes):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [change.name for change in changes if change.level is None and change.operation != DELETE]
    if nulls:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")
    known = levels()
    for change in changes:
        _check(change, known)
    if apply:
        for name, operation, text in changes:
            level = LEVELS[(text or "").upper()] if operation == SET else logging.NOTSET
            logging.getLogger(None if name == ROOT else name).setLevel(level)


def _check(change: Change, known: Container[str]) -> None:
    name, operation, text = change
    if operation not in (SET, DELETE):
        problem = f"Unknown operations type {operation}"
        if operation in _LIST_OPERATIONS:
            problem = f"{_LIST_OPERATIONS[operation]} operation is not allowed for the BROKER_LOGGER resource"
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)
    if name not in known:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if operation == SET and (text or "").upper() not in LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {text} as it is not a supported log level. Valid log levels are "
            f"{', '.join(sorted(LEVELS))}",
        )
    if operation == DELETE and name == ROOT:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
