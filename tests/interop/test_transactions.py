"""kafka-transactions: an open transaction and a hanging one are found, described and aborted."""

from __future__ import annotations

import pytest

from ottla.clients import Admin
from tests.open_transactions import LONG_AGO_MS, TIMEOUT_MS, UNKNOWN_PRODUCER, hang, open_transaction

from .conftest import Tools

pytestmark = [pytest.mark.jvm, pytest.mark.both]


def test_transactions_are_listed_described_and_aborted(tools: Tools, name: str) -> None:
    partition = ("--topic", name, "--partition", 0)
    with Admin(bootstrap_servers=tools.bootstrap) as admin:
        admin.create_topic(name, partitions=1, replication_factor=1)
    hang(tools.bootstrap, name)
    producer = open_transaction(tools.bootstrap, name, name)
    try:
        (listed,) = [row for row in tools.rows("transactions", "list") if row[0] == name]
        producer_id = listed[2]
        assert listed[3] == "Ongoing"
        (described,) = tools.rows("transactions", "describe", "--transactional-id", name)
        assert described[1:6] == [name, producer_id, "0", "Ongoing", str(TIMEOUT_MS)]
        assert described[8] == f"{name}-0"
        producers = {row[0]: row[1:] for row in tools.rows("transactions", "describe-producers", *partition)}
        lost = str(UNKNOWN_PRODUCER)
        assert producers[lost] == ["0", "-1", "0", str(LONG_AGO_MS), "0"]
        assert producers[producer_id][-1] == "1"
        (hanging,) = tools.rows("transactions", "find-hanging", "--topic", name, "--max-transaction-timeout", 0)
        assert hanging[:7] == [name, "0", lost, "0", "-1", "0", str(LONG_AGO_MS)]
        tools.ok("transactions", "abort", *partition, "--start-offset", 0)
        producer.commit_transaction(20)
    finally:
        producer.close(1)
    with Admin(bootstrap_servers=tools.bootstrap) as admin:
        ((_, states),) = admin.describe_producers([(name, 0)]).items()
    assert {state.transaction_start_offset for state in states} == {None}
