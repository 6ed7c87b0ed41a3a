"""The readers of `format("ottla")`, which plan the offsets on the driver.

Spark calls a reader's `partitions` on the driver, and `read` in the tasks. For a streaming query, one process has one
StreamReader while the query runs. For each trigger, Spark calls:

    latestOffset(start, limit)   start is processed and in Spark's commit log
    partitions(start, end)       end is in Spark's offset log; after a crash the first call, with the same offsets
    read(range)                  in the tasks, and again after each failure
    commit(end)                  with the end of the previous batch, only if there is a next batch

Offset planning rests on three invariants:

- Equal offsets give equal ranges (`offsets.plan`), so a re-run batch reads the same records.
- The end of a batch never exceeds the end of the log at planning time, so a task does not wait for future records.
- A batch's start is stored before its records are read. Spark stores the end of a batch when it plans the batch, but
  not the initial offset of a query. If that depends on the current end of the log, the first batch is empty and stores
  it (see `latestOffset`).

The offsets of processed records are committed to `commitGroup` in `latestOffset`, because Spark calls it after every
batch, including the last batch of an availableNow query. A trigger costs one ListOffsets round trip.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from ottla.common.ids import TopicPartition
from ottla.spark.offsets import (
    EARLIEST,
    FEW_OFFSETS,
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
    SourceOptions,
    Timestamp,
    Timestamps,
    check_covered,
)
from ottla.spark.workers import tune_worker

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

    from ottla.spark.cluster import SourceCluster

logger = logging.getLogger("ottla.spark")


class DataLossError(Exception):
    """Records of a query are or may be lost, and failOnDataLoss is true."""


class RangePartition(InputPartition):
    """The work of one task: one range, or several small ranges."""

    def __init__(self, value: tuple[OffsetRange, ...]) -> None:
        super().__init__(value)


def _partitions(ranges: Sequence[OffsetRange], options: SourceOptions, few: int = 0) -> list[RangePartition]:
    if options.min_partitions is None and options.max_records_per_partition is None:
        return [RangePartition(some) for some in pack(ranges, few)]
    parts = split(ranges, options.min_partitions, options.max_records_per_partition)
    return [RangePartition((part,)) for part in parts]


def _read(partition: InputPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task. Without records there is no batch; Spark needs none."""
    if not isinstance(partition, RangePartition):  # Spark creates this for a plan without ranges
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
    tune_worker()
    return batches


# -- starting and ending offsets ----------------------------------------------------------------------------------


def resolve_place(
    cluster: SourceCluster, options: SourceOptions, partitions: list[TopicPartition], place: Place, is_start: bool
) -> tuple[Positions, bool]:
    """Return the offsets of a place, and whether they depend on the current end of the log. Raises ClusterError."""
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
                    f"{tp} has no record at or after timestamp {times[tp]}; to read it from its "
                    "end, set the option startingOffsetsByTimestampStrategy=latest"
                )
    return found


def _report(losses: Sequence[str], options: SourceOptions) -> None:
    if not losses:
        return
    text = "; ".join(losses)
    if options.fail_on_data_loss:
        raise DataLossError(
            f"Records may be lost: {text}. The query stops because failOnDataLoss is true; set it to false to "
            "continue with the existing records"
        )
    logger.warning("Records may be lost: %s. The query continues because failOnDataLoss is false", text)


# -- batch --------------------------------------------------------------------------------------------------------


class BatchReader(DataSourceReader):
    """Reads the records between two places once."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the reader in a task. Spark sends the next bytes after these are acknowledged."""
        self.__dict__.update(state)
        tune_worker()

    def partitions(self) -> list[InputPartition]:
        """Ask the cluster for the ranges to read. Raises ClusterError, OptionError, DataLossError."""
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
        start, _ = resolve_place(cluster, options, partitions, options.starting, is_start=True)
        end, _ = resolve_place(cluster, options, partitions, options.ending, is_start=False)
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
        """Limit the given offsets to those that exist; report the others as lost."""
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
        """Yield the records of one task; called in the task."""
        return _read(partition, self._options)


