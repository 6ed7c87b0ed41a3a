"""`ottla txn` against Ottla and stock Kafka; `cli_transactions.txt` has its texts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.clients import Admin
from ottla.clients.errors import ProducerFenced
from ottla.clients.producer import Producer
from tests.clients.support import unique
from tests.conftest import RunningBroker
from tests.open_transactions import LONG_AGO_MS, TIMEOUT_MS, UNKNOWN_PRODUCER, hang, open_transaction

from .conftest import Run
from .test_frame import on_a_terminal


@pytest.fixture
def ledger(ours: Admin) -> str:
    """A topic of one partition."""
    name = unique("ledger")
    ours.create_topic(name, partitions=1, replication_factor=1)
    return name


@pytest.fixture
def open_producer(broker: RunningBroker, ledger: str) -> Iterator[Producer]:
    """A producer with an open transaction; its transactional id is the name of the topic."""
    producer = open_transaction(broker.bootstrap, ledger, ledger)
    yield producer
    producer.close(1)


@pytest.mark.both
def test_open_transaction_is_shown_and_aborted_by_fencing(ottla: Run, ledger: str, open_producer: Producer) -> None:
    (listed,) = [r for r in ottla("txn", "list", "--json", "--state", "ongoing").objects if r["state"] == "Ongoing"]
    (described,) = ottla("txn", "describe", ledger, "--json").objects
    assert described["start_ms"] > LONG_AGO_MS
    assert {**listed, "timeout_ms": TIMEOUT_MS, "partitions": {ledger: [0]}}.items() <= described.items()
    (producer,) = ottla("txn", "describe-producers", f"{ledger}/0", "--json").objects
    assert (producer["producer_id"], producer["start_offset"]) == (listed["producer_id"], 0)
    assert ottla("txn", "find-hanging", ledger, "--max-transaction-timeout", "0", "--json").objects == []

    refused = ottla("txn", "abort", f"{ledger}/0", "--start-offset", "0")
    assert (refused.code, refused.out) == (1, "")
    assert "does not hang: its coordinator will end it" in refused.err
    (aborted,) = ottla("txn", "abort", "--transactional-id", ledger, "--json").objects
    assert (aborted["transactional_id"], aborted["aborted"]) == (ledger, True)
    with pytest.raises(ProducerFenced):
        open_producer.commit_transaction(20)


@pytest.mark.both
def test_hanging_transaction_is_found_and_aborted(ottla: Run, ledger: str, broker: RunningBroker) -> None:
    hang(broker.bootstrap, ledger)
    (found,) = ottla("txn", "find-hanging", ledger, "--json").objects
    assert (found["producer_id"], found["start_offset"]) == (UNKNOWN_PRODUCER, 0)
    assert found["transactional_id"] is None
    assert ottla("txn", "abort", f"{ledger}/0", "--start-offset", "0", "--json").objects[0]["aborted"]
    assert ottla("txn", "find-hanging", ledger, "--json").objects == []
    assert ottla("txn", "abort", f"{ledger}/0", "--start-offset", "0").code == 1


def test_abort_asks_at_a_terminal(ottla: Run, ledger: str, broker: RunningBroker) -> None:
    hang(broker.bootstrap, ledger)
    code, shown = on_a_terminal(["txn", "abort", f"{ledger}/0", "--start-offset", "0"], "n\n", "[y/N]")
    assert code == 1
    assert "nothing was aborted" in shown
    assert len(ottla("txn", "find-hanging", ledger, "--json").objects) == 1
