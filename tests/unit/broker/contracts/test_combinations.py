"""Schema validation together with each other capability.

`here` is this file; `real` is `tests/contracts/test_with_other_features.py`, whose broker is a process.

- An authorizer: here.
- Client quotas: here.
- A batch waits for the registry, and its partition moves to another directory or gets another leader, its topic is
  deleted, or created again, or gets other settings: here.
- Produce v13 (topic ids), `acks=0`, `acks=1`, `min.insync.replicas`: here; each version: `test_contracts.py`.
- Idempotent producers: here, `test_contracts.py`, `test_dead_letters.py`.
- Transactions: `test_transactional_producers.py`, `tests/contracts/test_producers.py`.
- Compaction: here, real.
- Copies of mirrors, and failbacks while a batch waits: here; two clusters: `tests/contracts/test_copies.py`.
- Share groups; dead letters of other programs that go to a topic with schema validation: real.
- Schema ids in headers: here, and with Confluent's serializer: `tests/contracts/test_with_ottlas_registry.py`.
- Compression codecs, `max.message.bytes`: here, `test_contracts.py`, `test_dead_letters.py`.
- Failures, pauses and power cuts while the registry is slow or down: `tests/simulation/test_validated_topics.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.controller import Outcome
from ottla.partitions.promotion import PROMOTING
from ottla.partitions.topic_settings import Refusal, refusal_of
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.metadata_records import PartitionChangeRecord
from ottla.records import BatchProducer, Codec, encode_batch, read_header
from ottla.security.acl import Acl, Operation, Pattern, PermissionType, ResourceType
from ottla.security.authorizer import Rules, StandardAuthorizer
from ottla.security.client_quotas import Quota
from tests.unit.broker.harness import START_MS, BrokerHarness, Connection, batch, open_harness, produce_request
from tests.unit.broker.test_directory_moves import move
from tests.unit.broker.test_request_usage import limit
from tests.unit.controller.support import registration

from .support import (
    ORDER_ID,
    TIMEOUT_MS,
    StubRegistry,
    alter,
    create_orders,
    framed,
    order,
    row_of,
    send,
    stored,
    use_registry,
    values_of,
)
from .test_contracts import CODECS
from .test_dead_letters import DLQ, errors_of

TWO_DIRECTORIES = ("one", "two")


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[BrokerHarness]:
    paths = ",".join(str(tmp_path / each) for each in TWO_DIRECTORIES)
    with open_harness(paths) as opened:
        yield opened


@pytest.fixture
def registry(harness: BrokerHarness) -> StubRegistry:
    harness.create("bad")
    create_orders(harness, **DLQ)
    return use_registry(harness)


def hold(harness: BrokerHarness, registry: StubRegistry, *values: bytes, **options: Any) -> Any:
    """Send a batch that waits for the registry, which has not answered yet."""
    registry.holds = True
    waiting = send(harness, *values, **options)
    harness.loop.run()
    assert isinstance(waiting, Completion)
    assert not waiting.done
    return waiting


def answered(harness: BrokerHarness, registry: StubRegistry, waiting: Any) -> Any:
    """Let the registry answer; returns the response of the partition."""
    registry.answer()
    harness.loop.advance(1_000)
    return row_of(waiting.result())


# -- an authorizer ---------------------------------------------------------------------------------------------------


def start_as(harness: BrokerHarness, user: str, request: Any) -> Any:
    client = Connection()
    client.principal = f"User:{user}"
    answer = harness.start(request, 12, client)
    harness.loop.run()
    return answer.result() if isinstance(answer, Completion) else answer


def authorize(harness: BrokerHarness, user: str, topic: str) -> None:
    """Let a user write one topic and nothing else."""
    authorizer = StandardAuthorizer(Rules(super_users=frozenset()))
    authorizer.finish_loading()
    pattern = Pattern(ResourceType.TOPIC, topic)
    authorizer.add(Acl(pattern, f"User:{user}", "*", Operation.WRITE, PermissionType.ALLOW))
    harness.broker.security.authorizer = authorizer


def test_broker_writes_the_dead_letters_of_a_user_who_may_not(harness: BrokerHarness, registry: StubRegistry) -> None:
    """The user cannot choose the contents of `bad` freely, nor write to it in another way."""
    authorize(harness, "ann", "orders")
    both = produce_request(("orders", {0: batch(order(), b"plain")}), ("bad", {0: batch(b"direct")}))
    first, second = start_as(harness, "ann", both).responses
    assert first.partition_responses[0].error_code == 0
    assert second.partition_responses[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert [(record.value, errors_of(record) != {}) for record in stored(harness, "bad")] == [(b"plain", True)]


def test_user_who_may_not_write_the_topic_writes_no_dead_letter(harness: BrokerHarness, registry: StubRegistry) -> None:
    authorize(harness, "ann", "bad")
    response = start_as(harness, "ann", produce_request(("orders", {0: batch(b"plain", order())})))
    assert row_of(response).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (stored(harness), stored(harness, "bad"), registry.asked) == ([], [], [])


# -- client quotas ---------------------------------------------------------------------------------------------------


def counted(harness: BrokerHarness) -> dict[Quota, list[float]]:
    """Note what is counted for clients from now on."""
    clients = harness.broker.security.quotas.clients
    count, noted = clients.count, dict[Quota, list[float]]()

    def note(quota: Quota, user: str, client_id: str, value: float, now_ms: int, *, keep: bool = True) -> int:
        noted.setdefault(quota, []).append(value)
        return count(quota, user, client_id, value, now_ms, keep=keep)

    clients.count = note  # type: ignore[method-assign]
    return noted


def test_bytes_of_a_batch_that_waits_are_counted_once(harness: BrokerHarness, registry: StubRegistry) -> None:
    limit(harness, producer_byte_rate=100)
    noted = counted(harness)
    values = [order(1), b"plain" * 1_000]  # the second one is written again, to the dead letter topic
    waiting = hold(harness, registry, *values)
    registry.answer()
    harness.loop.run()
    response = waiting.result()
    assert row_of(response).error_code == 0
    (size,) = noted[Quota.PRODUCE]
    assert 5_000 < size < 5_300
    assert response.throttle_time_ms > 0
    assert len(stored(harness, "bad")) == 1


def test_refused_batch_is_counted_and_throttled_too(harness: BrokerHarness, registry: StubRegistry) -> None:
    alter(harness, "orders", **{"ottla.schema.validation.mode": "reject"})
    limit(harness, producer_byte_rate=100)
    noted = counted(harness)
    answer = harness.produce(("orders", {0: batch(b"plain" * 1_000)}))
    harness.loop.run()
    response = answer.result() if isinstance(answer, Completion) else answer
    assert row_of(response).error_code == ErrorCode.INVALID_RECORD
    assert len(noted[Quota.PRODUCE]) == 1
    assert response.throttle_time_ms > 0


# -- partitions that change while a batch waits ----------------------------------------------------------------------


def test_partition_may_move_to_another_directory_while_a_batch_waits(
    harness: BrokerHarness, registry: StubRegistry
) -> None:
    assert send(harness, order(0)).error_code == 0
    registry.register(8, "orders-value")
    waiting = hold(harness, registry, order(1), framed(8), b"plain")
    before = harness.partition("orders")
    here = Path(before.log.log_directory.path)
    there = here.parent / next(each for each in TWO_DIRECTORIES if each != here.name)
    assert move(harness, there, "orders") == 0
    harness.loop.advance(2_000)
    assert Path(harness.partition("orders").log.log_directory.path) == there
    assert answered(harness, registry, waiting).error_code == 0
    assert values_of(stored(harness)) == [(0, order(0)), (1, order(1)), (2, framed(8))]
    assert [record.value for record in stored(harness, "bad")] == [b"plain"]


def replicated(harness: BrokerHarness, **configs: str) -> bytes:
    """Create `orders` on brokers 1 and 2; broker 1 leads. Returns the topic's id."""
    metadata = harness.broker.metadata
    epoch = metadata.submit(lambda c: c.register_broker(registration(2))).result().broker_epoch
    metadata.submit(lambda c: c.heartbeat(BrokerHeartbeatRequest(2, epoch, 10_000), 0)).result()
    settings = {"confluent.value.schema.validation": "true", **configs}
    rows = [CreatableTopicConfig(name, value) for name, value in settings.items()]
    topic = CreatableTopic("orders", -1, -1, [CreatableReplicaAssignment(0, [1, 2])], rows)
    created = harness.ask(CreateTopicsRequest(topics=[topic])).topics[0]
    assert not created.error_code
    return bytes(created.topic_id)


