"""A test with Ottla in a container, by the module for Kafka of testcontainers: only the name of the image differs.

Needs a container runtime, the image (docs/containers.md), and `pip install testcontainers confluent-kafka pytest`.
For Python alone, Ottla's pytest plugin needs no container: docs/testing.md.
"""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from testcontainers.kafka import KafkaContainer


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    with KafkaContainer("ottla:latest").with_kraft() as kafka:
        yield kafka.get_bootstrap_server()


def test_an_order_is_read_back(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("orders", b"one coffee")
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    message = consumer.poll(30)
    assert message is not None
    assert message.value() == b"one coffee"
    consumer.close()
