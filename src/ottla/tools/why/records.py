"""Reads the records at positions of a group, without the group: nothing is committed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.clients.consumer import AsyncConsumer, Record
from ottla.clients.errors import ClientError
from ottla.common import units
from ottla.common.ids import TopicPartition
from ottla.tools.why.model import RecordAt

DEADLINE_S: Final = 5.0
_OF_GROUPS: Final = ("group.id", "group.instance.id", "group.protocol")
SHOWN: Final = 60
"""The most characters of a key or value."""


class PositionReader:
    """A RecordReader with a consumer of its own for each call. With `masked`, keys and values are not shown."""

    def __init__(self, settings: Mapping[str, object], *, masked: bool = False) -> None:
        """`settings` are a consumer's, by Kafka's names; settings of groups are ignored."""
        self._settings = {
            **{name: value for name, value in settings.items() if name not in _OF_GROUPS},
            "enable.auto.commit": False,
            "auto.offset.reset": "none",
            "max.partition.fetch.bytes": 1 << 16,
        }
        self._masked = masked

    async def read(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, RecordAt]:
        """Return the first record at or after each position; the positions that are not read in 5 s are omitted."""
        found: dict[TopicPartition, RecordAt] = {}
        deadline_ms = units.now_ms() + 1000 * DEADLINE_S
        async with AsyncConsumer(self._settings) as consumer:
            consumer.assign(positions)
            for partition, offset in positions.items():
                consumer.seek(partition, offset)
            while len(found) < len(positions) and (left_ms := deadline_ms - units.now_ms()) > 0:
                try:
                    records = await consumer.poll(left_ms / 1000)
                except ClientError:
                    # A corrupt batch, or a topic that the user may not read: the positions are explained without it.
                    break
                for record in records:
                    found.setdefault(record.topic_partition, self._shown(record))
                consumer.pause([each for each in found if each not in consumer.paused()])
        return found

    def _shown(self, record: Record[Any, Any]) -> RecordAt:
        key, value = (None, None) if self._masked else (short(record.key), short(record.value))
        headers = sum(len(name.encode()) + len(content or b"") for name, content in record.headers)
        size = len(record.key or b"") + len(record.value or b"") + headers
        return RecordAt(record.offset, record.timestamp, key, value, size)


def short(data: bytes | None) -> str | None:
    """Return bytes as text of at most 60 characters, or as hexadecimal numbers if they are not text."""
    if data is None:
        return None
    try:
        text = data[: 4 * SHOWN].decode()
    except UnicodeDecodeError as error:
        # The cut may have divided a character.
        is_cut = len(data) > 4 * SHOWN and error.start > 4 * SHOWN - 4
        text = data[: error.start].decode() if is_cut else f"0x{data[:SHOWN].hex()}"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
