"""A cost model of the broker: CPU time per request, per partition of it, per record and per KB.

    python -m benchmarks.costs

Runs one node in this process without a network, passes requests of different shapes to it, and takes the best CPU
time of several runs. The last column is the error of the model for shapes that it was not fitted to. The network adds
2 to 3 us to a request if requests are pipelined over one connection, and 40 to 100 us (system calls and wake-ups) if
each request waits for the previous response.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from tests.unit.broker.harness import BrokerHarness, open_harness

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
    """A request: the number of partitions, the records in each partition's batch, and the bytes of a record."""

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
        """Predict the cost of a request of this shape."""
        batches = shape.partitions * shape.records
        return (
            self.request + self.partition * shape.partitions + self.record * batches + self.kilobyte * shape.kilobytes
        )


FITTED = [
    Shape(1, 1, 100), Shape(1, 1, 20_000), Shape(1, 1, 100_000), Shape(1, 1, 400_000), Shape(1, 100, 10),
    Shape(1, 1000, 10), Shape(8, 1, 100), Shape(24, 1, 100), Shape(PARTITIONS, 1, 100), Shape(8, 50, 100),
    Shape(32, 10, 1000), Shape(4, 200, 500), Shape(16, 100, 50),
]  # fmt: skip
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


def cost_us(harness: BrokerHarness, message: Message) -> float:
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
            harness.dispatch(harness.client, memoryview(buffer))  # type: ignore[arg-type]
        end = time.process_time_ns()
        best = min(best, (end - start - (start - copying)) / count / 1000)
    return best


def fit(measure: Callable[[Shape], float]) -> Model:
    """The model whose relative errors are least for all the shapes of `FITTED`."""
    terms = np.array([[1.0, shape.partitions, shape.partitions * shape.records, shape.kilobytes] for shape in FITTED])
    found = np.array([measure(shape) for shape in FITTED])
    request, partition, record, kilobyte = np.linalg.lstsq(terms / found[:, None], np.ones(len(found)), rcond=None)[0]
    return Model(float(request), float(partition), float(record), float(kilobyte))


def main() -> None:
    """Print the model."""
    table = Table(title="microseconds of processor time", title_justify="left")
    for heading in ("request", "each", "+ per partition", "+ per record", "+ per KB", "off by, shapes mixed"):
        table.add_column(heading, justify="left" if heading == "request" else "right")
    for name, make in (("Produce", produce), ("Fetch", fetch)):

        def measure(shape: Shape, name: str = name, make: Callable[[Shape], Message] = make) -> float:
            with tempfile.TemporaryDirectory() as home, open_harness(home) as harness:
                harness.broker.clock = SystemClock()
                harness.create(TOPIC, PARTITIONS)
                if name == "Fetch":
                    frame = memoryview(bytearray(b"".join(encode_request(produce(shape), 12, 1, "costs"))[4:]))
                    harness.dispatch(harness.client, frame)  # type: ignore[arg-type]
                return cost_us(harness, make(shape))

        model = fit(measure)
        errors = [(model.predict(shape) / measure(shape) - 1) * 100 for shape in MIXED]
        table.add_row(
            name, *(f"{value:.3g}" for value in model), ", ".join(f"{error:+.0f} %" for error in errors)
        )  # fmt: skip
    Console().print(table)


if __name__ == "__main__":
    main()
