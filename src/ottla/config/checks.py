"""Rules about several settings of a broker, checked at its start and after each change, with Kafka's messages.

`violation` checks a state. `change_violation` checks a change while the broker runs: some steps are too large, others
need a restart. Both read typed values by Kafka's names (`BrokerConfig.values`) and return the message of the
first violated rule, or None.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

from ottla.common.ids import INTERNAL_TOPICS
from ottla.config.limits import invalid
from ottla.config.values import Value

Values: TypeAlias = Mapping[str, Value]

ALL_DIRECTORIES = "*"
"""Stands for each directory in `cordoned.log.dirs`."""
_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000
_HOST = r"[0-9a-zA-Z\-%._:]*"
# Kafka loads assignors of these names; any other name is a Java class.
_ASSIGNORS = {"group.consumer.assignors": {"uniform", "range"}, "group.share.assignors": {"simple"}}


# A number, its relation to another, and the other. Plain tuples, because every start builds them.
Order: TypeAlias = tuple[str, str, str]
_AT_LEAST, _AT_MOST, _BELOW = "greater than or equal to", "less than or equal to", "less than"


def _between(kind: str, quantity: str) -> Iterator[Order]:
    least, value, most = (f"group.{kind}.{prefix}{quantity}" for prefix in ("min.", "", "max."))
    yield most, _AT_LEAST, least
    yield value, _AT_LEAST, least
    yield value, _AT_MOST, most


def _orders() -> Iterator[Order]:
    for kind in ("consumer", "share", "streams"):
        yield from _between(kind, "heartbeat.interval.ms")
        yield from _between(kind, "session.timeout.ms")
        yield from _between(kind, "assignment.interval.ms")
        yield f"group.{kind}.heartbeat.interval.ms", _BELOW, f"group.{kind}.session.timeout.ms"
    for quantity in ("delivery.count.limit", "partition.max.record.locks", "record.lock.duration.ms"):
        yield f"group.share.max.{quantity}", _AT_LEAST, f"group.share.{quantity}"
        yield f"group.share.{quantity}", _AT_LEAST, f"group.share.min.{quantity}"
    yield "group.share.max.share.sessions", _AT_LEAST, "group.share.max.size"
    yield "group.streams.num.standby.replicas", _AT_MOST, "group.streams.max.standby.replicas"
    # Kafka accepts a violation here, and then no classic member can join.
    yield "group.max.session.timeout.ms", _AT_LEAST, "group.min.session.timeout.ms"


_ORDERS = tuple(_orders())


def violation(values: Values) -> str | None:
    """Return the message of the first rule that a broker's settings violate."""
    for check in _CHECKS:
        message = check(values)
        if message:
            return message
    for name, relation, other in _ORDERS:
        left, right = _number(values, name), _number(values, other)
        holds = left >= right if relation == _AT_LEAST else left <= right if relation == _AT_MOST else left < right
        if not holds:
            return f"{name} must be {relation} {other}"
    return None


def conflict_of_lags(least: Value, most: Value) -> str | None:
    """Return Kafka's message if a topic's `min.compaction.lag.ms` is above its `max.compaction.lag.ms`."""
    if isinstance(least, int) and isinstance(most, int) and least > most:
        return f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})"
    return None


def conflict_of_validation(topic: str, keys: Value, values: Value, mode: Value, dead_letters: Value) -> str | None:
    """Return the problem with a topic's schema validation of keys and values."""
    if (keys or values) and topic in INTERNAL_TOPICS:
        return f"{topic} is an internal topic: its records have no schemas, so they cannot be validated"
    if mode != "dlq":
        return None
    name = "ottla.schema.validation.dlq.topic"
    if not dead_letters:
        return f"ottla.schema.validation.mode=dlq needs a dead letter topic: set {name}"
    if dead_letters == topic or dead_letters in INTERNAL_TOPICS:
        return f"{name} cannot be {dead_letters}: choose another topic"
    return None


# -- rules -----------------------------------------------------------------------------------------------------


