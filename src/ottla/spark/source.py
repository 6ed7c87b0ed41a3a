"""`format("ottla")` as Spark sees it: the data source, its readers, and what they decide on the driver.

Where things run: `schema` once at load(), in a process of its own; a reader's `partitions` on the driver, `read` in the
tasks. Of a streaming query one process keeps one StreamReader for as long as it runs and calls, per trigger:

    latestOffset(start, limit)   start is processed and in Spark's commit log
    partitions(start, end)       end is in its offset log; after a crash the first call, with the same two
    read(range)                  in the tasks, once more after each failure
    commit(end)                  with the end of the batch before, only when there is a next one

so what was processed is committed to `commitGroup` in latestOffset, which Spark calls after every batch, the last one
of an availableNow query among them. What a query begins with is not stored by Spark before its first batch is planned:
where it is "now", the first batch is therefore empty and stores it (see `latestOffset`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.common.ids import TopicPartition
from ottla.spark.names import STREAMS_ONLY
from ottla.spark.offsets import (
    EARLIEST,
    LATEST,
    OFFSET_MAX,
    OffsetRange,
    Positions,
    admit,
    json_of,
    new_partitions,
    pack,
    pending,
    plan,
    positions,
    reconcile,
    split,
)
from ottla.spark.options import (
    Earliest,
    Latest,
    Offsets,
    OptionError,
    Place,
    SinkOptions,
    SourceOptions,
    Timestamp,
    Timestamps,
    check_covered,
    read_sink_options,
    read_source_options,
)
from ottla.spark.workers import settle

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

    from ottla.spark.cluster import SourceCluster
    from ottla.spark.formats import Encoder

logger = logging.getLogger("ottla.spark")


class DataLossError(Exception):
    """Records that a query was to read are gone, or may be, and failOnDataLoss is true."""


def source_schema(options: SourceOptions) -> StructType:
    """The columns of a read: those of Spark's Kafka source; key and value are typed where they have a format."""
    key: DataType = BinaryType()
    value: DataType = BinaryType()
    if options.formats:
        from ottla.spark.formats import column_type

        key, value = column_type("key", options), column_type("value", options)
    fields = [
        StructField("key", key),
        StructField("value", value),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    if options.include_headers:
        header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        fields.append(StructField("headers", ArrayType(header)))
    return StructType(fields)


class OttlaDataSource(DataSource):
    """Topics of Ottla or any Kafka as tables and streams; docs/spark.md has the options."""

    @classmethod
    def name(cls) -> str:
        """What goes into format(...)."""
        return "ottla"

    def schema(self) -> StructType:
        """The columns, after the options were checked. Called at load(), before Spark says batch or stream."""
        return source_schema(read_source_options(self.options))

    def reader(self, schema: StructType) -> BatchReader:
        """What a batch read does."""
        options = read_source_options(self.options, streaming=False)
        _check_schema(schema, options)
        for name in STREAMS_ONLY:
            if name in self.options:
                logger.warning("The option %s is for streaming queries and has no effect on a batch read", name)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        """What a streaming query reads with."""
        options = read_source_options(self.options, streaming=True)
        _check_schema(schema, options)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """What a batch write does."""
        from ottla.spark.sink import BatchWriter

        if overwrite:
            raise OptionError('mode("overwrite") is not possible: a topic is appended to; use mode("append")')
        options = read_sink_options(self.options)
        return BatchWriter(options, schema, _encoder(options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802 - Spark's
        """What a streaming query writes with; in output mode complete too, each batch is appended."""
        from ottla.spark.sink import StreamWriter

        options = read_sink_options(self.options)
        return StreamWriter(options, schema, _encoder(options, schema))


def _encoder(options: SinkOptions, schema: StructType) -> Encoder | None:
    if options.key_format == "raw" and options.value_format == "raw":
        return None
    from ottla.spark.formats import encoder

    return encoder(options, schema)


def _check_schema(schema: StructType, options: SourceOptions) -> None:
    wanted = source_schema(options)
    if schema != wanted:
        raise OptionError(
            f"The columns are fixed and cannot be set with schema(...): they are {wanted.simpleString()}; "
            "typed values come with the options value.format and value.schema"
        )


class RangePartition(InputPartition):
    """The work of one task: one range, or several small ones."""

    def __init__(self, value: tuple[OffsetRange, ...]) -> None:
        super().__init__(value)


def _partitions(ranges: Sequence[OffsetRange], options: SourceOptions) -> list[RangePartition]:
    if options.min_partitions is None and options.max_records_per_partition is None:
        return [RangePartition(some) for some in pack(ranges)]
    parts = split(ranges, options.min_partitions, options.max_records_per_partition)
    return [RangePartition((part,)) for part in parts]


def _read(partition: InputPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """The records of a task's range. Without records there is no batch: Spark asks for none."""
    if not isinstance(partition, RangePartition):  # what Spark makes of a plan without ranges
        return iter(())
    from ottla.spark.range_reader import read_ranges

    client = dict(options.client)
    if options.poll_timeout_ms is not None:
        client.setdefault("default.api.timeout.ms", str(options.poll_timeout_ms))
    batches = read_ranges(
        client,
        partition.value,
        include_headers=options.include_headers,
        isolation_level=options.isolation_level,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    if options.key_format != "raw" or options.value_format != "raw":
        from ottla.spark.formats import decode

        batches = decode(batches, options)
    settle()
    return batches


# -- where to begin and end --------------------------------------------------------------------------------------


def _resolve(
    cluster: SourceCluster, options: SourceOptions, partitions: list[TopicPartition], place: Place, is_start: bool
) -> tuple[Positions, bool]:
    """The offsets of a place, and whether "now" went into them: another time they would be others."""
    name = "startingOffsets" if is_start else "endingOffsets"
    if isinstance(place, Earliest):
        found: Positions = dict.fromkeys(partitions, EARLIEST)
    elif isinstance(place, Latest):
        found = dict.fromkeys(partitions, LATEST)
    elif isinstance(place, Offsets):
        check_covered(name, place.at, partitions)
        found = dict(place.at)
    else:
        found = _at_times(cluster, options, partitions, place, is_start)
    ends = [tp for tp, at in found.items() if at == LATEST]
    firsts = [tp for tp, at in found.items() if at == EARLIEST]
    resolved = found | (cluster.ends(ends) if ends else {}) | (cluster.firsts(firsts) if firsts else {})
    return {tp: at for tp, at in resolved.items() if at >= 0}, bool(ends)


def _at_times(
    cluster: SourceCluster,
    options: SourceOptions,
    partitions: list[TopicPartition],
    place: Timestamp | Timestamps,
    is_start: bool,
) -> Positions:
    if isinstance(place, Timestamps):
        check_covered("startingOffsetsByTimestamp" if is_start else "endingOffsetsByTimestamp", place.at_ms, partitions)
        times = place.at_ms
    else:
        times = dict.fromkeys(partitions, place.at_ms)
    found = cluster.at_times(times)
    if is_start and options.on_no_match == "error":
        for tp, at in found.items():
            if at == LATEST:
                raise OptionError(
                    f"{tp} has no record at or after timestamp {times[tp]}; with the option "
                    "startingOffsetsByTimestampStrategy=latest it is read from its end"
                )
    return found


def _report(losses: Sequence[str], options: SourceOptions) -> None:
    if not losses:
        return
    text = "; ".join(losses)
    if options.fail_on_data_loss:
        raise DataLossError(
            f"Records may be lost: {text}. The query stops here since failOnDataLoss is true; with false it warns and "
            "goes on with what is there"
        )
    logger.warning("Records may be lost: %s. The query goes on since failOnDataLoss is false", text)


# -- batch -------------------------------------------------------------------------------------------------------


class BatchReader(DataSourceReader):
    """One read of what is there between two places."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def __setstate__(self, state: dict[str, Any]) -> None:
        """What a task begins with: Spark's next bytes come when these are acknowledged."""
        self.__dict__.update(state)
        settle()

    def partitions(self) -> list[InputPartition]:
        """The ranges to read, asked of the cluster now. Raises ClusterError, OptionError, DataLossError."""
        from ottla.spark.cluster import SourceCluster

        cluster = SourceCluster(self._options)
        try:
            ranges = self._ranges(cluster)
        finally:
            cluster.close()
        return [*_partitions(ranges, self._options)]

    def _ranges(self, cluster: SourceCluster) -> list[OffsetRange]:
        options = self._options
        partitions = cluster.partitions()
        start, _ = _resolve(cluster, options, partitions, options.starting, is_start=True)
        end, _ = _resolve(cluster, options, partitions, options.ending, is_start=False)
        if isinstance(options.starting, Offsets) or isinstance(options.ending, Offsets):
            start, end = self._clamped(cluster, start, end)
        ranges = []
        for tp in partitions:
            if tp in start and tp in end:
                if start[tp] > end[tp] and not isinstance(options.starting, Earliest):
                    raise OptionError(f"The read of {tp} would start at offset {start[tp]}, after its end {end[tp]}")
                ranges.append(OffsetRange(tp.topic, tp.partition, start[tp], end[tp]))
        return ranges

    def _clamped(self, cluster: SourceCluster, start: Positions, end: Positions) -> tuple[Positions, Positions]:
        """Offsets that were given, within what is there; what is not is a loss."""
        firsts, ends = cluster.firsts(start), cluster.ends(start)
        losses = [
            f"{tp} starts at offset {firsts[tp]}, after {at}"
            for tp, at in sorted(start.items())
            if at < firsts.get(tp, 0)
        ]
        losses += [
            f"{tp} ends at offset {ends[tp]}, before {end[tp]}"
            for tp in sorted(end)
            if end[tp] > ends.get(tp, OFFSET_MAX)
        ]
        _report(losses, self._options)
        clamped = {tp: max(at, firsts.get(tp, 0)) for tp, at in start.items()}
        return clamped, {tp: max(min(at, ends.get(tp, at)), clamped.get(tp, 0)) for tp, at in end.items()}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one range, in a task."""
        return _read(partition, self._options)


# -- streams -----------------------------------------------------------------------------------------------------


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One streaming query's side of the driver; `read` alone runs elsewhere, on a copy."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cluster: SourceCluster | None = None
        # What this process began with, where no checkpoint said so, and whether another time it would be other.
        self._initial: Positions | None = None
        self._began_now = False
        self._is_first_look = True
        self._latest: Positions | None = None
        # Where an availableNow query ends.
        self._target: Positions | None = None
        self._last_batch_s: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What the tasks get: connections stay on the driver."""
        return {**self.__dict__, "_cluster": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """What a task begins with: Spark's next bytes come when these are acknowledged."""
        self.__dict__.update(state)
        settle()

    def _asked(self) -> SourceCluster:
        if self._cluster is None:
            from ottla.spark.cluster import SourceCluster

            self._cluster = SourceCluster(self._options)
        return self._cluster

    # -- what Spark asks ---------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint begins: the same each time it is asked."""
        if self._initial is None:
            cluster = self._asked()
            partitions = cluster.partitions()
            place = self._options.starting
            self._initial, self._began_now = _resolve(cluster, self._options, partitions, place, is_start=True)
            if self._target is not None:
                # Records came between the two questions: they are for the next run.
                self._initial = {tp: min(at, self._target.get(tp, at)) for tp, at in self._initial.items()}
            logger.info("The query begins at %s", json_of(self._initial))
        return json_of(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """maxOffsetsPerTrigger. Never "all": so that when Spark says all, it is Trigger.Once."""
        return ReadMaxRows(self._options.max_offsets_per_trigger or OFFSET_MAX)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember where everything ends now: the query ends there."""
        cluster = self._asked()
        # A topic that is gone is the matter of initialOffset, or of failOnDataLoss where the query has read from it.
        self._target = cluster.ends(cluster.partitions(all_named=False))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, dict[str, int]]:  # noqa: N802
        """Where the next batch ends, `start` if there is none. One round trip, and what was processed is committed.

        Where the query began "now" (latest), its first batch is empty: Spark stores the end of a batch when it plans
        it, but never the place where the first one began. Were the first batch to have records and the query to die
        in it, the next run would begin at another now, after them.
        """
        at = positions(start)
        is_first, self._is_first_look = self._is_first_look and at == self._initial, False
        if is_first and self._began_now and not isinstance(limit, ReadAllAvailable):
            self._commit(at)
            return start
        latest = self._look(at)
        end = self._end(at, latest, limit)
        self._commit(at)
        if end == at:
            if self._options.commit_group is not None:  # the query may be over and this its last call
                self._asked().settle()
                self._commit(at)  # what was not begun because another was under way
                self._asked().settle()
            return start
        return json_of(end)

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:  # noqa: N802 - Spark's name
        """Where everything ended at the last look: `latestOffset` in a progress report, from which lag follows."""
        return None if self._latest is None else json_of(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch. The cluster is asked only for where new partitions begin."""
        first, last = positions(start), positions(end)
        new = new_partitions(first, last)
        first_of_new = self._asked().firsts(new) if new else {}
        planned = plan(first, last, first_of_new, from_initial=first == self._initial)
        _report(planned.losses, self._options)
        return _partitions(planned.ranges, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark is done with everything before `end`. It says so a batch late: latestOffset has done it by then."""
        self._commit(positions(end))

    def stop(self) -> None:
        """The query ended; Spark may also just end the process."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one range, in a task."""
        return _read(partition, self._options)

    # -- how it decides ----------------------------------------------------------------------------------------

    def _look(self, at: Positions) -> Positions:
        """Where everything ends, for a query at `at`. Raises DataLossError."""
        if self._target is not None:
            found = reconcile(at, self._target, {})
        else:
            survey = self._asked().survey(at)
            found = reconcile(at, survey.latest, survey.recreated)
        _report(found.losses, self._options)
        self._latest = found.latest
        return found.latest

    def _end(self, at: Positions, latest: Positions, limit: ReadLimit) -> Positions:
        if isinstance(limit, ReadAllAvailable):
            return latest
        new = new_partitions(at, latest)
        first = at | (self._asked().firsts(new) if new else {})
        if self._is_too_little(pending(first, latest)):
            return at
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else OFFSET_MAX
        return latest if most >= OFFSET_MAX else admit(first, latest, most)

    def _is_too_little(self, offsets: int) -> bool:
        """Whether to wait for minOffsetsPerTrigger. An availableNow query does not: nothing more would come."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None:
            return False
        now_s = time.monotonic()
        waited_ms = None if self._last_batch_s is None else (now_s - self._last_batch_s) * 1000
        if offsets < least and waited_ms is not None and waited_ms < self._options.max_trigger_delay_ms:
            return True
        self._last_batch_s = now_s
        return False

    def _commit(self, at: Mapping[TopicPartition, int]) -> None:
        if self._options.commit_group is not None:
            self._asked().commit(self._options.commit_group, at)
