"""Programs that write and read a topic with keys, which is compacted or subject to retention."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.clients import AsyncConsumer, AsyncProducer
from ottla.common.ids import TopicPartition
from tests.simulation.world.programs import PARTITIONS, Program, Work
from tests.simulation.world.retained import UNKNOWN, Retained

TABLE = "table"
KEYS = 12
PAUSES_S = (0.002, 0.02, 0.1)


class TableWriter(Program):
    """Sets and deletes keys, each in any partition. A value has its writer and its number."""

    name = "writer"

    def __init__(self, work: Work, index: int) -> None:
        super().__init__(work, index)
        self.incarnation = 0

    async def main(self) -> None:
        work, random = self.work, self.work.random
        self.incarnation += 1
        async with AsyncProducer(
            linger_ms=random.choice((0, 5, 50)), delivery_timeout_ms=15_000, **work.connection
        ) as producer:
            count = 0
            while not (work.stopping or self.stopping):
                count += 1
                key = b"%d" % random.randrange(KEYS)
                filler = b"." * random.choice((0, 0, 100))
                value = None if random.random() < 0.1 else b"%d.%d.%d" % (self.index, self.incarnation, count) + filler
                partition = random.randrange(PARTITIONS)
                await producer.send(TABLE, value, key, partition=partition, callback=self._outcome(partition, value))
                await asyncio.sleep(random.choice(PAUSES_S))

    def _outcome(self, partition: int, value: bytes | None) -> Any:
        def done(delivery: Any) -> None:
            error = delivery.exception()
            if error is None:
                self.work.acknowledged += 1
                self.work.checks.acknowledged(TABLE, partition, delivery.result().offset, value)
            else:
                self.work.note(error)

        return done


class TableReader(Program):
    """Reads the table again and again: each record is the committed one, and all keys are there."""

    name = "reader"

    def __init__(self, work: Work, retained: Retained) -> None:
        super().__init__(work, 1)
        self._retained = retained
        self.passes = 0

    async def main(self) -> None:
        partitions = [TopicPartition(TABLE, each) for each in range(PARTITIONS)]
        async with AsyncConsumer(auto_offset_reset="earliest", **self.work.connection) as consumer:
            consumer.assign(partitions)
            while not self.work.stopping:
                consumer.seek_to_beginning(partitions)
                await self._read(consumer, partitions)
                self.passes += 1
                await asyncio.sleep(self.work.random.choice((0.1, 1.0, 3.0)))

    async def _read(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        """Read up to the end of each partition as it was at the start."""
        fail, losses = self.work.cluster.fail, self.work.checks.losses
        known = {each: self.work.checks.partitions[each] for each in partitions}
        ends = {each: len(known[each].records) for each in partitions}
        last = dict.fromkeys(partitions, -1)
        values: dict[TopicPartition, dict[bytes | None, bytes | None]] = {each: {} for each in partitions}
        while any([await consumer.position(each) < ends[each] for each in partitions]):
            records = await consumer.poll(0.5)
            if self.work.stopping or self.work.checks.losses != losses:
                return
            for record in records:
                name = TopicPartition(record.topic, record.partition)
                text = f"the reader has {record.key!r} with {record.value!r} at {record.offset} of {name}"
                assert record.offset > last[name], fail(f"{text} after {last[name]}")
                wanted = known[name].records[record.offset]
                assert wanted == UNKNOWN or wanted[1] == record.value, fail(f"{text}, not {wanted}")
                last[name] = record.offset
                values[name][record.key] = record.value
        for name in partitions:
            self._retained.check_values(name, values[name], ends[name])
