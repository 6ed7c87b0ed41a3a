"""Reads a range of offsets as columns of bytes, without pyarrow. `range_reader` converts them to Arrow.

Spark reuses its Python workers, and the workers reuse their readers, so a small micro-batch needs no new connection.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ottla.clients.consumer.decoding import POLL_AGAIN
from ottla.clients.consumer.ranges import RangeReader, RecordsLost
from ottla.clients.errors import CorruptRecords
from ottla.spark.client_pool import ClientPool

if TYPE_CHECKING:
    from ottla.records.columns import RecordColumns
    from ottla.spark.offsets import OffsetRange

logger = logging.getLogger("ottla.spark")

BATCH_BYTES: Final = 2 * 1024 * 1024
"""The maximum size of a batch, unless one record alone is larger. With 8 MiB a micro-batch of 75 MB takes 10 % longer,
because Spark starts on a batch only when it is complete, and each worker needs 20 MB more memory."""
FETCH_BYTES: Final = 2 * 1024 * 1024
"""The default of max.partition.fetch.bytes here. A task reads one partition, so this is the size of a fetch. The next
fetch is in flight while one is decoded."""
_readers = ClientPool(RangeReader)


def read_columns(
    client: Mapping[str, object],
    rng: OffsetRange,
    *,
    isolation_level: str = "read_uncommitted",
    fail_on_data_loss: bool = True,
    max_bytes_per_batch: int = BATCH_BYTES,
) -> Iterator[RecordColumns]:
    """Yield the records of `rng` in columns that are not empty. If the range has gaps, the last ones may be beyond it.

    `client` are a consumer's settings by Kafka's names. Records that are not in the log any more raise RecordsLost, and
    a corrupt batch raises CorruptRecords; without `fail_on_data_loss` they are skipped with a warning. Blocks while
    there are no records, at most default.api.timeout.ms. Raises ClientError with topic, partition and offset.
    """
    settings: dict[str, object] = {
        "max.partition.fetch.bytes": FETCH_BYTES,
        **client,
        "isolation.level": isolation_level,
        "on.corrupt.records": "raise",  # this function decides whether to skip them
        "allow.auto.create.topics": False,
    }
    start = rng.start
    with _readers.client(settings) as reader:
        while start < rng.end:
            try:
                yield from _read(reader, rng._replace(start=start), max_bytes_per_batch)
                break
            except RecordsLost as error:
                if fail_on_data_loss:
                    raise RecordsLost(
                        f"{error}. To skip the lost records instead, set the option failOnDataLoss=false",
                        topic=rng.topic, partition=rng.partition, offset=error.offset, until=error.until,
                    ) from error  # fmt: skip
                logger.warning("%s; continuing, since failOnDataLoss is false", error)
                start = error.until
            except CorruptRecords as error:
                start = _after_corrupt(error, rng, fail_on_data_loss)


def _read(reader: RangeReader, rng: OffsetRange, max_bytes: int) -> Iterator[RecordColumns]:
    """Yield the records of `rng` up to the first error. Raises RecordsLost, CorruptRecords, ClientError."""
    for collector in reader.read(*rng, max_bytes):
        columns = collector.close()
        assert columns is not None, "a collector without records"
        yield columns


def _after_corrupt(error: CorruptRecords, rng: OffsetRange, fail_on_data_loss: bool) -> int:
    """Return the offset after a corrupt batch. Raises CorruptRecords if it must not or cannot be skipped."""
    until = min(error.next_offset, rng.end)
    if fail_on_data_loss or until <= error.offset:
        hint = ". To skip this batch instead, set the option failOnDataLoss=false" if until > error.offset else ""
        raise CorruptRecords(
            f"{_reason(error)}{hint}", topic=rng.topic, partition=rng.partition, offset=error.offset
        ) from error
    logger.warning(
        "%s; offsets %d to %d are skipped, since failOnDataLoss is false", _reason(error), error.offset, until - 1
    )
    return until


def _reason(error: CorruptRecords) -> str:
    return str(error).removesuffix(POLL_AGAIN)
