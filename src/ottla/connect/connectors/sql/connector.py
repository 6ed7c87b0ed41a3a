"""The connectors: settings, checks against the database, and the division of tables over tasks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from ottla import __version__
from ottla.connect.api import Config, Connector, ExactlyOnce, Kind, SinkTask, SourceOffset, SourceTask
from ottla.connect.config.definition import ConfigDef, SettingError
from ottla.connect.connectors.sql.database import TableName
from ottla.connect.connectors.sql.dialects import connect
from ottla.connect.connectors.sql.queries import Place
from ottla.connect.connectors.sql.settings import SINK, SOURCE, address_of
from ottla.connect.connectors.sql.sink import SqlSinkTask
from ottla.connect.connectors.sql.source import SHARE, SqlSourceTask, TableFilter, mode_of
from ottla.connect.errors import BadRequestError, ConnectError


class SqlSourceConnector(Connector):
    """Rows of tables as records."""

    kind: ClassVar[Kind] = Kind.SOURCE
    version: ClassVar[str] = __version__
    config_def: ClassVar[ConfigDef] = SOURCE
    task_class: ClassVar[type[SourceTask | SinkTask]] = SqlSourceTask

    def task_configs(self, most_tasks: int) -> Sequence[Config]:
        """Divide tables by their names, so that each task also finds its share of new tables."""
        values = SOURCE.parse(self.config)
        count = 1 if values["query"] else max(1, min(most_tasks, len(values["table.whitelist"]) or most_tasks))
        return [{**self.config, SHARE: f"{number}/{count}"} for number in range(count)]

    @classmethod
    def problems(cls, config: Config) -> Mapping[str, Sequence[str]]:
        """Check that the mode is complete, and that the tables of the whitelist exist."""
        values = SOURCE.parse(config)
        try:
            mode_of(values)
        except SettingError as error:
            return {"timestamp.column.name": [str(error)]}
        try:
            chosen = TableFilter(values)
        except re.error as error:
            return {"table.include.list": [f"A regular expression is not valid: {error}"]}
        try:
            database = connect(address_of(values))
        except ConnectError as error:
            return {"connection.url": [str(error)]}
        try:
            with database.errors("list the tables"):
                tables = database.tables()
        except ConnectError as error:
            return {"connection.user": [str(error)]}
        finally:
            database.close()
        known = {name for each in tables for name in (each.table, str(each))}
        missing = [each for each in values["table.whitelist"] if TableName.parse(each).table not in known]
        if missing:
            return {"table.whitelist": [f"There is no table {', '.join(missing)} in {database.address}."]}
        if not values["query"] and not any(chosen.has(database, each) for each in tables):
            return {"table.include.list": [f"No table of {database.address} is chosen."]}
        return {}

    @classmethod
    def exactly_once(cls, config: Config) -> ExactlyOnce:
        """Each row has an exact offset, except in mode bulk, which reads everything again."""
        return ExactlyOnce.UNSUPPORTED if config.get("mode") == "bulk" else ExactlyOnce.SUPPORTED

    @classmethod
    def alter_offsets(cls, config: Config, offsets: Sequence[SourceOffset] | None) -> None:
        """Accept offsets with numbers `incrementing`, `timestamp` and `timestamp_nanos`."""
        del config
        for partition, offset in offsets or ():
            if not {"table", "query"} & set(partition):
                raise BadRequestError(f"{dict(partition)} is not a source partition: it has no table.")
            Place.of(offset)


class SqlSinkConnector(Connector):
    """Records as rows of tables."""

    kind: ClassVar[Kind] = Kind.SINK
    version: ClassVar[str] = __version__
    config_def: ClassVar[ConfigDef] = SINK
    task_class: ClassVar[type[SourceTask | SinkTask]] = SqlSinkTask

    @classmethod
    def problems(cls, config: Config) -> Mapping[str, Sequence[str]]:
        """Check that the key's mode fits the mode of writing, and the connection."""
        values = SINK.parse(config)
        found: dict[str, Sequence[str]] = {}
        if values["delete.enabled"] and values["pk.mode"] != "record_key":
            found["delete.enabled"] = ["delete.enabled=true needs pk.mode=record_key."]
        if values["insert.mode"] != "insert" and values["pk.mode"] == "none":
            found["pk.mode"] = [f"insert.mode={values['insert.mode']} needs a key: pk.mode must not be none."]
        if values["pk.mode"] == "kafka" and len(values["pk.fields"]) not in (0, 3):
            found["pk.fields"] = ["pk.mode=kafka needs three names: topic, partition and offset."]
        if not found:
            try:
                connect(address_of(values)).close()
            except ConnectError as error:
                found["connection.url"] = [str(error)]
        return found