def change(harness: BrokerHarness, **fields: Any) -> None:
    topic_id = harness.broker.metadata.image.topics_by_name["orders"].topic_id
    record = PartitionChangeRecord(partition_id=0, topic_id=topic_id, **fields)
    harness.broker.metadata.submit(lambda _: Outcome([record], None)).result()
    harness.loop.run()


@pytest.mark.parametrize("version", [12, 13])
def test_leader_that_changed_while_a_batch_waited_is_named(harness: BrokerHarness, version: int) -> None:
    topic_id = replicated(harness)
    registry = use_registry(harness)
    registry.holds = True
    waiting = harness.start(produced(topic_id if version == 13 else "orders", batch(order())), version)
    harness.loop.run()
    change(harness, leader=2)
    end = harness.broker.logs.get(("orders", 0)).log_end_offset
    row = answered(harness, registry, waiting)
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert row.current_leader.leader_id == 2
    assert harness.broker.logs.get(("orders", 0)).log_end_offset == end == 0


def test_broker_that_leads_again_when_the_registry_answers_appends_the_batch(harness: BrokerHarness) -> None:
    replicated(harness)
    registry = use_registry(harness)
    waiting = hold(harness, registry, order(), acks=1)
    before = harness.partition("orders")
    change(harness, leader=2)
    change(harness, leader=1)
    assert harness.partition("orders") is not before
    assert answered(harness, registry, waiting).error_code == 0
    assert harness.partition("orders").log.log_end_offset == 1


