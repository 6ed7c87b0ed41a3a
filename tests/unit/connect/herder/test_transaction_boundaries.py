"""transaction.boundary=connector is accepted for connectors that define their transactions."""

from __future__ import annotations

import pytest

from ottla.connect.herder.installed_plugins import InstalledPlugins
from ottla.connect.herder.validation import Validator, WorkerRules
from tests.connect.rest.serving import CONVERTERS


@pytest.mark.parametrize(
    ("name", "accepted"),
    [
        ("postgres", True),
        ("mariadb", True),
        ("io.debezium.connector.mysql.MySqlConnector", True),
        ("FileStreamSource", False),
        ("tests.connect.worker.sources:TensConnector", True),
        ("tests.connect.worker.sources:numbers", False),
    ],
)
def test_boundaries_of_the_connector_are_accepted_if_it_defines_them(name: str, accepted: bool) -> None:
    given = {"connector.class": name, "name": "c", "topic": "t", "transaction.boundary": "Connector"}
    result = Validator(InstalledPlugins(), WorkerRules(CONVERTERS)).check(given)
    (row,) = (each.value for each in result.rows if each.value.name == "transaction.boundary")
    assert [("does not support connector-defined transaction boundaries" in each) for each in row.errors] == (
        [] if accepted else [True]
    )
