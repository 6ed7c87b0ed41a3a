"""Faults of a configuration against a real server: all at once, each with its remedy."""

from __future__ import annotations

import pytest

from ottla.connect.api import SourceOffset
from ottla.connect.connectors.postgres.connector import PostgresConnector
from ottla.connect.errors import BadRequestError, ConnectError
from tests.connect.postgres.driver import Database


def test_usable_configuration_has_no_problems(database: Database) -> None:
    database.sql("create table t (id int primary key)")
    assert PostgresConnector.problems(database.config()) == {}


def test_all_faults_are_named_at_once(database: Database) -> None:
    database.sql("create table t (id int primary key)")
    database.sql(f"create role reader_{database.name} login")
    found = PostgresConnector.problems(
        database.config(
            database_user=f"reader_{database.name}",
            signal_data_collection="public.nothing",
            publication_autocreate_mode="disabled",
        )
    )
    text = " ".join(each for some in found.values() for each in some)
    assert "REPLICATION" in text
    assert "GRANT SELECT ON public.t" in text
    assert "Table public.nothing does not exist" in text
    assert "CREATE PUBLICATION" in text


def test_unknown_server_is_named(database: Database) -> None:
    found = PostgresConnector.problems(database.config(database_port="1"))
    assert "could not connect" in " ".join(found["database.hostname"])


def test_no_captured_table_names_the_partitions(database: Database) -> None:
    database.sql("create table t (id int primary key) partition by range (id)")
    found = PostgresConnector.problems(database.config(table_include_list="public.t"))
    assert "publish.via.partition.root=true" in found["table.include.list"][0]


def test_table_that_is_not_published_is_named(database: Database) -> None:
    database.sql("create table a (id int primary key); create table b (id int primary key)")
    database.sql(f"create publication publication_{database.name} for table a")
    found = PostgresConnector.problems(database.config())
    assert "ADD TABLE public.b" in found["publication.name"][0]


def test_missing_publication_stops_the_start(database: Database) -> None:
    database.sql("create table t (id int primary key)")
    with pytest.raises(ConnectError, match="does not exist: CREATE PUBLICATION"):
        database.capture(publication_autocreate_mode="disabled")


def test_wrong_password_is_not_retriable_and_not_shown(database: Database) -> None:
    found = PostgresConnector.problems(database.config(database_user="nobody_here"))
    assert "secret" not in str(found)
    assert found


def test_offsets_are_checked(database: Database) -> None:
    config = database.config()
    PostgresConnector.alter_offsets(config, [SourceOffset({"server": "p"}, {"lsn": 5})])
    with pytest.raises(BadRequestError, match="source partition"):
        PostgresConnector.alter_offsets(config, [SourceOffset({"server": "other"}, {"lsn": 5})])
    with pytest.raises(BadRequestError, match="lsn"):
        PostgresConnector.alter_offsets(config, [SourceOffset({"server": "p"}, {"position": 5})])