# -- streams ------------------------------------------------------------------------------------------------------


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the offsets of one streaming query on the driver. Only `read` runs in the tasks, on copies."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cluster: SourceCluster | None = None
        # The initial offset of a query without a checkpoint, and whether it depends on the current end of the log.
        self._initial: Positions | None = None
        self._initial_is_latest = False
        self._is_first_trigger = True
        self._latest: Positions | None = None
        # The end of an availableNow query.
        self._target: Positions | None = None
        self._last_batch_s: float | None = None
        self.is_waiting = False
        """Whether there are records that wait for more (minOffsetsPerTrigger)."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for the tasks: connections stay on the driver."""
        return {**self.__dict__, "_cluster": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the reader in a task. Spark sends the next bytes after these are acknowledged."""
        self.__dict__.update(state)
        tune_worker()

    def _connected(self) -> SourceCluster:
        if self._cluster is None:
            from ottla.spark.cluster import SourceCluster

            self._cluster = SourceCluster(self._options)
        return self._cluster

    # -- called by Spark ------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802 - Spark's name
        """Return the start of a query without a checkpoint; every call returns the same."""
        if self._initial is None:
            cluster = self._connected()
            partitions = cluster.partitions()
            place = self._options.starting
            self._initial, self._initial_is_latest = resolve_place(
                cluster, self._options, partitions, place, is_start=True
            )
            if self._target is not None:
                # Records that arrived since prepareForTriggerAvailableNow are for the next run.
                self._initial = {tp: min(at, self._target.get(tp, at)) for tp, at in self._initial.items()}
            logger.info("The query starts at %s", json_of(self._initial))
        return json_of(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return maxOffsetsPerTrigger. It is never "all available", so that limit always means Trigger.Once."""
        return ReadMaxRows(self._options.max_offsets_per_trigger or OFFSET_MAX)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Store the current ends of the partitions: the query ends there."""
        cluster = self._connected()
        # A missing topic is reported by initialOffset, or as data loss if the query has read from it.
        self._target = cluster.ends(cluster.partitions(all_named=False))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, dict[str, int]]:  # noqa: N802
        """Return the end of the next batch, or `start` if there is none, and commit the processed offsets.

        If the query started at the current end of the log (latest), its first batch is empty. Spark stores the end of
        a batch when it plans the batch, but never the start of the first batch. If the first batch had records and the
        query crashed in it, the next run would start after them.
        """
        at = positions(start)
        is_first, self._is_first_trigger = self._is_first_trigger and at == self._initial, False
        if is_first and self._initial_is_latest and not isinstance(limit, ReadAllAvailable):
            self._commit(at)
            return start
        latest = self._find_ends(at)
        end = self._end(at, latest, limit)
        self._commit(at)
        if end == at:
            if self._options.commit_group is not None:  # this may be the last call of the query
                self._connected().wait_for_commit()
                self._commit(at)  # it was skipped if another commit was in flight
                self._connected().wait_for_commit()
            return start
        return json_of(end)

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:  # noqa: N802 - Spark's name
        """Return the last known ends of the partitions, for `latestOffset` in progress reports."""
        return None if self._latest is None else json_of(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch. Only the first offsets of new partitions need a request to the cluster."""
        first, last = positions(start), positions(end)
        new = new_partitions(first, last)
        first_of_new = self._connected().firsts(new) if new else {}
        planned = plan(first, last, first_of_new, from_initial=first == self._initial)
        _report(planned.losses, self._options)
        return _partitions(planned.ranges, self._options, FEW_OFFSETS)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit `end`. Spark calls this one batch late, when latestOffset has committed it already."""
        self._commit(positions(end))

    def stop(self) -> None:
        """Close the connections. Spark may also end the process without this call."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task; called in the task."""
        return _read(partition, self._options)

    # -- planning -------------------------------------------------------------------------------------------------

    def _find_ends(self, at: Positions) -> Positions:
        """Return the ends of the partitions for a query at `at`. Raises DataLossError."""
        if self._target is not None:
            found = reconcile(at, self._target, {})
        else:
            survey = self._connected().survey(at)
            found = reconcile(at, survey.latest, survey.recreated)
        _report(found.losses, self._options)
        self._latest = found.latest
        return found.latest

    def _end(self, at: Positions, latest: Positions, limit: ReadLimit) -> Positions:
        if isinstance(limit, ReadAllAvailable):
            return latest
        new = new_partitions(at, latest)
        first = at | (self._connected().firsts(new) if new else {})
        if self._waits_for_more(pending(first, latest)):
            return at
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else OFFSET_MAX
        return latest if most >= OFFSET_MAX else admit(first, latest, most)

    def _waits_for_more(self, offsets: int) -> bool:
        """Whether to wait for minOffsetsPerTrigger. An availableNow query does not wait: its end is fixed."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None:
            return False
        now_s = time.monotonic()
        waited_ms = None if self._last_batch_s is None else (now_s - self._last_batch_s) * 1000
        waits = offsets < least and waited_ms is not None and waited_ms < self._options.max_trigger_delay_ms
        self.is_waiting = waits and offsets > 0
        self._last_batch_s = self._last_batch_s if waits else now_s
        return waits

    def _commit(self, at: Mapping[TopicPartition, int]) -> None:
        if self._options.commit_group is not None:
            self._connected().commit(self._options.commit_group, at)
