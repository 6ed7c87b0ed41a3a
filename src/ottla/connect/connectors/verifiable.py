"""Kafka's connectors for system tests: numbered records, and a line of JSON on stdout for each of them.

A test compares the lines of sources and sinks, also across killed workers. Source: the package
org.apache.kafka.connect.tools of Kafka 4.3.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from base64 import b64encode
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from ottla.connect import data
from ottla.connect.api import (
    Config,
    Connector,
    ExactlyOnce,
    Kind,
    SinkTask,
    SinkTaskContext,
    SourceOffset,
    SourceTask,
    SourceTaskContext,
    TopicPartition,
)
from ottla.connect.config.definition import ConfigDef, Importance, Setting, SettingType, non_empty
from ottla.connect.records import SinkRecord, SourceRecord

_ID: Final = "id"
"""The setting of a task with its number."""
_MOST_RECORDS: Final = 100
_WAIT_S: Final = 0.25
_VALUE: Final = data.struct(
    {"name": data.STRING, "task": data.INT32, "topic": data.STRING, "time_ms": data.INT64, "seqno": data.INT64}
)
_stdout: Final = threading.Lock()


def _print(rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows to stdout. Tasks are threads: no line may be within another one."""
    lines = [f"{json.dumps(row, separators=(',', ':'), default=_as_json)}\n" for row in rows]
    with _stdout:
        sys.stdout.write("".join(lines))
        sys.stdout.flush()


def _as_json(value: object) -> str:
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class VerifiableSourceTask(SourceTask):
    """Sends a number after the other, at most `throughput` of them in a second."""

    java_class: ClassVar[str] = "org.apache.kafka.connect.tools.VerifiableSourceTask"

    def start(self, context: SourceTaskContext, config: Config) -> None:
        """Go on after the last number whose offset is committed."""
        values = VerifiableSourceConnector.config_def.parse(config)
        self._name, self._id = context.connector, int(config.get(_ID, "0"))
        self._topic: str = values["topic"]
        self._throughput: int = values["throughput"]
        self._is_complete: bool = values["complete.record.data"]
        self._partition = {"id": self._id}
        offset = context.offset(self._partition)
        self._first = self._next = 0 if offset is None else int(offset["seqno"]) + 1
        self._began_at = time.monotonic()
        self._unacknowledged: deque[int] = deque()

    def poll(self) -> Sequence[SourceRecord]:
        """Return the numbers that are due, or none after a pause."""
        count = self._due()
        if not count:
            time.sleep(_WAIT_S if not self._throughput else min(_WAIT_S, 1 / self._throughput))
            return ()
        rows = [self._row(self._next + number) for number in range(count)]
        self._next += count
        self._unacknowledged += [row["seqno"] for row in rows]
        _print(rows)
        return [self._record(row) for row in rows]

    def _due(self) -> int:
        if self._throughput < 0:
            return _MOST_RECORDS
        elapsed_s = time.monotonic() - self._began_at
        return min(_MOST_RECORDS, int(elapsed_s * self._throughput) - (self._next - self._first))

    def _row(self, seqno: int) -> dict[str, Any]:
        return {"name": self._name, "task": self._id, "topic": self._topic, "time_ms": _now_ms(), "seqno": seqno}

    def _record(self, row: dict[str, Any]) -> SourceRecord:
        schema, value = (_VALUE, row) if self._is_complete else (data.INT64, row["seqno"])
        record = SourceRecord(self._topic, None, data.INT32, self._id, schema, value)
        record.source_partition, record.source_offset = self._partition, {"seqno": row["seqno"]}
        return record

    def commit(self, offsets: Sequence[SourceOffset]) -> None:
        """Print the numbers that are durable in Kafka with their offsets."""
        end = max((int(each.offset["seqno"]) for each in offsets if each.offset is not None), default=-1)
        rows = []
        while self._unacknowledged and self._unacknowledged[0] <= end:
            rows.append({**self._row(self._unacknowledged.popleft()), "committed": True})
        _print(rows)


class _Numbered(Connector):
    """Tasks that know their number."""

    version: ClassVar[str] = "4.3.0"

    def task_configs(self, most_tasks: int) -> Sequence[Config]:
        """Return as many tasks as requested."""
        return [{**self.config, _ID: str(number)} for number in range(most_tasks)]


class VerifiableSourceConnector(_Numbered):
    """Numbered records for system tests."""

    kind: ClassVar[Kind] = Kind.SOURCE
    task_class: ClassVar[type[SourceTask | SinkTask]] = VerifiableSourceTask
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            Setting("topic", SettingType.STRING, "The topic.", importance=Importance.HIGH, validator=non_empty),
            Setting("throughput", SettingType.LONG, "Records per second of each task; -1: no limit, 0: none.", -1),
            Setting(
                "complete.record.data",
                SettingType.BOOLEAN,
                "Write all fields of the line of JSON as the value, not the number alone.",
                False,
            ),
        ]
    )

    @classmethod
    def exactly_once(cls, config: Config) -> ExactlyOnce:
        """The next number is known from the offset."""
        del config
        return ExactlyOnce.SUPPORTED


class VerifiableSinkTask(SinkTask):
    """Prints each record when it arrives, and again when its offset is about to be committed."""

    java_class: ClassVar[str] = "org.apache.kafka.connect.tools.VerifiableSinkTask"

    def start(self, context: SinkTaskContext, config: Config) -> None:
        """Read the number of the task."""
        self._name, self._id = context.connector, int(config.get(_ID, "0"))
        self._unflushed: list[dict[str, Any]] = []

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Print the records. The key is the number of the source's task."""
        now_ms = _now_ms()
        rows = [
            {
                "name": self._name,
                "task": each.key,
                "sinkTask": self._id,
                "topic": each.topic,
                "time_ms": now_ms,
                "seqno": each.value,
                "offset": each.offset,
            }
            for each in records
        ]
        _print(rows)
        self._unflushed += rows

    def flush(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Print all records since the last flush."""
        now_ms, rows = _now_ms(), self._unflushed
        self._unflushed = []
        _print([{**each, "time_ms": now_ms, "flushed": True} for each in rows])
        return offsets


class VerifiableSinkConnector(_Numbered):
    """Lines of JSON on stdout for system tests."""

    kind: ClassVar[Kind] = Kind.SINK
    task_class: ClassVar[type[SourceTask | SinkTask]] = VerifiableSinkTask
    config_def: ClassVar[ConfigDef] = ConfigDef([])
