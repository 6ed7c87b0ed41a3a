"""Orders, with Ottla's clients: an HTTP API that produces orders, and workers that bill them as one group.

    python orders_ottla.py api --port 8000
    python orders_ottla.py worker

The environment has the settings: KAFKA_BOOTSTRAP, ORDERS_TOPIC, ORDERS_GROUP, and ORDERS_LEDGER, the file to which the
workers append a line for each order that they have billed. `orders_confluent.py` is the same service with
confluent-kafka; both may run at the same time, in one group.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from ottla.clients import (
    AsyncDelivery,
    AsyncProducer,
    BufferExhausted,
    ClientError,
    Consumer,
    Delivery,
    Event,
    MessageTooLarge,
    Producer,
    Record,
    StatisticsReported,
    TopicPartition,
)

BOOTSTRAP = os.environ.get("KAFKA_BOOTSTRAP", "localhost:9092")
TOPIC = os.environ.get("ORDERS_TOPIC", "orders")
GROUP = os.environ.get("ORDERS_GROUP", "billing")
LEDGER = os.environ.get("ORDERS_LEDGER", "ledger.jsonl")
COMMIT_EVERY_S = 0.5
FLUSH_S = 10.0

log = logging.getLogger("orders")


class Order(BaseModel):
    """An order as a customer places it."""

    order_id: str
    customer: str
    amount_cents: int
    note: str = ""


# --- the API ----------------------------------------------------------------------------------------------------------


class OrderProducer:
    """Produces orders on the app's event loop."""

    def __init__(self) -> None:
        self.delivered = self.failed = 0
        self._producer = AsyncProducer(
            {
                "bootstrap.servers": BOOTSTRAP,
                "client.id": "orders-api",
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 5,
                "delivery.timeout.ms": 60_000,
                "buffer.memory": 32 * 1024 * 1024,
                "partitioner": "consistent_random",
            }
        )

    async def produce(self, order: Order) -> AsyncDelivery:
        """Send an order; its customer is the key, so that the orders of a customer stay in their order."""
        return await self._producer.send(
            TOPIC,
            order.model_dump_json().encode(),
            order.customer.encode(),
            headers=[("source", b"api")],
            callback=self.count,
        )

    def count(self, delivery: AsyncDelivery) -> None:
        """Count a delivery, whether a request waits for it or not."""
        error = delivery.exception()
        if error is None:
            self.delivered += 1
        else:
            self.failed += 1
            log.error("An order was not delivered: %s", error)

    async def deliver(self, order: Order) -> tuple[int, int]:
        """Produce an order and wait until it is acknowledged: its partition and offset."""
        metadata = await (await self.produce(order))
        return metadata.partition, metadata.offset

    async def close(self) -> None:
        """Wait for the orders that are not acknowledged yet."""
        left = await self._producer.flush(FLUSH_S)
        await self._producer.close(0)
        if left:
            log.error("%d orders were not delivered within %g s", left, FLUSH_S)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Make the producer when the app starts, flush it when the app stops."""
    app.state.orders = OrderProducer()
    yield
    await app.state.orders.close()


app = FastAPI(lifespan=lifespan)


def refusal(error: ClientError) -> HTTPException:
    """The answer to a client whose order was not delivered."""
    if isinstance(error, MessageTooLarge):
        return HTTPException(413, str(error))
    return HTTPException(503 if error.retriable else 500, str(error))


@app.post("/orders", status_code=201)
async def place_order(order: Order) -> dict[str, int]:
    """Place one order; answers when it is acknowledged."""
    try:
        partition, offset = await app.state.orders.deliver(order)
    except BufferExhausted as error:
        raise HTTPException(503, "too many orders are on their way") from error
    except ClientError as error:
        raise refusal(error) from error
    return {"partition": partition, "offset": offset}


@app.post("/orders/import", status_code=202)
async def import_orders(orders: list[Order]) -> dict[str, int]:
    """Take many orders; answers when they are queued."""
    for order in orders:
        try:
            await app.state.orders.produce(order)  # waits while the buffer is full
        except ClientError as error:
            raise refusal(error) from error
    return {"accepted": len(orders)}


@app.get("/deliveries")
async def deliveries() -> dict[str, int]:
    """How many orders were delivered, and how many were not."""
    return {"delivered": app.state.orders.delivered, "failed": app.state.orders.failed}


# --- the worker -------------------------------------------------------------------------------------------------------


class Worker:
    """Bills orders; commits billed orders twice a second, and before it gives up partitions."""

    def __init__(self) -> None:
        self._stopping = False
        self._committed_at = time.monotonic()
        self._consumer = Consumer(
            {
                "bootstrap.servers": BOOTSTRAP,
                "client.id": "orders-worker",
                "group.id": GROUP,
                "partition.assignment.strategy": "cooperative-sticky",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "session.timeout.ms": 30_000,
                "heartbeat.interval.ms": 1_000,
                "statistics.interval.ms": 500,
                "on_event": self._on_event,
            }
        )
        self._rejects = Producer(
            {"bootstrap.servers": BOOTSTRAP, "client.id": "orders-rejects", "partitioner": "consistent_random"}
        )

    def stop(self, *_: object) -> None:
        """Have `run` return soon."""
        self._stopping = True

    def run(self) -> None:
        """Bill orders until the process is asked to stop."""
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGINT, self.stop)
        self._consumer.subscribe(
            [TOPIC], on_assigned=self._on_assigned, on_revoked=self._on_revoked, on_lost=self._on_lost
        )
        try:
            while not self._stopping:
                for record in self._consumer.poll(0.2):
                    self._handle(record)
                if time.monotonic() - self._committed_at > COMMIT_EVERY_S:
                    self._commit(asynchronous=True)
        finally:
            self._consumer.close()  # _on_revoked commits
            self._rejects.close(FLUSH_S)
        log.info("Stopped")

    def _handle(self, record: Record[bytes, bytes]) -> None:
        order = Order.model_validate_json(record.value or b"{}")
        if order.amount_cents > 0:
            self._bill(order, record)
        else:
            self._rejects.send(
                f"{TOPIC}.rejected",
                record.value,
                record.key,
                headers=[*record.headers, ("reason", b"amount")],
                callback=self._on_rejected,
            )
        self._consumer.store_offsets(record)

    def _bill(self, order: Order, record: Record[bytes, bytes]) -> None:
        row = {
            "worker": os.getpid(),
            "partition": record.partition,
            "offset": record.offset,
            "order": order.order_id,
            "placed_ms": record.timestamp,
        }
        with open(LEDGER, "a") as ledger:
            ledger.write(json.dumps(row) + "\n")

    def _on_rejected(self, delivery: Delivery) -> None:
        error = delivery.exception()
        if error is not None:
            log.error("A rejected order was not delivered: %s", error)

    def _commit(self, *, asynchronous: bool = False) -> None:
        self._committed_at = time.monotonic()
        self._rejects.flush(FLUSH_S)
        if asynchronous:
            self._consumer.commit_async()
        else:
            self._consumer.commit()

    def _on_assigned(self, partitions: list[TopicPartition]) -> None:
        log.info("Assigned %s", sorted(tp.partition for tp in partitions))

    def _on_revoked(self, partitions: list[TopicPartition]) -> None:
        self._commit()
        log.info("Revoked %s", sorted(tp.partition for tp in partitions))

    def _on_lost(self, partitions: list[TopicPartition]) -> None:
        log.warning("Lost %s: another worker may bill the last orders again", sorted(tp.partition for tp in partitions))

    def _on_event(self, event: Event) -> None:
        if isinstance(event, StatisticsReported):
            log.info("Lag: %s", event.metrics.get("records-lag-max", 0))


def main() -> None:
    """Run the API or a worker."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["api", "worker"])
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    if arguments.role == "worker":
        Worker().run()
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn repeats the signal after its shutdown
        uvicorn.run(app, port=arguments.port, log_level="info")


if __name__ == "__main__":
    main()
