"""The keys of the records in Connect's topics for configurations and statuses: texts with a prefix.

A name may contain hyphens, and even look like a number: only the last part of a task's key is its number.
Sources: KafkaConfigBackingStore and KafkaStatusBackingStore of Kafka 4.3.
"""

from __future__ import annotations

from typing import Final

from ottla.connect.runtime import TaskId

CONNECTOR: Final = "connector-"
TARGET: Final = "target-state-"
TASK: Final = "task-"
COMMIT: Final = "commit-"
TASK_COUNT: Final = "tasks-fencing-"
RESTART: Final = "restart-connector-"
SESSION_KEY: Final = "session-key"
LOGGER: Final = "logger-cluster-"

STATUS_CONNECTOR: Final = "status-connector-"
STATUS_TASK: Final = "status-task-"
STATUS_TOPIC: Final = "status-topic-"
_TOPIC_END: Final = ":connector-"


def task_of(key: str, prefix: str) -> TaskId | None:
    """Return the task that a key names after its prefix, or None."""
    name, hyphen, number = key.removeprefix(prefix).rpartition("-")
    if not hyphen or not (number.isascii() and number.isdigit()) or len(number) > 9:
        return None
    return TaskId(name, int(number))


def topic_status(topic: str, connector: str) -> str:
    """Return the key for the use of a topic by a connector (KIP-558)."""
    return f"{STATUS_TOPIC}{topic}{_TOPIC_END}{connector}"


def topic_and_connector(key: str) -> tuple[str, str] | None:
    """Return the parts of such a key, or None. A topic's name has no colon."""
    topic, separator, connector = key.removeprefix(STATUS_TOPIC).partition(_TOPIC_END)
    return (topic, connector) if topic and separator and connector else None
