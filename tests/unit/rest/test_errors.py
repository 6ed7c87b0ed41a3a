"""The answers to errors of clients."""

from __future__ import annotations

import pytest

from ottla.clients import errors
from ottla.clients.errors import ClientError, error_for
from ottla.common.errors import ErrorCode
from ottla.rest.errors import code_of_record, of_client


@pytest.mark.parametrize(
    ("error", "status", "error_code"),
    [
        (errors.AuthenticationFailed("no"), 401, 40101),
        (errors.TopicAuthorizationFailed("no"), 403, 40301),
        (errors.GroupAuthorizationFailed("no"), 403, 40301),
        (errors.UnknownTopicOrPartition("no"), 404, 40403),
        (errors.UnknownTopicId("no"), 404, 40403),
        (errors.MessageTooLarge("no"), 413, 413),
        (errors.InvalidReplicationFactor("no"), 400, 40002),
        (errors.TopicAlreadyExists("no"), 400, 40002),
        (errors.InvalidTopic("no"), 400, 40002),
        (errors.UnsupportedByBroker("no"), 400, 40002),
        (error_for(ErrorCode.THROTTLING_QUOTA_EXCEEDED), 429, 42901),
        (errors.BrokerUnavailable("no"), 503, 50302),
        (errors.RequestTimedOut("no"), 500, 50003),
        (errors.NotEnoughReplicas("no"), 500, 50003),
        (errors.ClientError("no"), 500, 50002),
    ],
)
def test_status_and_code(error: ClientError, status: int, error_code: int) -> None:
    found = of_client(error)
    assert (found.status, found.error_code) == (status, error_code)
    assert ("Retry-After" in found.headers) == (status in {429, 503})


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.AuthenticationFailed("no"), 40101),
        (errors.TopicAuthorizationFailed("no"), 40301),
        (errors.DeliveryTimedOut("no"), 50003),
        (errors.BufferExhausted("no"), 50003),
        (errors.NotEnoughReplicas("no"), 50003),
        (errors.MessageTooLarge("no"), 50002),
    ],
)
def test_code_of_one_record(error: ClientError, code: int) -> None:
    assert code_of_record(error) == code
