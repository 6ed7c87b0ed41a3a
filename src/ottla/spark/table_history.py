"""Whether a table as it was can be read: compaction deletes old records of keys that have newer ones.

The cleaner of a log goes from its beginning to some offset. Before that offset each key has one record, the latest; and
if the cleaner has gone beyond the end of the wanted records, the latest one before that end may be deleted. Two facts
show that nothing is missing: no offset is missing; or some key has two records before the end, because then the cleaner
has not reached the second one. Otherwise it is unknown, and `check_history` raises TableError.
"""

from __future__ import annotations

from typing import Any, Final

try:
    import pyarrow.compute as pc  # type: ignore[import-untyped,unused-ignore]
except ImportError:
    raise ImportError("A table as it was (as_of) needs the package pyarrow: pip install pyarrow") from None

from ottla.clients.admin import Admin, ConfigResource
from ottla.common.ids import TopicPartition
from ottla.spark.offsets import OffsetRange
from ottla.spark.options import SourceOptions
from ottla.spark.range_reader import read_range
from ottla.spark.table_copy import latest_by_key
from ottla.spark.table_ends import TableError

KEYS_BYTES: Final = 128 * 1024 * 1024
"""The most memory for keys. If that is not enough, it is not known whether a key has two records."""


def check_history(admin: Admin, source: SourceOptions, tp: TopicPartition, first: int, end: int) -> None:
    """Raise TableError unless the records of a partition from `first` to before `end` are complete.

    Records before `first`, the beginning of the log, are not in the table today either. Reads the records up to the
    second one of a key. Raises ClientError.
    """
    if end <= first:
        if first == 0:
            return
        raise TableError(
            f"{tp}: the records before offset {end} are deleted: the log begins at offset {first}. Look back less far"
        )
    if _is_complete(source, tp, first, end):
        return
    settings = admin.describe_config(ConfigResource.topic(tp.topic))
    if "compact" not in (settings["cleanup.policy"].value or ""):
        return
    raise TableError(
        f"{tp}: records before offset {end} may have been compacted away: some offsets are missing, and no key has two "
        f"records. min.compaction.lag.ms of the topic is {settings['min.compaction.lag.ms'].value}: it must be as long "
        "as you want to look back"
    )


def _is_complete(source: SourceOptions, tp: TopicPartition, first: int, end: int) -> bool:
    """Whether no offset is missing, or a key has two records."""
    client, wanted = dict(source.client), OffsetRange(tp.topic, tp.partition, first, end)
    seen: list[Any] = []
    count = size = 0
    for records in read_range(client, wanted, isolation_level=source.isolation_level, fail_on_data_loss=False):
        count += records.num_rows
        keys = records.column("key").drop_null()
        if latest_by_key(records).num_rows < len(keys) or any(_have_common(keys, earlier) for earlier in seen):
            return True
        size += keys.nbytes
        if size <= KEYS_BYTES:
            seen.append(keys)
    return count == end - first


def _have_common(keys: Any, others: Any) -> bool:
    return bool(pc.any(pc.is_in(keys, value_set=others)).as_py())
