"""When a client may ask and push, as in Kafka, and the limit on the number of clients."""

from __future__ import annotations

from ottla.broker.telemetry.instances import Instance, Instances, push_error
from ottla.broker.telemetry.subscriptions import Assigned, parse
from ottla.common.errors import ErrorCode

INTERVAL_MS = 1_000
CLIENT: dict[str, str | None] = {"client_id": "c"}


def uuid(number: int) -> bytes:
    return number.to_bytes(16, "big")


def instance() -> Instance:
    return Instance(Assigned(7, ("*",), INTERVAL_MS), 0)


def test_client_asks_once_in_an_interval() -> None:
    client = instance()
    assert [client.may_ask(now_ms) for now_ms in (0, 999, 1_000, 1_001)] == [True, False, True, False]


def test_push_counts_as_a_request() -> None:
    client = instance()
    assert client.may_push(0)
    assert not client.may_ask(999)
    assert client.may_ask(1_000)


def test_client_asks_at_once_after_an_error_that_tells_it_to() -> None:
    for error in (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE):
        client = instance()
        assert client.may_ask(0)
        client.last_error = error
        assert client.may_ask(1)
    client.last_error = ErrorCode.INVALID_RECORD
    assert not client.may_ask(2)


def test_push_right_after_asking_is_accepted_and_the_next_after_an_interval() -> None:
    client = instance()
    assert client.may_ask(0)
    assert [client.may_push(now_ms) for now_ms in (10, 11, 1_009, 1_010)] == [True, False, False, True]


def test_push_errors_in_kafkas_order() -> None:
    client = instance()
    assert push_error(client, 7, 0, is_terminating=False) == ErrorCode.NONE
    assert push_error(client, 8, 1, is_terminating=False) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push_error(client, 8, 1, is_terminating=True) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert push_error(client, 7, 1, is_terminating=True) == ErrorCode.NONE
    client.is_terminating = True
    assert push_error(client, 7, 5_000, is_terminating=False) == ErrorCode.INVALID_REQUEST


def test_least_recently_used_client_is_dropped_above_the_limit() -> None:
    instances = Instances(most=2)
    first = instances.of(uuid(1), CLIENT, 0)
    second = instances.of(uuid(2), CLIENT, 1)
    assert instances.of(uuid(1), CLIENT, 2) is first
    instances.of(uuid(3), CLIENT, 3)
    assert len(instances) == 2
    assert instances.of(uuid(1), CLIENT, 4) is first
    assert instances.of(uuid(2), CLIENT, 5) is not second


def test_client_expires_after_three_intervals_or_a_minute() -> None:
    instances = Instances(parse({"s": {"interval.ms": "100"}}))
    instances.of(uuid(1), CLIENT, 0)
    instances.of(uuid(2), CLIENT, 59_999)
    assert len(instances) == 2
    instances.of(uuid(2), CLIENT, 60_000)
    assert len(instances) == 1


def test_changed_subscriptions_recreate_the_instance() -> None:
    instances = Instances(parse({"s": {"metrics": "a"}}))
    old = instances.of(uuid(1), CLIENT, 0)
    instances.subscribe(parse({"s": {"metrics": "b"}}))
    new = instances.of(uuid(1), CLIENT, 1)
    assert (old.assigned.metrics, new.assigned.metrics) == (("a",), ("b",))
    assert push_error(new, old.assigned.subscription_id, 1, is_terminating=False) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    new.last_error = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert new.may_ask(1)


def test_client_that_moved_to_another_connection_is_not_forgotten_with_the_first() -> None:
    instances = Instances()
    first, second = object(), object()
    instances.of(uuid(1), CLIENT, 0).owner = second
    assert not instances.remove(uuid(1), first)
    assert len(instances) == 1
    assert instances.remove(uuid(1), second)
    assert len(instances) == 0
