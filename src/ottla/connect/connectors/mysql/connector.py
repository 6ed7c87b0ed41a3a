"""The connector: one task, its settings, and checks of the server before it starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from ottla import __version__
from ottla.connect.api import (
    Config,
    Connector,
    ExactlyOnce,
    Finding,
    Kind,
    SinkTask,
    SourceOffset,
    SourceTask,
    TransactionBoundaries,
)
from ottla.connect.config.definition import ConfigDef
from ottla.connect.connectors.capture.filters import faults
from ottla.connect.connectors.capture.settings import Options
from ottla.connect.connectors.capture.topic_verification import verify_tables
from ottla.connect.connectors.mysql import catalog
from ottla.connect.connectors.mysql.columns import codec
from ottla.connect.connectors.mysql.events import EventMaker
from ottla.connect.connectors.mysql.positions import LogPosition
from ottla.connect.connectors.mysql.session import connect, errors
from ottla.connect.connectors.mysql.settings import CONFIG, options_of, unsupported
from ottla.connect.connectors.mysql.task import MysqlTask
from ottla.connect.connectors.mysql.verification import tables_of
from ottla.connect.errors import BadRequestError, ConnectError, DataError

_VARIABLES: Final = {
    "log_bin": ("ON", "set log_bin in the server's configuration, and restart it"),
    "binlog_format": ("ROW", "SET GLOBAL binlog_format = ROW"),
    "binlog_row_image": ("FULL", "SET GLOBAL binlog_row_image = FULL"),
    "binlog_row_metadata": ("FULL", "SET GLOBAL binlog_row_metadata = FULL; the log needs names of columns"),
}


class MysqlConnector(Connector):
    """Captures the changes of a MariaDB or MySQL server, as Debezium's connectors do."""

    kind: ClassVar[Kind] = Kind.SOURCE
    version: ClassVar[str] = __version__
    config_def: ClassVar[ConfigDef] = CONFIG
    task_class: ClassVar[type[SourceTask | SinkTask]] = MysqlTask

    def task_configs(self, most_tasks: int) -> Sequence[Config]:
        """Return one task: a log has one order."""
        del most_tasks
        return [self.config]

    @classmethod
    def problems(cls, config: Config) -> Mapping[str, Sequence[str]]:
        """Check filters, connection, variables of the server, tables and types, all at once."""
        found: dict[str, list[str]] = {name: [text] for name, text in unsupported(config).items()}
        options = options_of(config)
        for name, text in faults(options).items():
            found.setdefault(name, []).append(text)
        if found:
            return found
        try:
            connection: Any = connect(options)
        except ConnectError as error:
            return {"database.hostname": [str(error)]}
        try:
            with errors(options, "check the configuration"), connection.cursor() as cursor:
                _check(cursor, options, found)
        except ConnectError as error:
            found.setdefault("database.user", []).append(str(error))
        finally:
            connection.close()
        return found

    @classmethod
    def exactly_once(cls, config: Config) -> ExactlyOnce:
        """Each record has an exact offset, and the log is repeatable: exactly once."""
        del config
        return ExactlyOnce.SUPPORTED

    @classmethod
    def can_define_transaction_boundaries(cls, config: Config) -> TransactionBoundaries:
        """Transactions of the database are whole in transactions of Kafka."""
        del config
        return TransactionBoundaries.SUPPORTED

    @classmethod
    def alter_offsets(cls, config: Config, offsets: Sequence[SourceOffset] | None) -> None:
        """Accept offsets with `file` and `pos` of the partition {"server": topic.prefix}."""
        partition = {"server": options_of(config).prefix}
        for each in offsets or ():
            if dict(each.partition) != partition:
                raise BadRequestError(
                    f"{dict(each.partition)} is not a source partition of this connector: use {partition}."
                )
            if each.offset is not None:
                LogPosition.of(each.offset)

    @classmethod
    def verify(cls, config: Config, clients: Mapping[str, object]) -> Iterator[Finding]:
        """Compare each captured table with its topic by ranges of the key."""
        options = options_of(config)
        return verify_tables(config, options, tables_of(options), clients)


def _check(cursor: Any, options: Options, found: dict[str, list[str]]) -> None:
    for name, (wanted, remedy) in _VARIABLES.items():
        cursor.execute("show global variables like %s", [name])
        row = cursor.fetchone()
        if row is None or row[1].upper() != wanted:
            text = f"{name} is {row[1] if row else 'not known to the server'}, not {wanted}: {remedy}."
            found.setdefault("database.hostname", []).append(text)
    maker = EventMaker(options, "mysql")
    tables = [each for each in catalog.tables(cursor) if maker.captures(each.schema, each.name)]
    if not tables:
        found.setdefault("table.include.list", []).append("No table is captured, or the user may not read any.")
    for table in tables:
        for column in table.columns:
            if maker.filters.has_column(table.full_name, column.name):
                try:
                    codec(column, options)
                except DataError as error:
                    found.setdefault("column.exclude.list", []).append(f"{error} (table {table.full_name}).")
