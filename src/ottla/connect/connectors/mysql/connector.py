"""The connector: one task, its settings, and checks of the server before it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.connect.api import Config
from ottla.connect.connectors.capture.connector import CaptureConnector, Database
from ottla.connect.connectors.capture.filters import faults
from ottla.connect.connectors.capture.settings import Options
from ottla.connect.connectors.mysql import catalog, verification
from ottla.connect.connectors.mysql.columns import codec
from ottla.connect.connectors.mysql.events import EventMaker
from ottla.connect.connectors.mysql.positions import LogPosition
from ottla.connect.connectors.mysql.session import connect, errors
from ottla.connect.connectors.mysql.settings import CONFIG, options_of, unsupported
from ottla.connect.connectors.mysql.task import MysqlTask
from ottla.connect.errors import ConnectError, DataError

_VARIABLES: Final = {
    "log_bin": ("ON", "set log_bin in the server's configuration, and restart it"),
    "binlog_format": ("ROW", "SET GLOBAL binlog_format = ROW"),
    "binlog_row_image": ("FULL", "SET GLOBAL binlog_row_image = FULL"),
    "binlog_row_metadata": ("FULL", "SET GLOBAL binlog_row_metadata = FULL; the log needs names of columns"),
}


class MysqlConnector(CaptureConnector):
    """Captures the changes of a MariaDB or MySQL server, as Debezium's connectors do."""

    config_def = CONFIG
    task_class = MysqlTask
    database = Database(options_of, LogPosition.of, verification.table_names, verification.table_rows)

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
