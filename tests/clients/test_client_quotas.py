"""Clients above a quota: the pause in the response, the muted connection, and what is not throttled. KIP-219."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from ottla.clients import Admin
from ottla.clients.admin import QuotaEntity, QuotaName
from ottla.protocol.messages import api_versions, create_partitions, create_topics, delete_topics, fetch
from ottla.protocol.messages import produce as produce_api
from ottla.records import encode_batch
from tests.conftest import RunningBroker

from .conftest import MakeTopic
from .support import unique, wait_until
from .test_answers_in_detail import Asking
from .wire import ConnectionClosed

pytestmark = pytest.mark.both

THROTTLING_QUOTA_EXCEEDED = 89


class Limited:
    """A client id with a quota, and its connection."""

    def __init__(self, broker: RunningBroker, admin: Admin) -> None:
        self._broker = broker
        self._admin = admin
        self.entity = QuotaEntity(client_id=unique("client"))
        self._quotas: dict[str, float] = {}
        self.connection = self.connect()

    def limit(self, **quotas: float) -> None:
        """Set quotas; a broker of stock Kafka applies them a moment after they were answered."""
        self._quotas |= quotas
        self._admin.alter_client_quotas({self.entity: quotas})
        wait_until(lambda: self._admin.describe_client_quotas(self.entity) == {self.entity: self._quotas}, "the quotas")
        self.connection.send_message(api_versions.ApiVersionsRequest("a", "1"), 3)

    def connect(self) -> Asking:
        """Open a further connection."""
        connection = Asking(self._broker.bootstrap)
        connection.client_id = str(self.entity.client_id)
        return connection

    def close(self) -> None:
        self.connection.socket.close()
        if self._quotas:
            self._admin.alter_client_quotas({self.entity: dict.fromkeys(self._quotas)})


@pytest.fixture
def limited(broker: RunningBroker) -> Iterator[Limited]:
    with Admin(broker.bootstrap) as admin:
        client = Limited(broker, admin)
        yield client
        client.close()


def produce(connection: Asking, topic: str, size: int, acks: int = 1) -> Any:
    """Send one record of `size` random-looking bytes; return the response."""
    data = [produce_api.PartitionProduceData(0, encode_batch([(0, None, bytes(size), [])]))]
    rows = [produce_api.TopicProduceData(name=topic, partition_data=data)]
    return connection.send_message(produce_api.ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=rows), 9)


def consume(connection: Asking, topic: str, offset: int | None, max_bytes: int = 1 << 20, **session: int) -> Any:
    """Fetch without waiting, from an offset of the topic's only partition; None: only what the session has."""
    wanted = fetch.FetchPartition(0, fetch_offset=offset or 0, partition_max_bytes=max_bytes)
    rows = [] if offset is None else [fetch.FetchTopic(topic=topic, partitions=[wanted])]
    request = fetch.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=rows)
    request.session_id, request.session_epoch = session.get("session_id", 0), session.get("epoch", -1)
    return connection.send_message(request, 12)


def consume_when_possible(connection: Asking, topic: str, offset: int | None, max_bytes: int = 1 << 20) -> Any:
    """Repeat a fetch until it is not throttled."""
    for _ in range(50):
        response = consume(connection, topic, offset, max_bytes)
        if not response.throttle_time_ms:
            return response
        assert records_bytes(response) == 0
    raise AssertionError("the fetch is throttled for ever")


def records_bytes(response: Any) -> int:
    return sum(len(partition.records or b"") for topic in response.responses for partition in topic.partitions)


def is_muted_for(connection: Asking) -> float:
    """How long the answer to a small request takes, in ms."""
    began_s = time.monotonic()
    connection.send_message(api_versions.ApiVersionsRequest("a", "1"), 3)
    return (time.monotonic() - began_s) * 1000


