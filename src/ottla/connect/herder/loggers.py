"""Levels of loggers, by the names of log4j (KIP-495, KIP-976): Python's loggers, and names of Java classes.

TRACE is a level below DEBUG, FATAL is CRITICAL, OFF and ALL exist. The name of a Java package also sets the loggers of
ours that do its work.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

ROOT: Final = "root"
LEVELS: Final = {
    "ALL": 1,
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 10,
}
_NAMES: Final = {number: name for name, number in LEVELS.items()}
_OURS: Final = (
    ("org.apache.kafka.connect.runtime.rest", "ottla.connect.rest"),
    ("org.apache.kafka.connect.runtime.distributed", "ottla.connect.cluster"),
    ("org.apache.kafka.connect.runtime.Worker", "ottla.connect.worker"),
    ("org.apache.kafka.connect.runtime", "ottla.connect"),
    ("org.apache.kafka.connect.transforms", "ottla.connect.transforms"),
    ("org.apache.kafka.connect.file", "ottla.connect.connectors"),
    ("org.apache.kafka.connect.json", "ottla.connect.converters"),
    ("org.apache.kafka.connect", "ottla.connect"),
    ("io.debezium.connector.postgresql", "ottla.connect.connectors.postgres"),
    ("io.debezium", "ottla.connect.connectors"),
    ("org.apache.kafka.clients", "ottla.clients"),
    ("org.apache.kafka", "ottla"),
)


def level_number(text: str) -> int | None:
    """Return the number of a level; None if it is unknown."""
    return LEVELS.get(text.upper())


def level_name(number: int) -> str:
    """Return the name of a level."""
    if number in _NAMES:
        return _NAMES[number]
    return _NAMES[max((each for each in _NAMES if each <= number), default=1)]


class Loggers:
    """The loggers of this process. `clock_ms` returns the time in milliseconds since 1970."""

    def __init__(self, clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._clock_ms = clock_ms
        self._changed_ms: dict[str, int] = {}

    def level(self, name: str) -> dict[str, Any] | None:
        """Return the level of a logger; None if it does not exist."""
        if name.lower() == ROOT:
            return self._shown(ROOT, logging.getLogger())
        if name not in _existing():
            return None
        return self._shown(name, logging.getLogger(name))

    def levels(self) -> dict[str, dict[str, Any]]:
        """Return the loggers that have a level of their own."""
        found = {name: self._shown(name, each) for name, each in sorted(_existing().items()) if each.level}
        return {**found, ROOT: self._shown(ROOT, logging.getLogger())}

    def set_level(self, name: str, level: str) -> list[str]:
        """Set a logger and those below it; return those that changed. Raises ValueError for an unknown level."""
        number = level_number(level)
        if number is None:
            raise ValueError(f"invalid log level '{level}'.")
        chosen = {each: logging.getLogger(None if each == ROOT else each) for each in self._below(name)}
        changed = [each for each, found in chosen.items() if found.getEffectiveLevel() != number]
        for each in changed:
            self._changed_ms[each] = self._clock_ms()
            chosen[each].setLevel(number)
        for java, ours in _OURS:
            if name == java or name.startswith((f"{java}.", java)):
                logging.getLogger(ours).setLevel(number)
                break
        return sorted(changed)

    def _below(self, name: str) -> Iterator[str]:
        if name.lower() == ROOT:
            yield from _existing()
            yield ROOT
            return
        yield name
        yield from (each for each in _existing() if each.startswith(f"{name}."))

    def _shown(self, name: str, found: logging.Logger) -> dict[str, Any]:
        return {"level": level_name(found.getEffectiveLevel()), "last_modified": self._changed_ms.get(name)}


def _existing() -> dict[str, logging.Logger]:
    """Return Python's loggers by name."""
    known = dict(logging.root.manager.loggerDict)
    return {name: each for name, each in known.items() if isinstance(each, logging.Logger)}
