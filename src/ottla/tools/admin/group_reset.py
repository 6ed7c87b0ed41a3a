"""Where a group can be moved to: its offsets and the ends of its logs, and files with offsets."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping
from typing import NamedTuple

from ottla.clients import admin as api
from ottla.common.failure import Failure, reading
from ottla.common.ids import TopicPartition


class Places(NamedTuple):
    """Offsets of a partition: the group's (None if not committed), and the start and end of its log."""

    current: int | None
    earliest: int
    latest: int


def find_places(
    admin: api.Admin, partitions: list[TopicPartition], current: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Places]:
    """Return the places of partitions; `current` has the committed offsets. Raises exceptions of clients."""
    earliest = admin.list_offsets(dict.fromkeys(partitions, api.OffsetSpec.EARLIEST))
    latest = admin.list_offsets(dict.fromkeys(partitions, api.OffsetSpec.LATEST))
    return {p: Places(current.get(p), earliest[p].offset, latest[p].offset) for p in partitions}


def read_offsets_file(path: str) -> dict[TopicPartition, int]:
    """Read offsets from lines of `topic,partition,offset`, as `--export` and Kafka's tool print them. Raises Failure.

    `-` is standard input. Lines that begin with # are comments.
    """
    if path == "-":
        rows = list(csv.reader(sys.stdin))
    else:
        with reading(f"the file {path}"), open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
    offsets: dict[TopicPartition, int] = {}
    for line, row in enumerate(rows, 1):
        if not row or row[0].lstrip().startswith("#"):
            continue
        try:
            topic, partition, offset = (cell.strip() for cell in row)
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            advice = f"It is {','.join(row)!r}; each line must be topic,partition,offset."
            raise Failure(f"{path}, line {line} cannot be read", advice, exit_code=2) from None
    if not offsets:
        raise Failure(f"{path} has no offsets", "Each line must be topic,partition,offset.", exit_code=2)
    return offsets
