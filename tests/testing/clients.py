"""The same few words in four clients: send, and read to the end. Each call has a client of its own and a deadline."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Protocol

import pytest

TIMEOUT_S = 20.0


class Client(Protocol):
    """One client library. `client_id` is the id that the broker receives."""

    name: str

    def send(self, bootstrap: str, topic: str, values: Sequence[bytes], *, retry: bool = True) -> None:
        """Idempotently with retries, or once and never again; raises what the client raises."""
        ...

    def read(self, bootstrap: str, topic: str, count: int, group: str | None = None) -> list[bytes]:
        """`count` values from the beginning, or from where the group is (committing them)."""
        ...


class Confluent:
    name = "confluent"

    def send(self, bootstrap: str, topic: str, values: Sequence[bytes], *, retry: bool = True) -> None:
        from confluent_kafka import KafkaException, Producer

        settings = {"bootstrap.servers": bootstrap, "client.id": self.name, "log_level": 2, "retry.backoff.ms": 20}
        settings |= {"enable.idempotence": True} if retry else {"retries": 0}
        errors = []
        producer = Producer(settings)
        for value in values:
            producer.produce(topic, value, partition=0, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(TIMEOUT_S) == 0
        if any(errors):
            raise KafkaException(next(error for error in errors if error))

    def read(self, bootstrap: str, topic: str, count: int, group: str | None = None) -> list[bytes]:
        from confluent_kafka import Consumer

        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": self.name,
                "group.id": group or f"confluent-{time.time_ns()}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "check.crcs": True,
                "log_level": 2,
            }
        )
        consumer.subscribe([topic])
        found: list[bytes] = []
        deadline = time.monotonic() + TIMEOUT_S
        try:
            while len(found) < count and time.monotonic() < deadline:
                message = consumer.poll(0.5)
                if message is not None and message.error() is None:
                    found.append(message.value())
            if group:
                consumer.commit(asynchronous=False)
        finally:
            consumer.close()
        return found


class KafkaPython:
    name = "kafka-python"

    def send(self, bootstrap: str, topic: str, values: Sequence[bytes], *, retry: bool = True) -> None:
        from kafka import KafkaProducer

        settings = {"enable_idempotence": True, "acks": "all"} if retry else {"enable_idempotence": False, "retries": 0}
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            client_id=self.name,
            retry_backoff_ms=20,
            request_timeout_ms=5000,
            delivery_timeout_ms=15_000,
            **settings,
        )
        try:
            futures = [producer.send(topic, value, partition=0) for value in values]
            for future in futures:
                future.get(TIMEOUT_S)
        finally:
            producer.close(5)

    def read(self, bootstrap: str, topic: str, count: int, group: str | None = None) -> list[bytes]:
        from kafka import KafkaConsumer

        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            client_id=self.name,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        found: list[bytes] = []
        deadline = time.monotonic() + TIMEOUT_S
        try:
            while len(found) < count and time.monotonic() < deadline:
                for records in consumer.poll(timeout_ms=300).values():
                    found += [record.value for record in records]
            if group:
                consumer.commit()
        finally:
            consumer.close()
        return found


class Aiokafka:
    name = "aiokafka"

    def send(self, bootstrap: str, topic: str, values: Sequence[bytes], *, retry: bool = True) -> None:
        from aiokafka import AIOKafkaProducer

        async def send() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                client_id=self.name,
                enable_idempotence=retry,
                retry_backoff_ms=20,
                request_timeout_ms=5000 if retry else 400,
            )
            await producer.start()
            try:
                for value in values:
                    await asyncio.wait_for(producer.send_and_wait(topic, value, partition=0), TIMEOUT_S)
            finally:
                await producer.stop()

        asyncio.run(send())

    def read(self, bootstrap: str, topic: str, count: int, group: str | None = None) -> list[bytes]:
        from aiokafka import AIOKafkaConsumer

        async def read() -> list[bytes]:
            consumer = AIOKafkaConsumer(
                topic,
                bootstrap_servers=bootstrap,
                client_id=self.name,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
            await consumer.start()
            found: list[bytes] = []
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TIMEOUT_S):
                        while len(found) < count:
                            found += [r.value for rs in (await consumer.getmany(timeout_ms=300)).values() for r in rs]
                if group:
                    await consumer.commit()
            finally:
                await consumer.stop()
            return found

        return asyncio.run(read())


class Ours:
    name = "ottla"

    def send(self, bootstrap: str, topic: str, values: Sequence[bytes], *, retry: bool = True) -> None:
        from ottla.clients import Producer

        settings = {} if retry else {"retries": 0, "enable_idempotence": False}
        with Producer(bootstrap_servers=bootstrap, client_id=self.name, retry_backoff_ms=20, **settings) as producer:
            deliveries = [producer.send(topic, value, partition=0) for value in values]
            for delivery in deliveries:
                delivery.result(TIMEOUT_S)

    def read(self, bootstrap: str, topic: str, count: int, group: str | None = None) -> list[bytes]:
        from ottla.clients import Consumer

        settings = {"group_id": group} if group else {}
        found: list[bytes] = []
        deadline = time.monotonic() + TIMEOUT_S
        with Consumer(
            bootstrap_servers=bootstrap,
            client_id=self.name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **settings,
        ) as consumer:
            if group:
                consumer.subscribe([topic])
            else:
                consumer.assign([(topic, 0)])
            while len(found) < count and time.monotonic() < deadline:
                found += [record.value for record in consumer.poll(0.5)]
            if group:
                consumer.commit()
        return found


CLIENTS: list[Client] = [Confluent(), KafkaPython(), Aiokafka(), Ours()]
each_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
