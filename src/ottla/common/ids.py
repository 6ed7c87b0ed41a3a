"""Names and ids that every package uses: topic partitions, Kafka's UUIDs, topic name rules.

A UUID is represented by its 16 bytes (type alias `Uuid`), which are fast to compare, hash and encode. Its text form
is Kafka's: URL-safe base64 without padding, 22 characters.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from ottla.common.errors import ErrorCode, KafkaError

Uuid: TypeAlias = bytes

ZERO_UUID: Uuid = bytes(16)
# Reserved by KRaft for the metadata topic, and by KIP-858 for directories.
METADATA_TOPIC_ID: Uuid = bytes(15) + b"\x01"
DIRECTORY_UNASSIGNED: Uuid = bytes(16)
DIRECTORY_LOST: Uuid = bytes(15) + b"\x01"
DIRECTORY_MIGRATING: Uuid = bytes(15) + b"\x02"

METADATA_TOPIC = "__cluster_metadata"
OFFSETS_TOPIC = "__consumer_offsets"
SHARE_STATE_TOPIC = "__share_group_state"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})

MAX_TOPIC_NAME_LENGTH = 249
MAX_INT32 = (1 << 31) - 1
"""The largest partition, and the largest id of a node."""
_UUID = re.compile(r"[a-zA-Z0-9_-]{22}(==)?")
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Group partitions by topic."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def uuid_to_text(uuid: Uuid) -> str:
    """Format a UUID in Kafka's text form: 22 characters of URL-safe base64."""
    return urlsafe_b64encode(uuid).rstrip(b"=").decode()


def uuid_from_text(text: str) -> Uuid:
    """Parse Kafka's text form of a UUID; raises ValueError."""
    # Python's decoder skips characters outside the alphabet.
    if not _UUID.fullmatch(text):
        raise ValueError(f"{text!r} is not a UUID: it must be 22 characters of URL-safe base64")
    return urlsafe_b64decode(text[:22] + "==")


def is_topic_name(name: str) -> bool:
    """Whether `name` is a valid topic name."""
    try:
        validate_topic_name(name)
    except KafkaError:
        return False
    return True


def validate_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION, with Kafka's message, unless `name` is a valid topic name."""
    problem = None
    if not name:
        problem = "the empty string is not allowed"
    elif name in {".", ".."}:
        problem = f"'{name}' is not allowed"
    elif len(name) > MAX_TOPIC_NAME_LENGTH:
        shown = name if len(name) <= 1000 else f"{name[:1000]}..."
        problem = f"the length of '{shown}' is longer than the max allowed length {MAX_TOPIC_NAME_LENGTH}"
    elif not _TOPIC_NAME.fullmatch(name):
        problem = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if problem:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def java_string_hash(text: str) -> int:
    """Return Java's `String.hashCode`, a signed 32-bit number, which determines the partition of a group."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(encoded), 2):
        value = (31 * value + (encoded[i] << 8 | encoded[i + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def group_partition(group_id: str, partitions: int) -> int:
    """Return the partition of the coordinator's topic that stores `group_id`."""
    value = java_string_hash(group_id)
    return (0 if value == -(1 << 31) else abs(value)) % partitions
