"""A table and its topic are compared; one row that was changed by hand is found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.connect.connectors.capture import verification
from ottla.connect.connectors.capture.verification import Difference, Progress, TableName, verify
from ottla.connect.connectors.postgres.settings import Options
from ottla.connect.connectors.postgres.verification import table_names, table_rows
from ottla.connect.errors import ConnectError
from tests.connect.capturing import Capture
from tests.connect.postgres.driver import Database


def rows_of(capture: Capture) -> Iterator[tuple[Any, Any]]:
    for each in capture.kafka.records:
        yield each.key, each.value


def compared(database: Database, capture: Capture, rounds: int = 3, progress: Progress = lambda _: None) -> Difference:
    options, name = Options.of(database.config()), TableName("public", "t")
    assert table_names(options) == [name]
    return verify(name, lambda: table_rows(options, name), lambda: rows_of(capture), rounds=rounds, progress=progress)


def test_equal_and_different_rows(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "ROUND_S", 0.0)
    database.sql("create table t (id int primary key, a text, n numeric(8,2), at timestamptz)")
    database.sql("insert into t select g, 'x' || g, g, now() from generate_series(1, 3000) g")
    capture = database.capture()
    capture.take(3000)
    database.sql("delete from t where id = 3; update t set a = 'y' where id = 4; insert into t values (4000)")
    capture.take(3004)
    texts: list[str] = []
    assert compared(database, capture, progress=texts.append).equal
    assert texts[0] == "Round 1: 2999 rows of public.t" or texts[0] == "Round 1: 3000 rows of public.t"
    # By hand, behind the stream's back.
    database.sql("alter table t disable trigger all")
    capture.stop()
    database.sql("update t set a = 'by hand' where id = 1234; delete from t where id = 5; insert into t values (5000)")
    found = compared(database, capture, rounds=1)
    assert found.changed == ['{"id":1234}']
    assert found.unexpected == ['{"id":5}']
    assert found.missing == ['{"id":5000}']
    assert found.ranges == 3


def test_table_without_key_or_without_existence(database: Database) -> None:
    database.sql("create table t (a int)")
    options = Options.of(database.config())
    with pytest.raises(ConnectError, match="has no key"):
        list(table_rows(options, TableName("public", "t")))
    with pytest.raises(ConnectError, match="does not exist"):
        list(table_rows(options, TableName("public", "u")))
