"""One PostgreSQL server for all tests here; each test has a database, a slot and a publication of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.connect.postgres.driver import Database
from tests.peers.database import require
from tests.peers.postgres import PostgresServer, missing_for_postgres

_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests share a server: one worker of pytest-xdist runs them all."""
    for item in items:
        if "tests/connect/postgres" in str(item.path):
            item.add_marker(pytest.mark.xdist_group("postgres"))


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """A server."""
    require(missing_for_postgres())
    with PostgresServer() as running:
        yield running


@pytest.fixture
def database(server: PostgresServer) -> Iterator[Database]:
    """An empty database, with the settings to capture it."""
    name = f"db{next(_numbers)}"
    server.create(name)
    database = Database(server, name)
    yield database
    database.close()


@pytest.fixture
def capture(database: Database) -> Any:
    """Start a task on the database; see `Database.capture`."""
    return database.capture
