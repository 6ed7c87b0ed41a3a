"""Orders, with confluent-kafka: an HTTP API that produces orders, and workers that bill them as one group.

    python orders_confluent.py api --port 8000
    python orders_confluent.py worker

The environment has the settings: KAFKA_BOOTSTRAP, ORDERS_TOPIC, ORDERS_GROUP, and ORDERS_LEDGER, the file to which the
workers append a line for each order that they have billed. `orders_ottla.py` is the same service with Ottla's clients.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

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


def on_error(error: KafkaError) -> None:
    """Log what librdkafka reports by itself."""
    log.warning("Kafka: %s", error.str())


# --- the API ----------------------------------------------------------------------------------------------------------


class OrderProducer:
    """Produces orders; a thread of its own runs the delivery callbacks."""

    def __init__(self) -> None:
        self.delivered = self.failed = 0
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": BOOTSTRAP,
                "client.id": "orders-api",
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 5,
                "message.timeout.ms": 60_000,
                "queue.buffering.max.messages": 50_000,
                "error_cb": on_error,
            }
        )
        self._poller = threading.Thread(target=self._run_callbacks, name="orders-delivery")
        self._poller.start()

    def _run_callbacks(self) -> None:
        while not self._stopping.is_set():
            self._producer.poll(0.1)

    def produce(self, order: Order, on_delivery: Callable[[KafkaError | None, Message], None]) -> None:
        """Queue an order; its customer is the key, so that the orders of a customer stay in their order."""
        self._producer.produce(
            TOPIC,
            order.model_dump_json().encode(),
            order.customer.encode(),
            headers=[("source", b"api")],
            on_delivery=on_delivery,
        )

    def count(self, error: KafkaError | None, message: Message) -> None:
        """Count a delivery that no request waits for."""
        if error is None:
            self.delivered += 1
        else:
            self.failed += 1
            log.error("Order of %s was not delivered: %s", message.key(), error.str())

    async def deliver(self, order: Order) -> tuple[int, int]:
        """Produce an order and wait until it is acknowledged: its partition and offset."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[tuple[int, int]] = loop.create_future()

        def settle(error: KafkaError | None, place: tuple[int, int]) -> None:
            if done.cancelled():
                return
            if error is None:
                done.set_result(place)
            else:
                done.set_exception(KafkaException(error))

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            self.count(error, message)
            place = (message.partition() or 0, message.offset() or 0)
            loop.call_soon_threadsafe(settle, error, place)

        self.produce(order, on_delivery)
        return await done

    def close(self) -> None:
        """Wait for the orders that are queued."""
        left = self._producer.flush(FLUSH_S)
        self._stopping.set()
        self._poller.join()
        if left:
            log.error("%d orders were not delivered within %g s", left, FLUSH_S)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Make the producer when the app starts, flush it when the app stops."""
    app.state.orders = OrderProducer()
    yield
    await asyncio.to_thread(app.state.orders.close)


app = FastAPI(lifespan=lifespan)


def refusal(error: KafkaException) -> HTTPException:
    """The answer to a client whose order was not delivered."""
    cause: KafkaError = error.args[0]
    if cause.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return HTTPException(413, cause.str())
    return HTTPException(503 if cause.retriable() else 500, cause.str())


@app.post("/orders", status_code=201)
async def place_order(order: Order) -> dict[str, int]:
    """Place one order; answers when it is acknowledged."""
    try:
        partition, offset = await app.state.orders.deliver(order)
    except BufferError as error:
        raise HTTPException(503, "too many orders are on their way") from error
    except KafkaException as error:
        raise refusal(error) from error
    return {"partition": partition, "offset": offset}


@app.post("/orders/import", status_code=202)
async def import_orders(orders: list[Order]) -> dict[str, int]:
    """Take many orders; answers when they are queued."""
    producer: OrderProducer = app.state.orders
    for order in orders:
        while True:
            try:
                producer.produce(order, producer.count)
                break
            except BufferError:  # the queue is full: let it drain
                await asyncio.sleep(0.01)
            except KafkaException as error:
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
                "error_cb": on_error,
                "stats_cb": self._on_statistics,
            }
        )
        self._rejects = Producer({"bootstrap.servers": BOOTSTRAP, "client.id": "orders-rejects", "error_cb": on_error})

    def stop(self, *_: object) -> None:
        """Have `run` return soon."""
        self._stopping = True

    def run(self) -> None:
        """Bill orders until the process is asked to stop."""
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGINT, self.stop)
        self._consumer.subscribe([TOPIC], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)
        try:
            while not self._stopping:
                message = self._consumer.poll(0.2)
                if message is not None:
                    self._handle(message)
                if time.monotonic() - self._committed_at > COMMIT_EVERY_S:
                    self._commit(asynchronous=True)
        finally:
            self._consumer.close()  # _on_revoke commits
            self._rejects.flush(FLUSH_S)
        log.info("Stopped")

    def _handle(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.fatal():
                raise KafkaException(error)
            log.warning("Kafka: %s", error.str())
            return
        order = Order.model_validate_json(message.value() or b"{}")
        if order.amount_cents > 0:
            self._bill(order, message)
        else:
            self._rejects.produce(
                f"{TOPIC}.rejected",
                message.value(),
                message.key(),
                headers=[*(message.headers() or []), ("reason", b"amount")],
                on_delivery=self._on_rejected,
            )
        self._consumer.store_offsets(message)

    def _bill(self, order: Order, message: Message) -> None:
        row = {
            "worker": os.getpid(),
            "partition": message.partition(),
            "offset": message.offset(),
            "order": order.order_id,
            "placed_ms": message.timestamp()[1],
        }
        with open(LEDGER, "a") as ledger:
            ledger.write(json.dumps(row) + "\n")

    def _on_rejected(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            log.error("Rejected order of %s was not delivered: %s", message.key(), error.str())

    def _commit(self, *, asynchronous: bool = False) -> None:
        self._committed_at = time.monotonic()
        self._rejects.flush(FLUSH_S)
        try:
            if asynchronous:
                self._consumer.commit(asynchronous=True)
            else:
                self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:  # noqa: SLF001
                raise

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        log.info("Assigned %s", sorted(tp.partition for tp in partitions))

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit()
        log.info("Revoked %s", sorted(tp.partition for tp in partitions))

    def _on_lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        log.warning("Lost %s: another worker may bill the last orders again", sorted(tp.partition for tp in partitions))

    def _on_statistics(self, text: str) -> None:
        topic: dict[str, Any] = json.loads(text)["topics"].get(TOPIC, {"partitions": {}})
        lags = [row["consumer_lag"] for row in topic["partitions"].values() if row["consumer_lag"] >= 0]
        log.info("Lag: %s", max(lags, default=0))


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