def _number(values: Values, name: str) -> float:
    value = values[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is not a number")
    return value


def _retention_ms(values: Values) -> float:
    for name, factor in (("log.retention.ms", 1), ("log.retention.minutes", _MINUTE_MS)):
        if values[name] is not None:
            return _number(values, name) * factor
    return _number(values, "log.retention.hours") * _HOUR_MS


def _check_log(values: Values) -> str | None:
    if values["log.roll.ms"] is not None and _number(values, "log.roll.ms") < 1:
        return "requirement failed: log.roll.ms must be greater than or equal to 1"
    if values["log.roll.jitter.ms"] is not None and _number(values, "log.roll.jitter.ms") < 0:
        return "requirement failed: log.roll.jitter.ms must be greater than or equal to 0"
    if _retention_ms(values) == 0:
        return "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
    threads = _number(values, "log.cleaner.threads")
    if threads == 0 or _number(values, "log.cleaner.dedupe.buffer.size") // threads <= 1 << 20:
        return "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."
    return conflict_of_lags(values["log.cleaner.min.compaction.lag.ms"], values["log.cleaner.max.compaction.lag.ms"])


def _check_replication(values: Values) -> str | None:
    wait_ms = _number(values, "replica.fetch.wait.max.ms")
    if wait_ms > _number(values, "replica.socket.timeout.ms"):
        return (
            "requirement failed: replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to "
            "prevent unnecessary socket timeouts"
        )
    if wait_ms > _number(values, "replica.lag.time.max.ms"):
        return (
            "requirement failed: replica.fetch.wait.max.ms should always be less than or equal to "
            "replica.lag.time.max.ms to prevent frequent changes in ISR"
        )
    return None


def _check_connections(values: Values) -> str | None:
    if 0 < _number(values, "queued.max.request.bytes") < _number(values, "socket.request.max.bytes"):
        return "requirement failed: queued.max.request.bytes must be larger or equal to socket.request.max.bytes"
    delay_ms = values["connection.failed.authentication.delay.ms"]
    idle_ms = _number(values, "connections.max.idle.ms")
    if 0 <= idle_ms <= _number(values, "connection.failed.authentication.delay.ms"):
        return (
            f"requirement failed: connection.failed.authentication.delay.ms={delay_ms} should always be less than "
            f"connections.max.idle.ms={idle_ms} to prevent failed authentication responses from timing out"
        )
    try:
        overrides = connections_per_ip(str(values["max.connections.per.ip.overrides"] or ""))
    except ValueError as error:
        return str(error)
    if _number(values, "max.connections.per.ip") == 0 and not overrides:
        return (
            "requirement failed: max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides "
            "property is set."
        )
    return None


def connections_per_ip(text: str) -> dict[str, int]:
    """Parse `max.connections.per.ip.overrides`; raises ValueError with a message of one line."""
    limits: dict[str, int] = {}
    for entry in text.split(","):
        if not entry.strip():
            continue
        host, separator, count = entry.strip().rpartition(":")
        host, digits = host.strip(), count.strip()
        if not separator or not host or not re.fullmatch(r"[+-]?\d{1,10}", digits) or abs(int(digits)) >= 1 << 31:
            raise ValueError(f"max.connections.per.ip.overrides: {entry!r} is not of the form HOST:COUNT")
        if not re.fullmatch(_HOST, host):
            raise ValueError(f"max.connections.per.ip.overrides contains invalid addresses : {host}")
        limits[host] = int(digits)
    return limits


def _check_groups(values: Values) -> str | None:
    protocols = _items(values, "group.coordinator.rebalance.protocols")
    if "classic" not in protocols:
        problem = "Disabling the 'classic' protocol is not supported."
        return invalid("group.coordinator.rebalance.protocols", ",".join(protocols), problem)
    for name, known in _ASSIGNORS.items():
        for item in _items(values, name):
            if item not in known:
                return invalid(name, item, f"Class {item[:1000]} cannot be found")
    if len(_items(values, "group.share.assignors")) != 1:
        count = len(_items(values, "group.share.assignors"))
        return f"group.share.assignors must contain exactly one assignor, but found {count}"
    return None


def _items(values: Values, name: str) -> tuple[str, ...]:
    value = values[name]
    return value if isinstance(value, tuple) else ()


def _check_cordoned(values: Values) -> str | None:
    cordoned = _items(values, "cordoned.log.dirs")
    if ALL_DIRECTORIES in cordoned and len(cordoned) > 1:
        return "requirement failed: When cordoned.log.dirs is set to *, it must not contain other values"
    return None


def unknown_directories(cordoned: Iterable[str], directories: Collection[str]) -> str | None:
    """Return the message about cordoned directories that a broker with these directories does not have.

    `violation` does not check that: a controller has other directories than the brokers.
    """
    missing = [each for each in cordoned if each not in directories]
    if missing and ALL_DIRECTORIES not in missing:
        return (
            "requirement failed: All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
            f"Missing entries : {', '.join(missing)}"
        )
    return None


_CHECKS: tuple[Callable[[Values], str | None], ...] = (
    _check_log,
    _check_replication,
    _check_connections,
    _check_groups,
    _check_cordoned,
)


# -- changes while the broker runs -----------------------------------------------------------------------------

_THREADS = (
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)


def change_violation(before: Values, after: Values) -> str | None:
    """Return the message of the first rule that a change from `before` to `after` violates."""
    problem = (
        _threads_violation(before, after)
        or _cleaner_violation(before, after)
        or _rate_violation(before, after)
        or _local_violation(before, after)
    )
    if problem is None:
        return None
    # Kafka wraps the exception of the component that rejects a change in another one of the same class.
    inner = f"org.apache.kafka.common.config.ConfigException: {problem}"
    return f"Invalid value {inner} for configuration Invalid dynamic configuration"


def _threads_violation(before: Values, after: Values) -> str | None:
    for name in _THREADS:
        old, new = _number(before, name), _number(after, name)
        failed = f"Dynamic thread count update validation failed for {name}={new}"
        if new < old // 2:
            return f"{failed}, value should be at least half the current value {old}"
        if new > old * 2:
            return f"{failed}, value should not be greater than double the current value {old}"
    return None


def _cleaner_violation(before: Values, after: Values) -> str | None:
    old, new = _number(before, "log.cleaner.threads"), _number(after, "log.cleaner.threads")
    if new < old // 2:
        return f"Log cleaner threads cannot be reduced to less than half the current value {old}"
    if new > old * 2:
        return f"Log cleaner threads cannot be increased to more than double the current value {old}"
    return None


def _rate_violation(before: Values, after: Values) -> str | None:
    for name in ("max.connections", "max.connection.creation.rate"):
        if before[name] != after[name] and _number(after, name) <= 0:
            return f"Invalid {name} {after[name]}"
    return None


def _local_violation(before: Values, after: Values) -> str | None:
    limits = (
        ("log.local.retention.ms", "log.retention.ms", _retention_ms),
        ("log.local.retention.bytes", "log.retention.bytes", lambda values: _number(values, "log.retention.bytes")),
    )
    for name, limit_name, limit_of in limits:
        local, limit = _number(after, name), limit_of(after)
        if (before[name], limit_of(before)) == (local, limit) or limit < 0 or local == -2:
            continue
        failed = f"Invalid value {local} for configuration {name}: Value must not be"
        if local == -1:
            return f"{failed} -1 as {limit_name} value is set as {limit}."
        if local > limit:
            return f"{failed} more than {limit_name} property value: {limit}"
    return None
