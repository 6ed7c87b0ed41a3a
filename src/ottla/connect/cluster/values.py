"""The values of the records in Connect's topics: JSON without schemas, byte for byte as Kafka Connect 4.3 writes it.

The fields of a record have the order of its schema in Java. The properties of a configuration have the order of the
given mapping. Older workers could be set to write schemas; `parsed` reads both forms.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from ottla.connect.api import Config
from ottla.connect.runtime import State, Status, TargetState

_ENVELOPE: Final = {"schema", "payload"}


class SessionKey(NamedTuple):
    """The key with which the workers of a group sign internal requests (KIP-507)."""

    key: bytes
    algorithm: str
    created_ms: int

    def __repr__(self) -> str:
        return f"SessionKey({self.algorithm}, {self.created_ms})"


class TopicUse(NamedTuple):
    """A topic that a connector has used, and the first task that did (KIP-558)."""

    topic: str
    connector: str
    task: int
    discovered_ms: int


def config(properties: Config) -> bytes:
    """Encode the configuration of a connector or a task."""
    return orjson.dumps({"properties": dict(properties)})


def commit(tasks: int) -> bytes:
    """Encode the end of a write of task configurations."""
    return orjson.dumps({"tasks": tasks})


def target(state: TargetState) -> bytes:
    """Encode a target state; workers before Kafka 3.5 read STOPPED as PAUSED."""
    older = TargetState.PAUSED if state is TargetState.STOPPED else state
    return orjson.dumps({"state": older, "state.v2": state})


def task_count(count: int) -> bytes:
    """Encode how many transactional producers exist since the last fencing."""
    return orjson.dumps({"task-count": count})


def restart(*, only_failed: bool, include_tasks: bool) -> bytes:
    """Encode the request to restart a connector."""
    return orjson.dumps({"include-tasks": include_tasks, "only-failed": only_failed})


def session_key(key: SessionKey) -> bytes:
    """Encode a key for signatures."""
    text = base64.b64encode(key.key).decode()
    return orjson.dumps({"key": text, "algorithm": key.algorithm, "creation-timestamp": key.created_ms})


def logger(level: str) -> bytes:
    """Encode the level of a logger."""
    return orjson.dumps({"level": level})


def status(state: Status) -> bytes | None:
    """Encode the state of a connector or a task; DESTROYED is a tombstone."""
    if state.state is State.DESTROYED:
        return None
    return orjson.dumps(
        {
            "state": state.state,
            "trace": state.trace or None,
            "worker_id": state.worker_id,
            "generation": state.generation,
            "version": state.version or None,
        }
    )


def topic_use(use: TopicUse) -> bytes:
    """Encode the use of a topic."""
    fields = {"name": use.topic, "connector": use.connector, "task": use.task, "discoverTimestamp": use.discovered_ms}
    return orjson.dumps({"topic": fields})


def parsed(data: bytes) -> Mapping[str, Any] | None:
    """Decode a JSON object, without its schema if it has one; None if the data is something else."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    if isinstance(value, dict) and value.keys() == _ENVELOPE:
        value = value["payload"]
    return value if isinstance(value, dict) else None


def read_config(fields: Mapping[str, Any]) -> Config | None:
    """Read a configuration. Its values may be null in the topic: such settings are absent."""
    properties = fields.get("properties")
    if not isinstance(properties, dict):
        return None
    return {
        name: value if isinstance(value, str) else str(value) for name, value in properties.items() if value is not None
    }


def read_target(fields: Mapping[str, Any]) -> TargetState | None:
    """Read a target state of either version."""
    newer = fields.get("state.v2")
    text = newer if isinstance(newer, str) else fields.get("state")
    return TargetState(text) if isinstance(text, str) and text in TargetState.__members__ else None


def read_number(fields: Mapping[str, Any], name: str) -> int | None:
    """Read a number that is not negative."""
    number = fields.get(name)
    return number if isinstance(number, int) and not isinstance(number, bool) and number >= 0 else None


def read_session_key(fields: Mapping[str, Any]) -> SessionKey | None:
    """Read a key for signatures."""
    key, algorithm, created = fields.get("key"), fields.get("algorithm"), read_number(fields, "creation-timestamp")
    if not isinstance(key, str) or not isinstance(algorithm, str) or created is None:
        return None
    try:
        return SessionKey(base64.b64decode(key, validate=True), algorithm, created)
    except binascii.Error:
        return None


def read_status(fields: Mapping[str, Any]) -> Status | None:
    """Read the state of a connector or a task; `version` is absent before Kafka 4.1."""
    state, worker_id, generation = fields.get("state"), fields.get("worker_id"), fields.get("generation")
    if not isinstance(state, str) or state not in State.__members__:
        return None
    if not isinstance(worker_id, str) or not isinstance(generation, int):
        return None
    trace, version = fields.get("trace"), fields.get("version")
    return Status(State(state), worker_id, generation, str(trace or ""), str(version or ""))


def read_topic_use(fields: Mapping[str, Any]) -> TopicUse | None:
    """Read the use of a topic."""
    inner = fields.get("topic")
    if not isinstance(inner, dict):
        return None
    topic, connector = inner.get("name"), inner.get("connector")
    task, discovered = read_number(inner, "task"), read_number(inner, "discoverTimestamp")
    if not isinstance(topic, str) or not isinstance(connector, str) or task is None or discovered is None:
        return None
    return TopicUse(topic, connector, task, discovered)
