"""Sensor readings, with aiokafka: one FastAPI process takes readings, and consumes its share of them.

    python readings_aiokafka.py --port 8000

The environment has the settings: KAFKA_BOOTSTRAP, READINGS_TOPIC, READINGS_GROUP, and READINGS_LEDGER, the file to
which all processes of the group append the readings that they have stored. `readings_ottla.py` is the same service
with Ottla's clients.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import uvicorn
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.errors import CommitFailedError, KafkaError, MessageSizeTooLargeError
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

Records = Sequence[ConsumerRecord[str, dict[str, object]]]

BOOTSTRAP = os.environ.get("KAFKA_BOOTSTRAP", "localhost:9092")
TOPIC = os.environ.get("READINGS_TOPIC", "readings")
GROUP = os.environ.get("READINGS_GROUP", "thermometers")
LEDGER = os.environ.get("READINGS_LEDGER", "readings.jsonl")
ATTEMPTS = 3
BACKOFF_S = 0.1

log = logging.getLogger("readings")


class Reading(BaseModel):
    """A measurement of a sensor."""

    sensor: str
    celsius: float
    at_ms: int
    note: str = ""


class Readings:
    """Produces readings, and stores the readings of the partitions that the group gives to this process."""

    def __init__(self) -> None:
        self.latest: dict[str, Reading] = {}
        self.producer = AIOKafkaProducer(
            bootstrap_servers=BOOTSTRAP,
            client_id="readings",
            acks="all",
            enable_idempotence=True,
            compression_type="gzip",
            linger_ms=5,
            key_serializer=str.encode,
            value_serializer=lambda value: json.dumps(value).encode(),
        )
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=BOOTSTRAP,
            client_id="readings",
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_interval_ms=60_000,
            heartbeat_interval_ms=1_000,
            key_deserializer=bytes.decode,
            value_deserializer=json.loads,
        )
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        # aiokafka calls the listener in a task of its own, also while a batch is being stored.
        self._lock = asyncio.Lock()
        self._rebalances = 0
        self._stored: dict[TopicPartition, int] = {}

    async def start(self) -> None:
        """Connect, and consume in the background."""
        await self.producer.start()
        self.consumer.subscribe([TOPIC], listener=Listener(self))
        await self.consumer.start()
        self._task = asyncio.create_task(self._consume())
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Stop the process if it cannot consume any more, so that it is restarted."""
        if not task.cancelled() and task.exception() is not None:
            log.error("Consuming failed", exc_info=task.exception())
            signal.raise_signal(signal.SIGTERM)

    async def stop(self) -> None:
        """Store what was read, commit, leave the group, flush."""
        self._stopping = True
        if self._task is not None:
            await self._task
        await self.consumer.stop()
        await self.producer.stop()
        log.info("Stopped")

    # --- producing ----------------------------------------------------------------------------------------------------

    async def publish(self, reading: Reading) -> tuple[int, int]:
        """Send a reading and wait until it is acknowledged: its partition and offset. Retries what may pass."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                metadata = await self.producer.send_and_wait(
                    TOPIC, reading.model_dump(), key=reading.sensor, timestamp_ms=reading.at_ms
                )
            except KafkaError as error:
                if not error.retriable or attempt == ATTEMPTS:
                    raise
                log.warning("Reading of %s is sent again: %r", reading.sensor, error)
                await asyncio.sleep(BACKOFF_S * attempt)
            else:
                return metadata.partition, metadata.offset
        raise AssertionError("unreachable")

    async def publish_all(self, readings: list[Reading]) -> int:
        """Send many readings, then wait for all of them: how many failed."""
        deliveries = [
            await self.producer.send(TOPIC, reading.model_dump(), key=reading.sensor, timestamp_ms=reading.at_ms)
            for reading in readings
        ]
        outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
        return sum(isinstance(outcome, BaseException) for outcome in outcomes)

    # --- consuming ----------------------------------------------------------------------------------------------------

    async def _consume(self) -> None:
        while not self._stopping:
            rebalances = self._rebalances
            batches = await self.consumer.getmany(timeout_ms=200, max_records=200)
            async with self._lock:
                if self._rebalances != rebalances:  # some of it may be read by the new owner already
                    self._give_back(batches)
                    continue
                for partition, records in batches.items():
                    await self._store(partition, records)
                await self.commit()

    def _give_back(self, batches: dict[TopicPartition, Records]) -> None:
        for partition, records in batches.items():
            if partition in self.consumer.assignment():
                self.consumer.seek(partition, records[0].offset)

    async def _store(self, partition: TopicPartition, records: Records) -> None:
        try:
            self._append(records)
        except OSError as error:
            log.warning("%s is read again from offset %d: %s", partition, records[0].offset, error)
            self.consumer.seek(partition, records[0].offset)
            await asyncio.sleep(BACKOFF_S)
            return
        for record in records:
            self.latest[str(record.value["sensor"])] = Reading.model_validate(record.value)
        self._stored[partition] = records[-1].offset + 1

    def _append(self, records: Records) -> None:
        rows = [
            {
                "worker": os.getpid(),
                "partition": record.partition,
                "offset": record.offset,
                "sensor": record.value["sensor"],
                "at_ms": record.timestamp,
            }
            for record in records
        ]
        with open(LEDGER, "a") as ledger:
            ledger.write("".join(json.dumps(row) + "\n" for row in rows))

    async def commit(self) -> None:
        """Commit what was stored since the last commit."""
        if not self._stored:
            return
        try:
            await self.consumer.commit(self._stored)
        except CommitFailedError as error:
            log.warning("Not committed, the group has rebalanced: %s", error)
        self._stored = {}

    async def revoked(self, partitions: list[TopicPartition]) -> None:
        """Finish the batch that is being stored, and commit it while the partitions are still ours."""
        async with self._lock:
            self._rebalances += 1
            await self.commit()
        log.info("Revoked %s", sorted(tp.partition for tp in partitions))


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Commits before partitions are given away."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        """Called before a rebalance, with all partitions."""
        await self._readings.revoked(revoked)

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        """Called after a rebalance, with all partitions."""
        log.info("Assigned %s", sorted(tp.partition for tp in assigned))


# --- the API ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Connect when the app starts; commit, leave and flush when it stops."""
    app.state.readings = Readings()
    await app.state.readings.start()
    yield
    await app.state.readings.stop()


app = FastAPI(lifespan=lifespan)


@app.post("/readings", status_code=201)
async def publish(reading: Reading) -> dict[str, int]:
    """Take one reading; answers when it is acknowledged."""
    try:
        partition, offset = await app.state.readings.publish(reading)
    except MessageSizeTooLargeError as error:
        raise HTTPException(413, str(error)) from error
    except KafkaError as error:
        raise HTTPException(503 if error.retriable else 500, str(error)) from error
    return {"partition": partition, "offset": offset}


@app.post("/readings/bulk", status_code=202)
async def publish_all(readings: list[Reading]) -> dict[str, int]:
    """Take many readings; answers when each is acknowledged or failed."""
    return {"failed": await app.state.readings.publish_all(readings)}


@app.get("/sensors")
async def sensors() -> dict[str, Reading]:
    """The latest reading of each sensor whose partition is read here."""
    latest: dict[str, Reading] = app.state.readings.latest
    return latest


def main() -> None:
    """Run the service."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn repeats the signal after its shutdown
    uvicorn.run(app, port=arguments.port, log_level="info")


if __name__ == "__main__":
    main()
