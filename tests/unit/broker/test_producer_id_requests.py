"""InitProducerId: allocated ids, and rejected requests."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest

from .harness import BrokerHarness


@pytest.mark.parametrize("version", range(6))
def test_every_request_gets_a_different_id(harness: BrokerHarness, version: int) -> None:
    first, second = (harness.ask(InitProducerIdRequest(transactional_id=None), version) for _ in range(2))
    assert (first.error_code, first.producer_epoch) == (ErrorCode.NONE, 0)
    assert first.producer_id != second.producer_id


@pytest.mark.parametrize(("producer_id", "epoch"), [(7, -1), (-1, 3)])
def test_producer_id_without_epoch_or_epoch_without_id_is_rejected(
    harness: BrokerHarness, producer_id: int, epoch: int
) -> None:
    request = InitProducerIdRequest(transactional_id=None, producer_id=producer_id, producer_epoch=epoch)
    answer = harness.ask(request, 4)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.INVALID_REQUEST, -1, -1)


def test_producer_with_an_id_gets_a_new_id(harness: BrokerHarness) -> None:
    first = harness.ask(InitProducerIdRequest(transactional_id=None), 4)
    again = InitProducerIdRequest(transactional_id=None, producer_id=first.producer_id, producer_epoch=0)
    answer = harness.ask(again, 4)
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, 0)
    assert answer.producer_id != first.producer_id
