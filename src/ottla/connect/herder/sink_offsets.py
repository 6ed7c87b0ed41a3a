"""Offsets of sinks as requests have them (KIP-875): topics and partitions of Kafka, with Kafka Connect's messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.connect.api import SourceOffset
from ottla.connect.errors import BadRequestError


def checked(offsets: Sequence[SourceOffset]) -> list[SourceOffset]:
    """Return offsets with integers for texts. Raises BadRequestError."""
    return [_checked(each) for each in offsets]


def _checked(given: SourceOffset) -> SourceOffset:
    partition, offset = given
    if "kafka_topic" not in partition or "kafka_partition" not in partition:
        raise BadRequestError(
            "The partition for a sink connector offset must contain the keys 'kafka_topic' and 'kafka_partition'"
        )
    topic = partition["kafka_topic"]
    if topic is None:
        raise BadRequestError("Kafka topic names must be valid strings and may not be null")
    number = partition["kafka_partition"]
    if number is None:
        raise BadRequestError("Kafka partitions must be valid numbers and may not be null")
    place = {"kafka_topic": str(topic), "kafka_partition": _integer(number, "partition", "Partition", 31)}
    if offset is None:
        return SourceOffset(place, None)
    if "kafka_offset" not in offset:
        raise BadRequestError("The offset for a sink connector should either be null or contain the key 'kafka_offset'")
    return SourceOffset(place, {"kafka_offset": _integer(offset["kafka_offset"], "offset", "Offset", 63)})


def _integer(value: Any, what: str, label: str, bits: int) -> int:
    try:
        number = int(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else -1
    except ValueError:
        number = -1
    if not 0 <= number < 1 << bits:
        raise BadRequestError(
            f"Failed to parse the following Kafka {what} value in the provided offsets: '{value}'. {label} values for "
            "sink connectors need to be integers."
        )
    return number
