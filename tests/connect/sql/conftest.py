"""One server of each database for all tests here; each test has a database of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.connect.sql.driver import Site
from tests.peers.database import require
from tests.peers.mariadb import MariaDbServer, missing_for_mariadb
from tests.peers.postgres import PostgresServer, missing_for_postgres

_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests share servers: one worker of pytest-xdist runs them all."""
    for item in items:
        if "tests/connect/sql" in str(item.path):
            item.add_marker(pytest.mark.xdist_group("sql"))


@pytest.fixture(scope="session")
def servers() -> Iterator[dict[str, Any]]:
    """The servers that have been started."""
    started: dict[str, Any] = {}
    yield started
    for each in started.values():
        each.__exit__(None, None, None)


@pytest.fixture
def site(request: pytest.FixtureRequest, servers: dict[str, Any], tmp_path: Path) -> Iterator[Site]:
    """An empty database of the kind that the test's parameter names."""
    kind, name = request.param, f"db{next(_numbers)}"
    server = None
    if kind != "sqlite":
        require(missing_for_mariadb() if kind == "mysql" else missing_for_postgres())
        if kind not in servers:
            servers[kind] = (MariaDbServer() if kind == "mysql" else PostgresServer()).__enter__()
        server = servers[kind]
        server.create(name)
    site = Site(kind, server, name, tmp_path)
    yield site
    site.close()
