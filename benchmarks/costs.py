"""What a request costs the broker, as a small model: so much per request, per partition in it, per record, per KB.

    python -m benchmarks.costs

Runs one node in this process without a network, hands it requests of different shapes, and takes the best of several
runs of each, in processor time. The model is fitted to shapes that differ in one thing only; the last column says how
far it is off for shapes that differ in everything. To what it says comes the network: about 6 us a request if requests
are pipelined, 60 to 80 us (system calls and wake-ups) if each waits for the one before.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from tests.unit.broker.room import Room, open_room

from ottla.common.clock import SystemClock
from ottla.protocol.frames import encode_request
from ottla.protocol.message import Message
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records import encode_batch

TOPIC = "costs"
PARTITIONS = 64
RUNS = 7


class Shape(NamedTuple):
    """A request: so many partitions, in each one batch of so many records of so many bytes."""

    partitions: int
    records: int
    size: int

    @property
    def kilobytes(self) -> float:
        """Of all values."""
        return self.partitions * self.records * self.size / 1000


class Model(NamedTuple):
    """Microseconds."""

    request: float
    partition: float
    record: float
    kilobyte: float

    def predict(self, shape: Shape) -> float:
        """What a request of this shape should cost."""
        batches = shape.partitions * shape.records
        return (
            self.request + self.partition * shape.partitions + self.record * batches + self.kilobyte * shape.kilobytes
        )


MIXED = [Shape(3, 7, 300), Shape(12, 40, 100), Shape(6, 500, 100), Shape(40, 2, 1000)]


def produce(shape: Shape) -> Message:
    """The request."""
    batch = bytes(encode_batch([(int(time.time() * 1000), None, b"x" * shape.size, [])] * shape.records))
    rows = [PartitionProduceData(index=index, records=memoryview(batch)) for index in range(shape.partitions)]
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name=TOPIC, partition_data=rows)])


def fetch(shape: Shape) -> Message:
    """The request, without a session, for batches of this shape that were produced before."""
    size = shape.records * (shape.size + 12) + 100
    rows = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=size) for index in range(shape.partitions)
    ]
    return FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1 << 30, topics=[FetchTopic(topic=TOPIC, partitions=rows)]
    )


def cost_us(room: Room, message: Message) -> float:
    """The best of several runs."""
    frame = b"".join(encode_request(message, 12, 1, "costs"))[4:]
    buffer = bytearray(frame)
    count = max(20, min(1000, 2_000_000 // len(frame)))
    best = 1e9
    for _ in range(RUNS):
        copying = time.process_time_ns()
        for _ in range(count):
            buffer[:] = frame  # offsets were written into it
        start = time.process_time_ns()
        for _ in range(count):
            buffer[:] = frame
            room.dispatch(room.client, memoryview(buffer))  # type: ignore[arg-type]
        end = time.process_time_ns()
        best = min(best, (end - start - (start - copying)) / count / 1000)
    return best


def fit(measure: Callable[[Shape], float]) -> Model:
    """Slopes of shapes that differ in one thing."""

    def slope(shapes: list[Shape], of: Callable[[Shape], float]) -> float:
        return statistics.linear_regression([of(shape) for shape in shapes], [measure(shape) for shape in shapes]).slope

    kilobyte = max(0.0, slope([Shape(1, 1, size) for size in (100, 20_000, 100_000, 400_000)], lambda s: s.kilobytes))
    many = slope([Shape(1, records, 10) for records in (1, 100, 500, 1000)], lambda s: s.records)
    record = max(0.0, many - kilobyte * 0.01)
    wide = slope([Shape(partitions, 1, 100) for partitions in (1, 8, 24, PARTITIONS)], lambda s: s.partitions)
    partition = wide - record - kilobyte * 0.1
    one = measure(Shape(1, 1, 100))
    return Model(one - partition - record - kilobyte * 0.1, partition, record, kilobyte)


def main() -> None:
    """Print the model."""
    table = Table(title="microseconds of processor time", title_justify="left")
    for heading in ("request", "each", "+ per partition", "+ per record", "+ per KB", "off by, shapes mixed"):
        table.add_column(heading, justify="left" if heading == "request" else "right")
    for name, make in (("Produce", produce), ("Fetch", fetch)):

        def measure(shape: Shape, name: str = name, make: Callable[[Shape], Message] = make) -> float:
            with tempfile.TemporaryDirectory() as home, open_room(home) as room:
                room.broker.clock = SystemClock()
                room.create(TOPIC, PARTITIONS)
                if name == "Fetch":
                    frame = memoryview(bytearray(b"".join(encode_request(produce(shape), 12, 1, "costs"))[4:]))
                    room.dispatch(room.client, frame)  # type: ignore[arg-type]
                return cost_us(room, make(shape))

        model = fit(measure)
        errors = [(model.predict(shape) / measure(shape) - 1) * 100 for shape in MIXED]
        table.add_row(
            name, *(f"{value:.3g}" for value in model), ", ".join(f"{error:+.0f} %" for error in errors)
        )  # fmt: skip
    Console().print(table)


if __name__ == "__main__":
    main()
