"""Subject name strategies: under which subject the schema of a topic's keys or values is registered."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, TypeAlias

from ottla.clients.errors import ConfigurationError
from ottla.schemas.model import Schema

SubjectStrategy: TypeAlias = Callable[[str, str, str | None], str]
"""A function of topic, part of the record (`key` or `value`) and full name of the schema's record, if it has one."""


def topic_name(topic: str, part: str, record: str | None) -> str:  # noqa: ARG001 - all strategies are called alike
    return f"{topic}-{part}"


def record_name(topic: str, part: str, record: str | None) -> str:
    if not record:
        raise ValueError(
            f"RecordNameStrategy needs a schema with a name, and the schema of the {part} for {topic} has none"
        )
    return record


def topic_record_name(topic: str, part: str, record: str | None) -> str:
    if not record:
        raise ValueError(f"TopicRecordNameStrategy needs a schema with a name, and the schema of the {part} has none")
    return f"{topic}-{record}"


_STRATEGIES: Final[dict[str, SubjectStrategy]] = {
    "topicname": topic_name,
    "recordname": record_name,
    "topicrecordname": topic_record_name,
}
NAMES: Final = "TopicNameStrategy, RecordNameStrategy, TopicRecordNameStrategy"


def strategy(setting: str, given: object) -> SubjectStrategy:
    """Return the strategy of a setting: a function, or a name, also with the package of Confluent's Java class."""
    if callable(given):
        return given
    name = str(given).rpartition(".")[2].lower().removesuffix("strategy")
    if name not in _STRATEGIES:
        raise ConfigurationError(f"{setting} is {given!r}; it must be a function or one of {NAMES}")
    return _STRATEGIES[name]


def avro_record_name(schema: Schema) -> str | None:
    """Return the full name of an Avro schema; None for types without a name."""
    found = json.loads(schema.text)
    if not isinstance(found, dict) or "name" not in found:
        return found.removeprefix(".") if isinstance(found, str) and "." in found else None
    name, namespace = str(found["name"]), found.get("namespace")
    return name if "." in name or not namespace else f"{namespace}.{name}"