def test_leader_that_lost_its_followers_while_a_batch_waited_refuses_it(harness: BrokerHarness) -> None:
    replicated(harness, **{"min.insync.replicas": "2"})
    registry = use_registry(harness)
    waiting = hold(harness, registry, order())
    change(harness, isr=[1])
    assert answered(harness, registry, waiting).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert stored(harness) == []


def produced(topic: str | bytes, data: bytearray, acks: int = -1) -> ProduceRequest:
    rows = [PartitionProduceData(0, data)]
    named = TopicProduceData(name=topic) if isinstance(topic, str) else TopicProduceData(topic_id=topic)
    named.partition_data = rows
    return ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[named])


def test_topic_id_names_the_topic(harness: BrokerHarness, registry: StubRegistry) -> None:
    """Produce v13 has no names: the contract, the dead letters and the response use the id's topic."""
    topic_id = bytes(harness.broker.metadata.image.topics_by_name["orders"].topic_id)
    answer = harness.start(produced(topic_id, batch(order(), b"plain")), 13)
    response = answer.result() if isinstance(answer, Completion) else answer
    assert response.responses[0].topic_id == topic_id
    assert row_of(response).error_code == 0
    assert errors_of(stored(harness, "bad")[0])["__connect.errors.topic"] == "orders"


@pytest.mark.parametrize("validates", ["true", "false"])
@pytest.mark.parametrize(("version", "code"), [(12, 3), (13, 100)])
def test_batch_that_waited_is_not_appended_to_another_topic_with_the_name(
    harness: BrokerHarness, registry: StubRegistry, validates: str, version: int, code: int
) -> None:
    """The new topic may have other rules, which the batch was not compared with."""
    topic_id = bytes(harness.broker.metadata.image.topics_by_name["orders"].topic_id)
    registry.holds = True
    waiting = harness.start(produced(topic_id if version == 13 else "orders", batch(order())), version)
    harness.loop.run()
    harness.delete("orders")
    harness.create("orders", confluent_value_schema_validation=validates)
    assert answered(harness, registry, waiting).error_code == code
    assert stored(harness) == []
    registry.holds = False
    assert send(harness, order()).error_code == 0


def test_dead_letter_topic_that_was_deleted_while_a_batch_waited_refuses_it(
    harness: BrokerHarness, registry: StubRegistry
) -> None:
    waiting = hold(harness, registry, order(), b"plain")
    harness.delete("bad")
    assert answered(harness, registry, waiting).error_code == ErrorCode.INVALID_RECORD
    assert stored(harness) == []


def test_batch_that_waits_keeps_the_rules_with_which_it_arrived(harness: BrokerHarness, registry: StubRegistry) -> None:
    waiting = hold(harness, registry, order(), b"plain")
    alter(harness, "orders", **{"confluent.value.schema.validation": "false"})
    assert answered(harness, registry, waiting).error_code == 0
    assert (len(stored(harness)), len(stored(harness, "bad"))) == (1, 1)
    registry.holds = False
    assert send(harness, b"plain").error_code == 0
    assert len(stored(harness)) == 2


