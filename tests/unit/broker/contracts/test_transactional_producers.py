"""Schema validation and transactions of both versions."""

from __future__ import annotations

import pytest

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from tests.unit.broker.harness import BrokerHarness
from tests.unit.broker.test_transactions import TransactionalProducer, cluster, producer, stable

from .support import StubRegistry, create_orders, framed, order, row_of, stored, use_registry

__all__ = ["cluster", "producer"]  # fixtures


@pytest.fixture
def registry(cluster: BrokerHarness) -> StubRegistry:
    create_orders(cluster)
    return use_registry(cluster)


def test_transaction_has_valid_records_only(registry: StubRegistry, producer: TransactionalProducer) -> None:
    producer.send("orders", order(1))
    producer.send("orders", order(2))
    assert producer.produce("orders", b"plain") is ErrorCode.INVALID_RECORD
    producer.send("orders", order(3))
    assert producer.end() is ErrorCode.NONE
    producer.harness.loop.advance(1_000)
    assert [record.value for record in stored(producer.harness)][:3] == [order(1), order(2), order(3)]
    assert stable(producer.harness, "orders") == 4  # with the marker


def test_batch_that_waits_until_its_transaction_has_ended_is_refused(
    registry: StubRegistry,
    producer: TransactionalProducer,
) -> None:
    """It would open a transaction that no marker ever ends."""
    producer.send("orders", order(1))
    registry.holds = True
    registry.register(8, "orders-value")
    waiting = producer.start("orders", framed(8))
    producer.harness.loop.run()
    assert isinstance(waiting, Completion)
    assert not waiting.done
    assert producer.end(commit=False) is ErrorCode.NONE
    producer.harness.loop.advance(1_000)
    end = stable(producer.harness, "orders")
    registry.answer()
    producer.harness.loop.advance(1_000)
    assert row_of(waiting.result()).error_code != ErrorCode.NONE
    assert stable(producer.harness, "orders") == end
