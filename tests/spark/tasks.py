"""Tasks of an exactly-once write without Spark: attempts that fail, are repeated, cut off or continue as zombies."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark.taskcontext import TaskContext

from ottla.clients import Admin, Consumer
from ottla.spark import transactional_writer
from ottla.spark.client_pool import ClientPool
from ottla.spark.options import read_sink_options
from ottla.spark.sink import StreamWriter
from ottla.spark.transactional_writer import SinkProducer
from ottla.spark.write_plan import Written
from tests.clients.support import WAIT_S, unique
from tests.conftest import RunningBroker

VALUE = StructType([StructField("value", BinaryType())])
SCHEMA = pa.schema([("value", pa.binary())])


class Cut(Exception):
    """The task fails here."""


@dataclass
class Context:
    """The task context that Spark provides."""

    task: int
    properties: dict[str, str]
    number: int = 0

    def partitionId(self) -> int:  # noqa: N802 - Spark's
        return self.task

    def attemptNumber(self) -> int:  # noqa: N802 - Spark's
        return self.number

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - Spark's
        return self.properties.get(name)


def rows(*values: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": list(values)}, schema=SCHEMA)


class Worker:
    """The clients that one process keeps from task to task, and the directory of its executor."""

    def __init__(self, executor: Path) -> None:
        self.executor = executor
        self.producers: ClientPool[SinkProducer] = ClientPool(SinkProducer)
        self.admins: ClientPool[Admin] = ClientPool(Admin)

    def use(self, patch: pytest.MonkeyPatch) -> None:
        """Have the tasks that follow run here."""
        patch.setattr(transactional_writer, "_producers", self.producers)
        patch.setattr(transactional_writer, "_admins", self.admins)
        patch.setenv("SPARK_LOCAL_DIRS", str(self.executor))

    def close(self) -> None:
        self.producers.close()
        self.admins.close()


@dataclass
class Query:
    """A query with one sink. `write` is an attempt of a task, in a worker."""

    bootstrap: str
    monkeypatch: pytest.MonkeyPatch
    topic: str = field(default_factory=lambda: unique("once"))
    query_id: str = field(default_factory=lambda: unique("query"))
    properties: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    number: int = 0
    """The number of the attempt: 0 for Spark's first attempt of a task."""

    def __post_init__(self) -> None:
        with Admin(self.bootstrap) as admin:
            admin.create_topic(self.topic, partitions=2, replication_factor=1)

    def writer(self, **options: str) -> StreamWriter:
        given = {"kafka.bootstrap.servers": self.bootstrap, "topic": self.topic, "exactlyOnce": "true"}
        return StreamWriter(read_sink_options({**given, **self.options, **options}), VALUE)

    def write(
        self, task: int, batch: int, *batches: pa.RecordBatch | Callable[[], object], run: str = "run", **options: str
    ) -> Written:
        """Write the batches; a function among them is called when the task gets there."""
        context = Context(task, {
            "sql.streaming.queryId": self.query_id, "streaming.sql.batchId": str(batch), "spark.jobGroup.id": run,
            "spark.sql.execution.id": "1", "spark.sql.shuffle.partitions": "2",
            "spark.sql.adaptive.enabled": "false", **self.properties,
        }, self.number)  # fmt: skip

        def given() -> Iterator[pa.RecordBatch]:
            for each in batches:
                if callable(each):
                    each()
                else:
                    yield each

        self.monkeypatch.setattr(TaskContext, "_taskContext", context)
        return self.writer(**options).write(given())

    @contextmanager
    def on(self, worker: Worker, number: int = 0) -> Iterator[None]:
        """Attempts of this number run in `worker`."""
        with self.monkeypatch.context() as patch:
            worker.use(patch)
            patch.setattr(self, "number", number)
            yield

    def seen(self, isolation: str = "read_committed") -> list[bytes]:
        """The sorted values that a reader sees now."""
        settings = {"isolation_level": isolation, "auto_offset_reset": "earliest"}
        with Consumer(bootstrap_servers=self.bootstrap, **settings) as consumer:
            ends = consumer.end_offsets([(self.topic, 0), (self.topic, 1)])
            consumer.assign(list(ends))
            found: list[bytes] = []
            deadline = time.monotonic() + WAIT_S
            while any(consumer.position(tp) < end for tp, end in ends.items()):
                assert time.monotonic() < deadline, "the ends of the partitions cannot be read"
                # Aborted records move the position without an answer.
                found += [row.value for row in consumer.poll(0.1)]
            return sorted(found)


def fail() -> None:
    raise Cut


@pytest.fixture
def own_clients(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    worker = Worker(tmp_path)
    worker.use(monkeypatch)
    yield
    worker.close()


@pytest.fixture
def query(broker: RunningBroker, own_clients: None, monkeypatch: pytest.MonkeyPatch) -> Query:
    return Query(broker.bootstrap, monkeypatch)