def test_producer_above_its_quota_gets_the_response_first_and_is_muted_then(
    limited: Limited, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    limited.limit(producer_byte_rate=10_000)
    # An idle client may use at once what ten samples of a second admit.
    assert produce(limited.connection, topic, 99_000).throttle_time_ms == 0
    began_s = time.monotonic()
    response = produce(limited.connection, topic, 6_000)
    assert not response.responses[0].partition_responses[0].error_code
    assert 0 < response.throttle_time_ms <= 600
    assert (time.monotonic() - began_s) * 1000 < response.throttle_time_ms
    assert is_muted_for(limited.connection) >= response.throttle_time_ms - 100


def test_quota_is_of_the_client_not_of_its_connection(limited: Limited, make_topic: MakeTopic) -> None:
    topic = make_topic()
    limited.limit(producer_byte_rate=10_000)
    assert produce(limited.connection, topic, 99_000).throttle_time_ms == 0
    with limited.connect() as second:
        assert produce(second, topic, 6_000).throttle_time_ms > 0
        # The pause is one of the connection.
        with limited.connect() as third:
            assert is_muted_for(third) < 200


def test_quota_of_another_client_does_not_matter(
    limited: Limited, make_topic: MakeTopic, broker: RunningBroker
) -> None:
    topic = make_topic()
    limited.limit(producer_byte_rate=1, consumer_byte_rate=1, request_percentage=0.0001)
    with Asking(broker.bootstrap) as other:
        assert produce(other, topic, 100_000).throttle_time_ms == 0
        assert consume(other, topic, 0).throttle_time_ms == 0


def test_changed_quota_holds_at_once_and_a_removed_one_no_more(limited: Limited, make_topic: MakeTopic) -> None:
    topic = make_topic()
    limited.limit(producer_byte_rate=100_000)
    assert produce(limited.connection, topic, 50_000).throttle_time_ms == 0
    limited.limit(producer_byte_rate=5_000)
    assert 0 < produce(limited.connection, topic, 1_000).throttle_time_ms <= 1_000
    limited.limit(producer_byte_rate=1e9)
    assert produce(limited.connection, topic, 50_000).throttle_time_ms == 0


def test_consumer_above_its_quota_gets_no_records_and_gets_them_later(limited: Limited, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with limited.connect() as producer:
        for _ in range(12):
            produce(producer, topic, 10_000)
    limited.limit(consumer_byte_rate=10_000)
    # A response is not larger than what an idle client may use at once. In Kafka it is a few bytes larger at first.
    first = consume_when_possible(limited.connection, topic, 0)
    assert 80_000 < records_bytes(first) <= 100_000
    throttled = consume(limited.connection, topic, 9, 10)
    assert 0 < throttled.throttle_time_ms <= 1_500
    assert records_bytes(throttled) == 0
    assert records_bytes(consume_when_possible(limited.connection, topic, 9, 10)) > 10_000


def test_throttled_fetch_of_a_session_is_answered_later(limited: Limited, make_topic: MakeTopic) -> None:
    """The client has to repeat neither the partitions nor the offsets of the fetch that was throttled."""
    topic, connection = make_topic(), limited.connection
    with limited.connect() as producer:
        for _ in range(11):
            produce(producer, topic, 10_000)
    session_id = consume(connection, topic, 11, 10, epoch=0).session_id
    assert session_id
    limited.limit(consumer_byte_rate=10_000)
    assert consume(connection, topic, 0, 95_000).throttle_time_ms == 0
    throttled = consume(connection, topic, 0, 10, session_id=session_id, epoch=1)
    assert (throttled.error_code, throttled.session_id) == (0, session_id)
    assert throttled.throttle_time_ms > 0
    assert throttled.responses == []
    for epoch in range(2, 20):
        response = consume(connection, topic, None, session_id=session_id, epoch=epoch)
        assert (response.error_code, response.session_id) == (0, session_id)
        if not response.throttle_time_ms:
            break
    assert records_bytes(response) > 10_000


def test_request_time_is_limited_by_pauses_of_at_most_a_second(limited: Limited) -> None:
    limited.limit(request_percentage=0.001)
    for _ in range(200):
        response = limited.connection.send_message(api_versions.ApiVersionsRequest("a", "1"), 3)
        if response.throttle_time_ms:
            break
    assert 0 < response.throttle_time_ms <= 1_000
    assert is_muted_for(limited.connection) >= response.throttle_time_ms - 100


def test_changes_of_topics_are_refused_when_the_quota_is_used_up(limited: Limited, make_topic: MakeTopic) -> None:
    """The newest versions are strict: one change may overdraw the quota, the next one is refused. KIP-599."""
    topic, other = unique("mutations"), make_topic()
    connection = limited.connection
    limited.limit(controller_mutation_rate=1)

    def create(name: str, partitions: int, version: int, *, validate_only: bool = False) -> tuple[int, str | None, int]:
        new = create_topics.CreatableTopic(name, partitions, 1)
        response = connection.send_message(create_topics.CreateTopicsRequest([new], 5_000, validate_only), version)
        return response.topics[0].error_code, response.topics[0].error_message, response.throttle_time_ms

    assert create(topic, 12, 7) == (0, None, 0)
    code, text, pause_ms = create(unique("refused"), 1, 7)
    assert (code, text) == (THROTTLING_QUOTA_EXCEEDED, None)
    assert 0 < pause_ms <= 1_000
    assert is_muted_for(connection) >= pause_ms - 100
    # The pause is over, so that a change is possible again.
    grown = create_partitions.CreatePartitionsRequest([create_partitions.CreatePartitionsTopic(other, 3, None)], 5_000)
    response = connection.send_message(grown, 3)
    assert (response.results[0].error_code, response.throttle_time_ms) == (0, 0)
    deletion = delete_topics.DeleteTopicsRequest(topic_names=[topic], timeout_ms=5_000)
    refused = connection.send_message(deletion, 5)
    assert refused.responses[0].error_code == THROTTLING_QUOTA_EXCEEDED
    assert refused.throttle_time_ms > 0
    # Older versions are permissive: the change is made, and the client is muted.
    deleted = connection.send_message(deletion, 4)
    assert deleted.responses[0].error_code == 0
    assert deleted.throttle_time_ms > refused.throttle_time_ms


def test_address_that_connects_too_fast_is_closed_later(broker: RunningBroker) -> None:
    """A connection above the rate is not served, does not count, and is closed when the address may connect again."""
    everyone, own = QuotaEntity(ip=QuotaName.DEFAULT), QuotaEntity(ip="127.0.0.1")
    with Admin(broker.bootstrap) as admin, ExitStack() as opened:
        admin.alter_client_quotas({everyone: {"connection_creation_rate": 1_000}, own: {"connection_creation_rate": 1}})
        try:
            wait_until(lambda: len(admin.describe_client_quotas(QuotaEntity(ip=QuotaName.ANY))) == 2, "the quotas")
            closed_s = []
            for _ in range(15):
                connection = opened.enter_context(Asking(broker.bootstrap))
                began_s = time.monotonic()
                try:
                    connection.send_message(api_versions.ApiVersionsRequest("a", "1"), 3)
                except ConnectionClosed:
                    closed_s.append(time.monotonic() - began_s)
            # Ten samples of a second admit ten connections at once, and the pauses a few more.
            assert 2 <= len(closed_s) <= 6
            assert 0.1 < min(closed_s) <= max(closed_s) < 2
        finally:
            removed = {"connection_creation_rate": None}
            admin.alter_client_quotas({everyone: removed, own: removed})
        wait_until(lambda: not admin.describe_client_quotas(QuotaEntity(ip=QuotaName.ANY)), "the quotas are removed")
