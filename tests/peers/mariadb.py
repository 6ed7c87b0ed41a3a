"""A MariaDB server of a test, with a binary log of rows, on a free loopback port.

`MariaDbServer` is a context manager: it makes a data directory, starts the server, and deletes it at the end. As root
it runs as another user. `kill` is kill -9; `start` starts it again.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .database import DatabaseProcess

START_TIMEOUT_S = 40.0
INSTALL_TIMEOUT_S = 240.0
SETTINGS: Mapping[str, str] = {
    "bind-address": "127.0.0.1",
    "server-id": "1",
    "log-bin": "binlog",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
    "sync-binlog": "1",
    "innodb-flush-log-at-trx-commit": "1",
    "innodb-buffer-pool-size": "32M",
    "innodb-log-file-size": "16M",
    "performance-schema": "OFF",
    "skip-name-resolve": "1",
    "character-set-server": "utf8mb4",
}


def missing_for_mariadb() -> str | None:
    """Return why no MariaDB server can run, as a sentence, or None."""
    found = _program("mariadbd") and _program("mariadb-install-db")
    return None if found else "no MariaDB server: run `make peers`, or install mariadb-server"


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")


class MariaDbServer:
    """A server and its data directory."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.user, self.password, self.host = "root", "", DatabaseProcess.host
        self._kind, self._system_user = "MariaDB", "mysql"
        self._settings = {**SETTINGS, **(settings or {})}

    def __enter__(self) -> Self:
        assert self._missing() is None, self._missing()
        self._process = process = DatabaseProcess(self._kind, self._system_user)
        self.port = process.port
        try:
            process.prepare(self._installation(), INSTALL_TIMEOUT_S)
            self.start()
        except BaseException:
            process.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.remove()

    def _missing(self) -> str | None:
        return missing_for_mariadb()

    def _program(self) -> list[str]:
        """The program of the server, and where its files are."""
        return [str(_program("mariadbd")), "--no-defaults", f"--datadir={self.data}"]

    def _installation(self) -> list[str]:
        """The command that makes the data folder."""
        return [
            str(_program("mariadb-install-db")), "--no-defaults", f"--datadir={self.data}",
            "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve",
            "--innodb-log-file-size=16M", "--innodb-buffer-pool-size=32M",
            "--innodb-flush-log-at-trx-commit=0", "--skip-innodb-doublewrite",
        ]  # fmt: skip

    def _options(self) -> dict[str, str]:
        return self._settings

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        home, options = self._process.home, [f"--{name}={value}" for name, value in self._options().items()]
        command = [
            *self._program(), f"--port={self.port}", f"--socket={home / 'socket'}", f"--pid-file={home / 'pid'}",
            *options,
        ]  # fmt: skip
        self._process.start(command, self._accepts, START_TIMEOUT_S)

    def _accepts(self) -> bool:
        import pymysql

        try:
            self.connect(None).close()
        except pymysql.MySQLError:
            return False
        return True

    @property
    def data(self) -> Path:
        """The folder of the data and the logs."""
        return self._process.data

    def kill(self) -> None:
        """Kill -9 of the server."""
        self._process.kill()

    def connect(self, database: str | None, **options: Any) -> Any:
        """Open a connection in autocommit mode."""
        import pymysql

        return pymysql.connect(
            host=self.host, port=self.port, user=self.user, password=self.password, database=database,
            autocommit=True, connect_timeout=5, charset="utf8mb4", init_command="set time_zone = '+00:00'",
            **options,
        )  # fmt: skip

    def create(self, database: str) -> None:
        """Create a database."""
        with self.connect(None) as connection, connection.cursor() as cursor:
            cursor.execute(f"create database `{database}`")
