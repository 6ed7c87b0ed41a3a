"""Tasks that write exactly once while brokers restart, transactions last too long, or permissions are missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.clients import Admin
from ottla.clients.admin import Acl, AclOperation, AclResource, TransactionState
from ottla.spark.exactly_once import MARKERS, ExactlyOnceError
from ottla.spark.write_plan import WriteFailed
from tests.clients.proxy import Proxy
from tests.clients.secured import sasl
from tests.clients.support import wait_until
from tests.ottla_process import ForkedOttla, OttlaProcess
from tests.peers.secured import SecuredKafka

from .tasks import Query, rows

END_TXN = 26


@pytest.fixture
def process(tmp_path: Path) -> Iterator[OttlaProcess]:
    broker = ForkedOttla(tmp_path)
    broker.start()
    yield broker
    broker.stop()
    broker.assert_no_traceback()


@pytest.fixture
def own_query(process: OttlaProcess, own_clients: None, monkeypatch: pytest.MonkeyPatch) -> Query:
    return Query(process.bootstrap, monkeypatch)


def test_restart_of_the_broker_in_a_transaction_is_waited_for(own_query: Query, process: OttlaProcess) -> None:
    def restart() -> None:
        process.kill()
        process.start()

    told = own_query.write(0, 0, rows(b"a"), restart, rows(b"b"))
    assert told.records == 2
    assert own_query.seen() == [b"a", b"b"]


def test_restart_of_the_broker_at_the_end_of_a_transaction_writes_once(own_query: Query, process: OttlaProcess) -> None:
    with Proxy(process.bootstrap) as proxy:

        def lose_and_restart(_: object, response: Any) -> Any:
            del proxy.answers[END_TXN]
            process.kill()
            process.start()

        proxy.answers[END_TXN] = lose_and_restart
        told = own_query.write(0, 0, rows(b"a"), **{"kafka.bootstrap.servers": proxy.bootstrap})
        assert END_TXN not in proxy.answers
    assert told.records == 1, "the request is repeated, and the coordinator knows the transaction"
    assert own_query.write(0, 0, rows(b"a")).records == 0
    assert own_query.write(0, 1, rows(b"b"), run="next").records == 1
    assert own_query.seen() == [b"a", b"b"]


@pytest.mark.both
def test_task_that_lasts_too_long_fails_with_the_setting_and_its_next_attempt_writes(query: Query) -> None:
    def last_too_long() -> None:
        name = f"ottla.sink.{query.query_id}.{query.topic}.0"
        with Admin(query.bootstrap) as admin:
            wait_until(
                lambda: any(
                    row.transactional_id == name and row.state is TransactionState.COMPLETE_ABORT
                    for row in admin.list_transactions()
                ),
                "the coordinator aborts the transaction",
                30,
            )

    # More than a batch of the sink, so that records are sent before the end of the task.
    first, large = rows(b"first"), rows(*[b"%0100d" % number for number in range(20_000)])
    short = {"kafka.transaction.timeout.ms": "1000"}
    with pytest.raises(WriteFailed, match=r"Task 0 of batch 0 .*longer than kafka\.transaction\.timeout\.ms"):
        query.write(0, 0, first, large, last_too_long, rows(b"last"), **short)
    assert query.seen() == []
    query.write(0, 0, rows(b"first"), rows(b"last"), **short)
    assert query.seen() == [b"first", b"last"]


def test_missing_permissions_are_named_in_one_line(secured: SecuredKafka, own_clients: None, monkeypatch: Any) -> None:
    alice = {f"kafka.{name}": str(value) for name, value in sasl(secured, "PLAIN", "alice").items()}
    query = Query(secured.bootstrap, monkeypatch, options=alice)
    prefix = "ottla.sink."
    resources = (
        # What is allowed, and what the error says as long as it is not.
        (AclResource.transactional_id(prefix, prefixed=True), AclOperation.WRITE, "Write and Describe on trans"),
        (AclResource.group(prefix, prefixed=True), AclOperation.READ, "needs Read on groups with the prefix"),
        (AclResource.topic(MARKERS), AclOperation.READ, f"'{MARKERS}'"),
        (AclResource.topic(query.topic), AclOperation.WRITE, "Write on the topics of the rows"),
    )
    with Admin(secured.bootstrap) as admin:
        for resource, operation, advice in resources:
            with pytest.raises(Exception, match=f"(?s)^[^\n]*{advice}[^\n]*$"):
                query.write(0, 0, rows(b"a"))
            rule = Acl(resource, "User:alice", operation)
            admin.create_acls([rule])
            wait_until(lambda rule=rule: rule in admin.describe_acls(), "the rule is known")
            if resource.name == MARKERS:
                with pytest.raises(ExactlyOnceError, match=r"does not exist.*Create it with one partition$"):
                    query.write(0, 0, rows(b"a"))
                admin.create_topic(MARKERS, partitions=1)
    query.write(0, 0, rows(b"a"))
