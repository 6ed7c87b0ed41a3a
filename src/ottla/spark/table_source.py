"""`format("ottla-table")`: the latest record of each key of a topic, read again in each micro-batch.

It is for `ottla.streams`, which registers it. It has the options of a batch read with `format("ottla")`, and:

- `subscribe` names one topic.
- `groupPrefix`: a streaming query commits the ends of the table in each micro-batch to the group with this prefix and
  the query's id (`table_ends`). Without it each read has the current ends.
- `tasks`: the number of tasks. With one, each key has one row. With several, a key whose records are in several
  partitions has a row for each.
- `endingTimestamp`, `endingOffsetsByTimestamp` or `endingOffsets`: the table as it was. The ends are chosen once, when
  the query starts.

The columns are `key` (binary), `value` (as in `format("ottla")`), `partition`, `offset`, `timestamp`. Records without a
key are skipped. Tasks need memory for their rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType
from pyspark.taskcontext import TaskContext

from ottla.spark.offsets import Positions
from ottla.spark.options import (
    Latest,
    SourceOptions,
    common_settings,
)
from ottla.spark.readers import resolve_place
from ottla.spark.source import source_schema
from ottla.spark.table_options import COLUMNS, TableOptions, read_table_options
from ottla.spark.workers import tune_worker

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

NAME: Final = "ottla-table"


class TableDataSource(DataSource):
    """The tables of `ottla.streams`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for format(...)."""
        return NAME

    def schema(self) -> StructType:
        """Check the options and return the columns."""
        whole = source_schema(read_table_options(self.options).source)
        return StructType([whole[name] for name in COLUMNS])

    def reader(self, schema: StructType) -> TableReader:  # noqa: ARG002 - Spark's
        """Return the reader."""
        return TableReader(read_table_options(self.options))


class TablePartition(InputPartition):
    """The work of one task: the partitions of the topic whose number modulo the number of tasks is `value`."""

    def __init__(self, value: int, fixed: Positions | None = None) -> None:
        super().__init__(value)
        self.fixed = fixed
        """The ends of a table as it was. Spark copies the reader for the tasks before it calls `partitions`."""


class TableReader(DataSourceReader):
    """Reads a table. Spark calls `partitions` once in a query, and `read` in each micro-batch."""

    def __init__(self, options: TableOptions) -> None:
        self._options = options

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the reader in a task. Spark sends the next bytes after these are acknowledged."""
        self.__dict__.update(state)
        tune_worker()

    def partitions(self) -> list[InputPartition]:
        """Return the tasks. Asks the cluster for the ends of a table as it was.

        Raises ClusterError, OptionError, TableError.
        """
        source = self._options.source
        fixed = None if isinstance(source.ending, Latest) else _ends(source)
        return [TablePartition(task, fixed) for task in range(self._options.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task. Raises TableError, ClientError, FormatError."""
        from ottla.spark.table_reader import read_table

        context = TaskContext.get()
        get_property = (lambda _: None) if context is None else context.getLocalProperty
        fixed = partition.fixed if isinstance(partition, TablePartition) else None
        rows = read_table(self._options, partition.value, fixed, get_property)
        tune_worker()
        return rows


def _ends(options: SourceOptions) -> Positions:
    from ottla.clients.admin import Admin, OffsetSpec
    from ottla.spark.cluster import SourceCluster
    from ottla.spark.table_history import check_history

    cluster = SourceCluster(options)
    try:
        ends, _ = resolve_place(cluster, options, cluster.partitions(), options.ending, is_start=False)
    finally:
        cluster.close()
    with Admin(common_settings(options.client)) as admin:
        firsts = admin.list_offsets(dict.fromkeys(ends, OffsetSpec.EARLIEST))
        for tp, end in ends.items():
            check_history(admin, options, tp, firsts[tp].offset, end)
    return ends
