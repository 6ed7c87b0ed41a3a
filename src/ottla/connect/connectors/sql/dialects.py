"""Opens a connection with the class of its database. Drivers are optional packages."""

# ruff: noqa: PLC0415

from __future__ import annotations

from ottla.connect.connectors.sql.database import Database
from ottla.connect.connectors.sql.urls import MYSQL, POSTGRESQL, SQLITE, Address
from ottla.connect.errors import ConnectError


def connect(address: Address) -> Database:
    """Open a connection. Raises RetriableError, and ConnectError for a driver that is not installed."""
    try:
        return _class(address.dialect)(address)
    except ModuleNotFoundError as error:
        extra = "postgres" if address.dialect == POSTGRESQL else "mysql"
        raise ConnectError(f"{address} needs the package {error.name}: pip install 'ottla[{extra}]'") from error


def _class(dialect: str) -> type[Database]:
    if dialect == SQLITE:
        from ottla.connect.connectors.sql.sqlite import Sqlite

        return Sqlite
    if dialect == MYSQL:
        from ottla.connect.connectors.sql.mysql import Mysql

        return Mysql
    from ottla.connect.connectors.sql.postgresql import Postgresql

    return Postgresql
