"""Log levels of the running process, as the resource BROKER_LOGGER (KIP-412): Kafka's names for Python's levels.

They change at once and are forgotten at the next start. Only Ottla's own loggers and the root are there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ottla.common.errors import ErrorCode, KafkaError

ROOT = "root"
SET, DELETE = 0, 1
TRACE = 5
LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": TRACE,
}
_NAMES = {level: name for name, level in LEVELS.items()}


def levels() -> dict[str, str]:
    """The effective level of each logger, by name."""
    names = [name for name in logging.Logger.manager.loggerDict if name.split(".")[0] == "ottla"]
    found = {name: logging.getLogger(name).getEffectiveLevel() for name in sorted(names)}
    found[ROOT] = logging.getLogger().level
    return {name: _NAMES.get(level, "INFO") for name, level in found.items()}


def check_name(node_id: int, resource_name: str) -> None:
    """Raise INVALID_REQUEST unless the resource is this node."""
    if not resource_name.isdecimal() or int(resource_name) != node_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id} but received {resource_name}"
        )


def alter(node_id: int, resource_name: str, changes: Mapping[str, tuple[int, str | None]], *, apply: bool) -> None:
    """Set levels, or delete them to inherit the root's; all or none. Raises INVALID_REQUEST, INVALID_CONFIG."""
    check_name(node_id, resource_name)
    known = levels()
    for name, (operation, text) in changes.items():
        if name not in known:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
        if operation == SET and (text or "").upper() not in LEVELS:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {name} to {text} as it is not a supported log level. Valid log levels "
                f"are {', '.join(LEVELS)}",
            )
        if operation == DELETE and name == ROOT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
        if operation not in (SET, DELETE):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Log levels can be set or deleted only")
    if apply:
        for name, (operation, text) in changes.items():
            level = LEVELS[(text or "").upper()] if operation == SET else logging.NOTSET
            logging.getLogger(None if name == ROOT else name).setLevel(level)
