"""Serializers in Ottla's clients, with a broker and a registry."""

import asyncio
import json
import threading

import pytest

from ottla.clients import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    AsyncShareConsumer,
    Consumer,
    DeserializationFailed,
    Producer,
    SerializationFailed,
    ShareConsumer,
)
from ottla.clients.serializers import AvroDeserializer, AvroSerializer, JsonSchemaDeserializer, JsonSchemaSerializer
from tests.clients.support import unique
from tests.clients.test_ottla_share_consumer import set_group

ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
KEY = json.dumps({"type": "object", "properties": {"k": {"type": "string"}}})


@pytest.fixture
def topic(broker, request):
    name = unique(request.node.originalname.removeprefix("test_")[:60])
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic(name, partitions=1)
    return name


def settings(stand_in):
    return {"schema.registry.url": stand_in.url, "retries.wait.ms": 1}


def serializers(stand_in):
    return {
        "key_serializer": JsonSchemaSerializer(KEY, config=settings(stand_in)),
        "value_serializer": AvroSerializer(ORDER, config=settings(stand_in)),
    }


def deserializers(stand_in):
    return {
        "key_deserializer": JsonSchemaDeserializer(config=settings(stand_in)),
        "value_deserializer": AvroDeserializer(config=settings(stand_in)),
    }


def reading(broker, stand_in):
    return {"bootstrap_servers": broker.bootstrap, "auto_offset_reset": "earliest", **deserializers(stand_in)}


def produce(broker, stand_in, topic, count=3):
    with Producer(bootstrap_servers=broker.bootstrap, **serializers(stand_in)) as producer:
        for i in range(count):
            producer.send(topic, {"id": i}, key={"k": str(i)})


def read_from_the_beginning(broker, group):
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        set_group(admin, group, "share.auto.offset.reset", "earliest")


def read(consumer, count):
    records = []
    for _ in range(100):
        records += consumer.poll(0.2)
        if len(records) >= count:
            break
    return [(record.key, record.value) for record in records]


EXPECTED = [({"k": str(i)}, {"id": i}) for i in range(3)]


def test_blocking_clients(broker, stand_in, topic):
    produce(broker, stand_in, topic)
    assert set(stand_in.subjects) == {f"{topic}-key", f"{topic}-value"}
    with Consumer(**reading(broker, stand_in)) as consumer:
        consumer.assign([(topic, 0)])
        assert read(consumer, 3) == EXPECTED


def test_asyncio_clients(broker, stand_in, topic):
    async def use():
        async with AsyncProducer(bootstrap_servers=broker.bootstrap, **serializers(stand_in)) as producer:
            for i in range(3):
                await producer.send(topic, {"id": i}, key={"k": str(i)})
        records = []
        async with AsyncConsumer(**reading(broker, stand_in)) as consumer:
            consumer.assign([(topic, 0)])
            for _ in range(100):
                records += await consumer.poll(0.2)
                if len(records) >= 3:
                    break
        return [(record.key, record.value) for record in records]

    assert asyncio.run(use()) == EXPECTED


def test_share_consumers(broker, stand_in, topic):
    group = unique("share")
    read_from_the_beginning(broker, group)
    produce(broker, stand_in, topic)
    with ShareConsumer(bootstrap_servers=broker.bootstrap, group_id=group, **deserializers(stand_in)) as consumer:
        consumer.subscribe([topic])
        assert read(consumer, 3) == EXPECTED


def test_unreachable_registry_loses_no_record(broker, stand_in, topic):
    produce(broker, stand_in, topic)
    stand_in.faults = [503] * 4
    with Consumer(**reading(broker, stand_in)) as consumer:
        consumer.assign([(topic, 0)])
        with pytest.raises(DeserializationFailed, match="poll again to read it again") as caught:
            read(consumer, 3)
        assert caught.value.retriable
        assert read(consumer, 3) == EXPECTED


