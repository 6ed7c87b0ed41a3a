"""The settings of a write to topics, its result, and its errors.

The driver sends a `Plan` to the workers of the tasks. Each task returns a `Written`. This module imports neither
pyarrow nor the producer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import WriterCommitMessage

from ottla.clients.errors import ClientError

if TYPE_CHECKING:
    from ottla.spark.exactly_once import ExactlyOnce

Encode = Callable[[Any], Any]


class SinkError(ValueError):
    """A column cannot be written; the message names it and the allowed types."""


class WriteFailed(ClientError):
    """Some rows were not written, or their state is unknown. The cause is the producer's error."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):  # type: ignore[misc,unused-ignore]
    """The result of one task: for each topic and partition the number of records, and the offset after the last one."""

    partition_id: int = -1
    batch_id: int | None = None
    records: int = 0
    by_partition: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    """(topic, partition): (records, offset after the last; -1 if unknown)."""
    write_name: str | None = None
    """With exactlyOnce, if the task has rows: the query and the sink."""
    is_first_of_run: bool = False
    """Whether the task had not written in this run of the query, so that another run may have written the batch."""


@dataclass(frozen=True)
class Plan:
    """The settings with which the workers write."""

    client: Mapping[str, object] = field(repr=False)
    """Settings of the producers, of which some are secret."""
    topic: str | None
    """The topic of all rows, which overrides the column `topic`."""
    encode: Encode | None = None
    """Encodes typed columns to key and value bytes."""
    exactly_once: ExactlyOnce | None = None
