"""A source that is a function, in the Spark tasks. Each row is written exactly once.

A micro-batch is planned on the driver: for each part of the source, a task that goes on after the offset that was
committed last. The plan is in Spark's offset log, so a repeated task calls the function with the same offset. A task
returns the rows, and the part's next offset as a record of the topic of source offsets: the sink writes both in one
transaction. So the next plan sees an offset if and only if its rows are visible, also if the function does not return
the same rows again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from ottla.connect import plugins
from ottla.connect.api import SourceTaskContext
from ottla.connect.cluster import offset_records
from ottla.connect.records import Position
from ottla.connect.runtime import TaskId
from ottla.connect.worker.clients import Clients
from ottla.connect.worker.control import TaskControl
from ottla.connect.worker.conversion import Chain, Serialized, SourceConversion
from ottla.connect.worker.offset_store import OffsetStore
from ottla.connect.worker.settings import WorkerSettings
from ottla.connect.worker.task_settings import ErrorSettings
from ottla.connect.worker.tolerance import Tolerance
from ottla.connect.worker.topics import TopicCreator, topic_groups

if TYPE_CHECKING:
    from ottla.connect.function_tasks import FunctionSourceTask

_COLUMNS: Final = (
    "topic string, partition int, key binary, value binary, headers array<struct<key: string, value: binary>>, "
    "timestamp timestamp"
)
_PARTITIONS: Final = "ottla.partitions"
_AFTER: Final = "after"


class FunctionWork(NamedTuple):
    """All that the Spark processes need. Settings are resolved."""

    connector: str
    plain: str
    """The name of the plugin."""
    config: Mapping[str, str]
    worker: Mapping[str, str]
    task: int

    @property
    def settings(self) -> WorkerSettings:
        """The worker's settings."""
        return WorkerSettings.read(self.worker)

    @property
    def clients(self) -> Clients:
        """The clients of the connector."""
        return Clients(self.settings, self.config)

    @property
    def offsets_topic(self) -> str:
        """The topic of source offsets."""
        return self.config.get("offsets.storage.topic") or self.settings.offsets_topic


class Part(InputPartition):
    """The work of one task: a part of the source, where it goes on, and the key of its offset."""

    def __init__(self, given: Any, after: Any, key: bytes) -> None:
        super().__init__((given, after))
        self.given = given
        self.after = after
        self.key = key


class FunctionDataSource(DataSource):
    """A function as a Spark format. A subclass has the work, since options are visible in plans."""

    work: ClassVar[FunctionWork]

    def schema(self) -> str:
        """Return the columns of the sink of `format("ottla")`."""
        return _COLUMNS

    def streamReader(self, schema: Any) -> FunctionReader:  # noqa: N802 - Spark's name
        """Return the reader of a query."""
        del schema
        return FunctionReader(self.work)


def function_source(work: FunctionWork) -> type[DataSource]:
    """Return the data source of one connector, with a name of its own."""

    def name(cls: type[DataSource]) -> str:
        del cls
        return f"ottla-function-{work.connector}"

    return type("ConnectorDataSource", (FunctionDataSource,), {"work": work, "name": classmethod(name)})