def test_unreachable_registry_is_not_skipped(broker, stand_in, topic):
    produce(broker, stand_in, topic)
    stand_in.faults = [503] * 4
    with Consumer(
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        on_deserialization_error="skip",
        **deserializers(stand_in),
    ) as consumer:
        consumer.assign([(topic, 0)])
        with pytest.raises(DeserializationFailed):
            read(consumer, 3)
        assert read(consumer, 3) == EXPECTED


def test_bad_value_is_reported_with_its_place_and_field(broker, stand_in, topic):
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(topic, b"\7\0\0\0\1{}")
    produce(broker, stand_in, topic, 1)
    with Consumer(
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        value_deserializer=JsonSchemaDeserializer(config=settings(stand_in)),
    ) as consumer:
        consumer.assign([(topic, 0)])
        with pytest.raises(DeserializationFailed) as caught:
            read(consumer, 1)
    assert (caught.value.topic, caught.value.offset) == (topic, 0)


def test_value_that_does_not_fit_is_not_sent(broker, stand_in, topic):
    with (
        Producer(bootstrap_servers=broker.bootstrap, **serializers(stand_in)) as producer,
        pytest.raises(SerializationFailed) as caught,
    ):
        producer.send(topic, {"id": "x"})
    assert caught.value.field == "id"


def test_schema_guid_in_a_header(broker, stand_in, topic):
    stand_in.guids = True
    serializer = AvroSerializer(ORDER, config=settings(stand_in), schema_id_serializer="HeaderSchemaIdSerializer")
    with Producer(bootstrap_servers=broker.bootstrap, value_serializer=serializer) as producer:
        producer.send(topic, {"id": 5}, headers={"a": b"b"})
    with Consumer(**reading(broker, stand_in)) as consumer:
        consumer.assign([(topic, 0)])
        assert read(consumer, 1) == [(None, {"id": 5})]


def test_asyncio_share_consumer(broker, stand_in, topic):
    group = unique("share")

    async def use():
        records = []
        async with AsyncShareConsumer(
            bootstrap_servers=broker.bootstrap, group_id=group, **deserializers(stand_in)
        ) as consumer:
            consumer.subscribe([topic])
            for _ in range(100):
                records += await consumer.poll(0.2)
                if len(records) >= 3:
                    break
        return [(record.key, record.value) for record in records]

    read_from_the_beginning(broker, group)
    produce(broker, stand_in, topic)
    assert asyncio.run(use()) == EXPECTED


def poll_arrow(consumer, count):
    batches = []
    for _ in range(100):
        batch = consumer.poll_arrow(0.2)
        if len(batch):
            batches.append(batch)
        if sum(map(len, batches)) >= count:
            break
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def produce_with_a_bad_value(broker, stand_in, topic):
    good = AvroSerializer(ORDER, config=settings(stand_in))
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for i, value in enumerate([good({"id": 0}, topic=topic), b"bad", good({"id": 2}, topic=topic)]):
            producer.send(topic, value, timestamp_ms=i)


def test_arrow_batches_have_decoded_values(broker, stand_in, topic):
    produce(broker, stand_in, topic)
    options = reading(broker, stand_in)
    del options["key_deserializer"]
    with Consumer(**options) as consumer:
        consumer.assign([(topic, 0)])
        assert poll_arrow(consumer, 3) == [{"id": 0}, {"id": 1}, {"id": 2}]


def test_bad_value_in_an_arrow_batch_is_raised_once_between_the_others(broker, stand_in, topic):
    produce_with_a_bad_value(broker, stand_in, topic)
    with Consumer(**reading(broker, stand_in)) as consumer:
        consumer.assign([(topic, 0)])
        assert poll_arrow(consumer, 1) == [{"id": 0}]
        with pytest.raises(DeserializationFailed, match="header of Confluent's wire format") as caught:
            poll_arrow(consumer, 1)
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == (topic, 0, 1)
        assert caught.value.record.value == b"bad"
        assert poll_arrow(consumer, 1) == [{"id": 2}]


