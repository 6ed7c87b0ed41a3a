"""One MariaDB server for all tests here; each test has a database of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.connect.mysql.driver import Database
from tests.peers.database import require
from tests.peers.mariadb import MariaDbServer, missing_for_mariadb

_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests share a server: one worker of pytest-xdist runs them all."""
    for item in items:
        if "tests/connect/mysql" in str(item.path):
            item.add_marker(pytest.mark.xdist_group("mysql"))


@pytest.fixture(scope="session")
def server() -> Iterator[MariaDbServer]:
    """A server."""
    require(missing_for_mariadb())
    with MariaDbServer() as running:
        yield running


@pytest.fixture
def database(server: MariaDbServer) -> Iterator[Database]:
    """An empty database, with the settings to capture it."""
    name = f"c{next(_numbers)}"
    server.create(name)
    database = Database(server, name)
    yield database
    database.close()