class FunctionReader(DataSourceStreamReader):
    """Plans micro-batches on the driver, and calls the function in tasks."""

    def __init__(self, work: FunctionWork) -> None:
        self._work = work
        self._store: OffsetStore | None = None
        self._parts: list[Any] = []
        self._listed_at = 0.0
        self._planned_at = 0.0
        self._quiet_until = 0.0

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for the tasks: connections stay on the driver."""
        return {**self.__dict__, "_store": None}

    # -- on the driver -----------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset before the first micro-batch."""
        return {"batch": 0, "plan": []}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return no limit: each micro-batch calls the function a few times."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Plan a micro-batch. After one without rows, return `start` until the function's wait is over."""
        del limit
        now = time.monotonic()
        if now < self._quiet_until:
            return start
        plan = self._plan(now)
        wait_s = float(self._declared.wait_s)
        if plan == start["plan"] and self._planned_at and now - self._planned_at < wait_s:
            self._quiet_until = self._planned_at + wait_s
            return start
        self._planned_at = now
        return {"batch": int(start["batch"]) + 1, "plan": plan}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return a task for each part of the plan."""
        del start
        return [Part(given, after, key.encode()) for given, after, key in end["plan"]]

    @property
    def _declared(self) -> Any:
        return getattr(plugins.connector_class(self._work.plain), "declared")  # noqa: B009 - functions alone have it

    def _plan(self, now: float) -> list[list[Any]]:
        work = self._work
        if self._store is None:
            self._store = OffsetStore(work.clients, work.offsets_topic)
        self._store.refresh()
        rows = []
        for given in self._listed(now):
            position = _position(work.connector, given, is_part=self._declared.partitions is not None)
            found = self._store.get(work.connector, position)
            key = self._store.key(work.connector, position)
            rows.append([given, None if found is None else found.get(_AFTER), key.decode()])
        return rows

    def _listed(self, now: float) -> list[Any]:
        """Return the parts of the source, listed again after partitions.refresh.ms."""
        declared, config = self._declared, self._work.config
        if declared.partitions is None:
            return [None]
        refresh_s = int(config.get("partitions.refresh.ms") or 60_000) / 1000
        if not self._listed_at or now - self._listed_at >= refresh_s:
            self._parts = list(declared.partitions(declared.settings.read(config)))
            self._listed_at = now
        return self._parts

    # -- in tasks ----------------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Call the function, and yield its records and its next offset, in that order."""
        if not isinstance(partition, Part):
            return
        import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

        schema = _arrow_schema(pa)
        rows = [_row(each) for each in _called(self._work, partition)]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema)


def _position(connector: str, given: Any, *, is_part: bool) -> Position:
    """Return the source partition of a part, as the worker's own runtime has it."""
    if is_part:
        return given if isinstance(given, dict) else {"partition": given}
    return {"connector": connector, "partition": None}


class _OneCall:
    """Shows where a function's task goes on."""

    _after: list[Any]

    @property
    def following(self) -> Any:
        return self._after[0]


def _called(work: FunctionWork, part: Part) -> Iterator[Serialized]:
    """Call the function for a part until it returns no rows, some times at most."""
    settings, config = work.settings, dict(work.config)
    task_id = TaskId(work.connector, work.task)
    control = TaskControl()
    with ExitStack() as stack:
        chain = Chain(settings, config)
        stack.callback(chain.close)
        conversion = SourceConversion(chain, Tolerance(task_id, ErrorSettings.read(config), control))
        topics = _topics(work, stack)
        task: Any = _task(work.plain)
        stack.callback(task.stop)
        offset = {_AFTER: part.after}
        context = SourceTaskContext(
            work.connector, work.task, lambda _: offset, lambda: True, control.report_facts
        )  # it is stopping: a call without rows does not wait
        if part.given is not None:
            config[_PARTITIONS] = json.dumps([part.given])
        task.start(context, config)
        before = part.after
        for _ in range(int(config.get("spark.calls.per.batch") or 10)):
            records = task.poll()
            for record in records:
                data = conversion.convert(record)
                if isinstance(data, Serialized):
                    topics.ensure(data.topic)
                    yield data
            if not records or task.following == before:
                break
            before = task.following
        if task.following != part.after:
            value = offset_records.value({_AFTER: task.following})
            yield Serialized(work.offsets_topic, None, part.key, value, [], None)


def _task(plain: str) -> FunctionSourceTask:
    found = plugins.connector_class(plain).task_class
    created: FunctionSourceTask = type("OneCall", (_OneCall, found), {})()
    return created


def _topics(work: FunctionWork, stack: ExitStack) -> TopicCreator:
    groups = topic_groups(work.config) if work.settings.creates_topics else ()
    admins: list[Any] = []

    def admin() -> Any:
        if not admins:
            admins.append(work.clients.admin())
            stack.callback(admins[0].close)
        return admins[0]

    return TopicCreator(admin, groups, lambda _: None)


def _row(data: Serialized) -> dict[str, Any]:
    headers = [{"key": name, "value": content} for name, content in data.headers] if data.headers else None
    micros = None if data.timestamp is None else data.timestamp * 1000
    return {**data._asdict(), "headers": headers, "timestamp": micros}


def _arrow_schema(pa: Any) -> Any:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", pa.list_(header)),
            ("timestamp", pa.timestamp("us", tz="UTC")),
        ]
    )