def test_bad_value_in_an_arrow_batch_is_skipped(broker, stand_in, topic, caplog):
    produce_with_a_bad_value(broker, stand_in, topic)
    with Consumer(**reading(broker, stand_in), on_deserialization_error="skip") as consumer:
        consumer.assign([(topic, 0)])
        assert poll_arrow(consumer, 2) == [{"id": 0}, {"id": 2}]
    assert "offset 1" in caplog.text


def test_unreachable_registry_loses_no_row_of_an_arrow_batch(broker, stand_in, topic):
    produce(broker, stand_in, topic)
    stand_in.faults = [503] * 4
    with Consumer(**reading(broker, stand_in)) as consumer:
        consumer.assign([(topic, 0)])
        with pytest.raises(DeserializationFailed) as caught:
            poll_arrow(consumer, 3)
        assert caught.value.retriable
        assert poll_arrow(consumer, 3) == [{"id": 0}, {"id": 1}, {"id": 2}]


def test_asyncio_arrow_batches(broker, stand_in, topic):
    async def use():
        async with AsyncConsumer(**reading(broker, stand_in)) as consumer:
            consumer.assign([(topic, 0)])
            for _ in range(100):
                batch = await consumer.poll_arrow(0.2)
                if len(batch):
                    return batch.column("value").to_pylist()
        return []

    produce(broker, stand_in, topic)
    assert asyncio.run(use()) == [{"id": 0}, {"id": 1}, {"id": 2}]


def test_asyncio_consumer_skips_several_records_of_an_unknown_schema(broker, stand_in, topic):
    async def use():
        records = []
        async with AsyncConsumer(
            bootstrap_servers=broker.bootstrap,
            auto_offset_reset="earliest",
            on_deserialization_error="skip",
            value_deserializer=AvroDeserializer(config=settings(stand_in)),
        ) as consumer:
            consumer.assign([(topic, 0)])
            for _ in range(100):
                records += await consumer.poll(0.2)
                if records:
                    break
        return [record.value for record in records]

    good = AvroSerializer(ORDER, config=settings(stand_in))({"id": 1}, topic=topic)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for value in (b"\0\0\0\0\x08x", b"\0\0\0\0\x09x", b"\0\0\0\0\x08x", good):
            producer.send(topic, value)
    assert asyncio.run(asyncio.wait_for(use(), 30)) == [{"id": 1}]


@pytest.mark.parametrize("poll", ["poll", "poll_arrow"])
def test_poll_that_is_cancelled_while_it_waits_for_a_schema_loses_no_record(broker, stand_in, topic, poll):
    async def use():
        options = reading(broker, stand_in)
        del options["key_deserializer"]
        async with AsyncConsumer(**options) as consumer:
            consumer.assign([(topic, 0)])
            await cancelled_at_a_request(stand_in, getattr(consumer, poll)(20.0))
            return [record.value for record in await polled(consumer)]

    produce(broker, stand_in, topic)
    assert asyncio.run(use()) == [{"id": 0}, {"id": 1}, {"id": 2}]


def test_poll_of_a_share_consumer_that_is_cancelled_while_it_waits_for_a_schema(broker, stand_in, topic):
    group = unique("share")

    async def use():
        options = {"bootstrap_servers": broker.bootstrap, "group_id": group, **deserializers(stand_in)}
        async with AsyncShareConsumer(**options) as consumer:
            consumer.subscribe([topic])
            await cancelled_at_a_request(stand_in, consumer.poll(20.0))
            return [record.value for record in await polled(consumer)]

    read_from_the_beginning(broker, group)
    produce(broker, stand_in, topic)
    assert asyncio.run(use()) == [{"id": 0}, {"id": 1}, {"id": 2}]


async def cancelled_at_a_request(stand_in, poll):
    """Cancel a poll while the registry holds back its response."""
    stand_in.hold, asked = threading.Event(), len(stand_in.requests)
    waiting = asyncio.create_task(poll)
    for _ in range(400):
        if len(stand_in.requests) > asked:
            break
        await asyncio.sleep(0.05)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert waiting.cancelled()
    stand_in.hold.set()


async def polled(consumer):
    records = []
    for _ in range(100):
        records += await consumer.poll(0.2)
        if len(records) >= 3:
            break
    return records