# -- copies of mirrors -----------------------------------------------------------------------------------------------

COPY = refusal_of("orders", {"ottla.mirror": "dr", "ottla.mirror.state": "MIRRORING"})


def test_copy_refuses_writes_before_the_registry_is_asked(harness: BrokerHarness, registry: StubRegistry) -> None:
    harness.partition("orders").refusal = COPY
    response = send(harness, order(), b"plain")
    assert response.error_code == ErrorCode.POLICY_VIOLATION
    assert "mirror dr" in response.error_message
    assert (stored(harness), stored(harness, "bad"), registry.asked) == ([], [], [])


@pytest.mark.parametrize("refusal", [COPY, PROMOTING])
def test_topic_that_became_read_only_while_a_batch_waited_does_not_get_it(
    harness: BrokerHarness, registry: StubRegistry, refusal: Refusal
) -> None:
    waiting = hold(harness, registry, order())
    harness.partition("orders").refusal = refusal
    assert answered(harness, registry, waiting).error_code == refusal.code
    assert stored(harness) == []


def test_dead_letter_topic_that_is_still_a_copy_refuses_the_batch(
    harness: BrokerHarness, registry: StubRegistry
) -> None:
    """The topics of a mirror may be promoted one after the other."""
    harness.partition("bad").refusal = refusal_of("bad", {"ottla.mirror": "dr", "ottla.mirror.state": "MIRRORING"})
    response = send(harness, order(), b"plain")
    assert response.error_code == ErrorCode.INVALID_RECORD
    assert "bad-0: Topic bad is read-only: mirror dr" in response.error_message
    assert stored(harness) == []


# -- acks, sizes and codecs ------------------------------------------------------------------------------------------


def test_acks_0_diverts_and_appends_without_a_response(harness: BrokerHarness, registry: StubRegistry) -> None:
    registry.holds = True
    assert isinstance(send(harness, order(), b"plain", acks=0), Completion)
    harness.loop.run()
    registry.answer()
    harness.loop.run()
    assert not harness.client.closed
    assert values_of(stored(harness)) == [(0, order())]
    assert [record.value for record in stored(harness, "bad")] == [b"plain"]


def test_acks_0_closes_the_connection_if_the_registry_does_not_answer(
    harness: BrokerHarness, registry: StubRegistry
) -> None:
    registry.is_down = True
    send(harness, order(), acks=0)
    harness.loop.run()
    assert harness.client.closed
    assert stored(harness) == []


def test_acks_1_waits_for_dead_letters_that_all_replicas_have(harness: BrokerHarness, registry: StubRegistry) -> None:
    alter(harness, "bad", **{"flush.messages": "1"})
    harness.threads.held = True
    waiting = send(harness, order(), b"plain", acks=1)
    harness.loop.run()
    assert not waiting.done
    harness.threads.held = False
    harness.threads.finish()
    harness.loop.run()
    assert row_of(waiting.result()).error_code == 0


@pytest.mark.parametrize("codec", CODECS)
def test_diverted_records_leave_a_batch_of_the_same_codec(
    harness: BrokerHarness, registry: StubRegistry, codec: Codec
) -> None:
    assert send(harness, order(1), b"plain", order(2), codec=codec, producer=BatchProducer(1, 0, 0)).error_code == 0
    partition = harness.partition("orders")
    data: Any = partition.look_up(0, 1 << 20, 0, min_one_batch=True)
    content = data if isinstance(data, (bytes, bytearray, memoryview)) else data.read()
    header = read_header(memoryview(content))
    assert (header.codec, header.last_offset_delta, header.record_count) == (codec, 2, 2)
    assert values_of(stored(harness)) == [(0, order(1)), (2, order(2))]
    assert send(harness, order(3), codec=codec, producer=BatchProducer(1, 0, 3)).base_offset == 3


def test_size_of_the_batch_that_was_sent_is_limited_before_the_registry_is_asked(
    harness: BrokerHarness, registry: StubRegistry
) -> None:
    alter(harness, "orders", **{"max.message.bytes": "1000"})
    assert send(harness, order(), b"plain" * 1_000).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (registry.asked, stored(harness, "bad")) == ([], [])


