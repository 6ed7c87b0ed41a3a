"""A PostgreSQL server of a test, with logical decoding, on a free loopback port.

`PostgresServer` is a context manager: it makes a database cluster, starts it, and deletes it at the end. As root it
runs as another user, since PostgreSQL refuses root. `kill` is kill -9 of all its processes; `start` starts it again.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .database import DatabaseProcess

START_TIMEOUT_S = 30.0
INSTALL_TIMEOUT_S = 60.0
SETTINGS: Mapping[str, str] = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "max_connections": "60",
    "shared_buffers": "64MB",
    "logging_collector": "off",
    "wal_sender_timeout": "20s",
}


def programs() -> Path | None:
    """Return the folder of initdb and postgres, or None: $OTTLA_POSTGRES, the newest of Debian, or the PATH."""
    given = os.environ.get("OTTLA_POSTGRES")
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda each: float(each.parent.name), reverse=True)
    found = shutil.which("initdb")
    for each in [*([Path(given)] if given else []), *debian, *([Path(found).resolve().parent] if found else [])]:
        if (each / "initdb").exists() and (each / "postgres").exists():
            return each
    return None


def missing_for_postgres() -> str | None:
    """Return why no PostgreSQL server can run, as a sentence, or None."""
    return None if programs() is not None else "no PostgreSQL server: run `make peers`, or install postgresql"


class PostgresServer:
    """A server and its database cluster."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.user, self.host = "postgres", DatabaseProcess.host
        self._settings = {**SETTINGS, "fsync": "off", **(settings or {})}

    def __enter__(self) -> Self:
        folder = programs()
        assert folder is not None, missing_for_postgres()
        self._programs = folder
        self._process = process = DatabaseProcess("PostgreSQL", "postgres")
        self.port = process.port
        command = [str(folder / "initdb"), "-D", str(process.data), "-A", "trust", "-U", self.user, "--no-sync"]
        try:
            process.prepare([*command, "-E", "UTF8", "--locale=C.UTF-8"], INSTALL_TIMEOUT_S)
            self.start()
        except BaseException:
            process.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._process.remove()

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        options = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        command = [str(self._programs / "postgres"), "-D", str(self._process.data), "-p", str(self.port), *options]
        self._process.start(command, self._accepts, START_TIMEOUT_S)

    def _accepts(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.dsn("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    @property
    def is_running(self) -> bool:
        """Whether the server was started, and not stopped or killed."""
        return self._process.is_running

    def stop(self) -> None:
        """Stop the server at once; connections are cut."""
        self._process.stop(signal.SIGQUIT)

    def kill(self) -> None:
        """Kill -9 of the server and all its processes."""
        self._process.kill()
        # Children are sessions' leaders of their own on some versions; the postmaster's death ends them.
        (self._process.data / "postmaster.pid").unlink(missing_ok=True)
        time.sleep(0.2)

    def dsn(self, database: str) -> str:
        """Return the connection string of a database."""
        return f"host={self.host} port={self.port} user={self.user} dbname={database}"

    def connect(self, database: str, **options: Any) -> Any:
        """Open a connection in autocommit mode."""
        import psycopg

        return psycopg.connect(self.dsn(database), autocommit=True, **options)

    def create(self, database: str) -> None:
        """Create a database."""
        with self.connect("postgres") as connection:
            connection.execute(f'create database "{database}"')
