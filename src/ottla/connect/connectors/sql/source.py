"""The source's task: asks each table for new rows at intervals, and looks for new tables."""

from __future__ import annotations

import logging
import re
import time
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ottla.connect.api import Config, SourceTask, SourceTaskContext
from ottla.connect.config.definition import SettingError
from ottla.connect.connectors.sql.database import Database, TableName
from ottla.connect.connectors.sql.dialects import connect
from ottla.connect.connectors.sql.queries import EPOCH, Mode, TableReader, partition_of
from ottla.connect.connectors.sql.settings import SOURCE, address_of
from ottla.connect.errors import ConnectError
from ottla.connect.records import SourceRecord

logger = logging.getLogger(__name__)
WAIT_S: Final = 0.5
SHARE: Final = "ottla.task"
"""Internal setting of a task: NUMBER/COUNT, its share of the tables."""


class TableFilter:
    """Chooses tables by names and regular expressions. Raises re.error."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._names, self._no_names = set(values["table.whitelist"]), set(values["table.blacklist"])
        self._include = [re.compile(each, re.IGNORECASE) for each in values["table.include.list"]]
        self._exclude = [re.compile(each, re.IGNORECASE) for each in values["table.exclude.list"]]

    def has(self, database: Database, table: TableName) -> bool:
        """Whether a table is read."""
        full = str(partition_of(database, table)["table"])
        names = {table.table, str(table), full}
        if names & self._no_names or any(p.fullmatch(each) for p in self._exclude for each in names):
            return False
        if self._names and not names & self._names:
            return False
        return not self._include or any(p.fullmatch(each) for p in self._include for each in names)


def mode_of(values: Mapping[str, Any]) -> Mode:
    """Return the mode of parsed settings. Raises SettingError."""
    name, times = values["mode"], tuple(each for each in values["timestamp.column.name"] if each)
    if "timestamp" in name and not times:
        raise SettingError(f"Mode {name} needs timestamp.column.name")
    initial = values["timestamp.initial"]
    start = None if initial is None else EPOCH + timedelta(milliseconds=initial)
    if initial == -1:
        start = datetime.now(UTC)
    return Mode(
        name,
        values["incrementing.column.name"] if "incrementing" in name else "",
        times if "timestamp" in name else (),
        timedelta(milliseconds=values["timestamp.delay.interval.ms"]),
        values["batch.max.rows"],
        values["validate.non.null"],
        start if "timestamp" in name else None,
    )


class SqlSourceTask(SourceTask):
    """Reads its share of the tables, one after another."""

    def __init__(self) -> None:
        self._database: Database | None = None
        self._readers: dict[TableName | None, TableReader] = {}
        self._current: TableReader | None = None
        self._look_at = 0.0

    def start(self, context: SourceTaskContext, config: Config) -> None:
        self._context = context
        try:
            self._values = values = SOURCE.parse(config)
            self._mode, self._filter = mode_of(values), TableFilter(values)
            self._database = connect(address_of(values))
        except (SettingError, re.error) as error:
            raise ConnectError(str(error)) from error
        number, _, count = config.get(SHARE, "0/1").partition("/")
        self._share = int(number), int(count)
        self._look()

    def _look(self) -> None:
        """Add readers for tables that are new."""
        database, values = self._connected(), self._values
        self._look_at = time.monotonic() + values["table.poll.interval.ms"] / 1000
        if values["query"]:
            self._add(database, None, values["topic.prefix"])
            return
        number, count = self._share
        with database.errors("list the tables"):
            found = database.tables()
            database.commit()
        for table in found:
            if self._filter.has(database, table) and zlib.crc32(str(table).encode()) % count == number:
                self._add(database, table, values["topic.prefix"] + table.table)
        if not self._readers:
            self._context.report({"waits for": "a table that the settings name"})

    def _add(self, database: Database, table: TableName | None, topic: str) -> None:
        if table not in self._readers:
            offset = self._context.offset(partition_of(database, table))
            self._readers[table] = TableReader(database, self._mode, table, self._values["query"], topic, offset)

    def _connected(self) -> Database:
        assert self._database is not None
        return self._database

    def poll(self) -> Sequence[SourceRecord]:
        now = time.monotonic()
        if now >= self._look_at:
            self._look()
        reader = self._current or min(self._readers.values(), key=lambda each: each.due, default=None)
        if reader is None or reader.due > now:
            next_at = min(self._look_at, reader.due if reader is not None else self._look_at)
            time.sleep(max(0.001, min(WAIT_S, next_at - now)))
            return []
        with self._connected().errors(f"read {reader.topic}"):
            records, more = reader.read()
        # A bulk read keeps its cursor; other tables wait until it has ended.
        self._current = reader if more and self._mode.is_bulk else None
        reader.due = now if more else now + self._values["poll.interval.ms"] / 1000
        return records

    def stop(self) -> None:
        if self._database is None:
            return
        try:
            for each in self._readers.values():
                each.close()
        except ConnectError as error:  # a lost connection has no cursors
            logger.info("Closing after an error: %s", error)
        finally:
            self._database.close()