def test_dead_letter_that_its_topic_does_not_accept_refuses_the_batch(
    harness: BrokerHarness, registry: StubRegistry
) -> None:
    """The record is not lost: the producer gets an error."""
    alter(harness, "bad", **{"max.message.bytes": "1000"})
    response = send(harness, order(), b"plain" * 500)
    assert response.error_code == ErrorCode.INVALID_RECORD
    assert "bad-0" in response.error_message
    assert (stored(harness), stored(harness, "bad")) == ([], [])


# -- idempotent producers and compaction -----------------------------------------------------------------------------


def test_batch_that_is_sent_again_while_the_first_waits_is_appended_once(
    harness: BrokerHarness, registry: StubRegistry
) -> None:
    """On another connection. Its dead letters may be written twice; its records are not."""
    producer = BatchProducer(1, 0, 0)
    first = hold(harness, registry, order(), b"plain", producer=producer)
    request = produce_request(("orders", {0: batch(order(), b"plain", producer=producer)}))
    second = harness.start(request, 12, Connection())
    harness.loop.run()
    registry.answer()
    harness.loop.advance(1_000)
    rows = [row_of(each.result()) for each in (first, second)]
    assert [(row.error_code, row.base_offset) for row in rows] == [(0, 0), (0, 0)]
    assert values_of(stored(harness)) == [(0, order())]
    assert {record.value for record in stored(harness, "bad")} == {b"plain"}
    assert registry.asked == [ORDER_ID]


def test_fenced_producer_writes_no_dead_letter(harness: BrokerHarness, registry: StubRegistry) -> None:
    assert send(harness, order(), producer=BatchProducer(1, 5, 0)).error_code == 0
    response = send(harness, b"plain", producer=BatchProducer(1, 4, 1))
    assert response.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert stored(harness, "bad") == []


def test_record_without_a_key_is_refused_by_a_compacted_topic_and_not_diverted(
    harness: BrokerHarness, registry: StubRegistry
) -> None:
    """The rules of the topic come first: diverting does not repair a producer that forgets keys."""
    alter(harness, "orders", **{"cleanup.policy": "compact"})
    response = send(harness, order(), b"plain", key=None)
    assert response.error_code == ErrorCode.INVALID_RECORD
    assert (stored(harness), stored(harness, "bad")) == ([], [])


def test_dead_letter_without_a_key_cannot_be_written_to_a_compacted_topic(
    harness: BrokerHarness, registry: StubRegistry
) -> None:
    alter(harness, "bad", **{"cleanup.policy": "compact"})
    assert send(harness, b"plain", key=None).error_code == ErrorCode.INVALID_RECORD
    assert send(harness, b"plain", key=b"k").error_code == 0


def test_registry_that_answers_after_the_deadline_does_not_append(
    harness: BrokerHarness, registry: StubRegistry
) -> None:
    waiting = hold(harness, registry, framed(20), framed(ORDER_ID))
    harness.loop.advance(TIMEOUT_MS + 1)
    assert answered(harness, registry, waiting).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert (stored(harness), stored(harness, "bad")) == ([], [])


# -- schema ids in headers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("value", [b"{}", framed(77)])
def test_schema_id_in_a_header_is_refused_with_the_setting_to_change(
    harness: BrokerHarness, registry: StubRegistry, codec: Codec, value: bytes
) -> None:
    """Also if the value happens to begin with a zero byte."""
    alter(harness, "orders", **{"ottla.schema.validation.mode": "reject"})
    headers = [("__value_schema_id", b"\1" + bytes(16))]
    rows = [(START_MS, b"k", value, headers), (START_MS, b"k", b"plain", []), (START_MS, b"k", order(), headers)]
    answer = harness.produce(("orders", {0: bytearray(encode_batch(rows, codec=codec))}))
    harness.loop.run()
    row = row_of(answer.result() if isinstance(answer, Completion) else answer)
    assert row.error_code == ErrorCode.INVALID_RECORD
    reasons = {each.batch_index: each.batch_index_error_message for each in row.record_errors}
    assert reasons == {
        0: "The schema id of the value is in the header __value_schema_id, which schema validation does not read: set "
        "value.schema.id.serializer (schema.id.serializer in Python) to the PrefixSchemaIdSerializer",
        1: "The value does not begin with a zero byte and a schema id",
    }
