"""Connectors for tests, as functions."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ottla.connect import (
    Batch,
    Connector,
    DataError,
    RetriableError,
    SinkRecord,
    SinkTask,
    SourceRecord,
    SourceTask,
    sink,
    source,
)
from ottla.connect.api import Kind, SinkTaskContext, SourceTaskContext, TransactionBoundaries
from ottla.connect.config.definition import ConfigDef
from ottla.connect.converters.simple import StringConverter

LAST = 60
POLLS_OF = 7
PARTITION = {"numbers": "all"}


@source("numbers", config={"last": LAST}, key="number", wait_s=0.05)
def numbers(config: Any, after: int | None, limit: int) -> tuple[list[dict[str, int]], int]:
    """Return the next numbers, a few for each call."""
    start = after or 0
    end = min(start + POLLS_OF, config.last)
    return [{"number": each} for each in range(start, end)], end


@source("flaky", config={"file": str, "failures": 2}, topic="t", wait_s=0.05)
def flaky(config: Any, after: int | None, limit: int) -> tuple[list[dict[str, int]], int]:
    """Fail some times with a network error."""
    path = Path(config.file)
    tried = int(path.read_text()) if path.exists() else 0
    if tried < config.failures:
        path.write_text(str(tried + 1))
        raise ConnectionRefusedError("the other system is not up")
    return ([{"number": 1}], 1) if after is None else ([], after)


@source("secretive", config={"password": str, "user": str}, topic="t")
def secretive(config: Any, after: int | None, limit: int) -> tuple[list[dict[str, int]], int]:
    """Raise an error with a secret."""
    raise ValueError(f"login of {config.user} with {config.password} failed")


@sink("append", config={"file": str, "fail_at": "", "reject": False})
def append(config: Any, rows: list[SinkRecord], batch: Batch) -> None:
    """Append the values as lines, with their offsets."""
    with Path(config.file).open("a") as file:
        for each in rows:
            file.write(json.dumps([each.original_partition, each.original_offset, each.value]) + "\n")
            file.flush()


def _stored(config: Any) -> list[list[Any]]:
    path = Path(config.file)
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(each) for each in lines]


def _resume(config: Any, topic: str, partition: int) -> int | None:
    offsets = [row[1] + 1 for row in _stored(config) if row[0] == partition]
    return max(offsets, default=None)


@sink("once", config={"file": str}, resume=_resume)
def once(config: Any, rows: list[SinkRecord], batch: Batch) -> None:
    """Append values and offsets with one write, which is the transaction of this destination."""
    text = "".join(json.dumps([each.original_partition, each.original_offset, each.value]) + "\n" for each in rows)
    with Path(config.file).open("a") as file:
        file.write(text)


@sink("unhurried", config={"file": str})
def unhurried(config: Any, rows: list[SinkRecord], batch: Batch) -> None:
    """Take a while for each batch, and append its values at the end of it."""
    time.sleep(0.3)
    with Path(config.file).open("a") as file:
        file.write("".join(f"{each.value}\n" for each in rows))


@sink("busy", config={"file": str, "failures": 3})
def busy(config: Any, rows: list[SinkRecord], batch: Batch) -> None:
    """Fail some times, and write the batches of all calls."""
    path = Path(config.file)
    calls = path.read_text().splitlines() if path.exists() else []
    path.write_text("\n".join([*calls, str(batch)]) + "\n")
    if len(calls) < config.failures:
        raise RetriableError("the destination is busy")


@sink("picky")
def picky(config: Any, rows: list[SinkRecord], batch: Batch) -> None:
    """Accept no record with the value bad."""
    for each in rows:
        if each.value == "bad":
            raise DataError(f"the value {each.value} is not accepted")


@source("slow", topic="t")
def slow(config: Any, after: int | None, limit: int) -> tuple[list[dict[str, int]], int]:
    """Take some time."""
    time.sleep(0.05)
    return [], 0


@dataclass
class Row:
    """A row with a field of the wrong type."""

    number: int


@source("wrong_field", topic="t", schema=Row)
def wrong_field(config: Any, after: int | None, limit: int) -> tuple[list[dict[str, str]], int]:
    """Return a row that does not have the declared type."""
    return [{"number": "one"}], 1


class RejectingTask(SinkTask):
    """Rejects the value bad."""

    def start(self, context: SinkTaskContext, config: Any) -> None:
        """Keep the context."""
        self.context = context

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Accept the other records."""
        for each in records:
            if each.value == "bad":
                self.context.reject(each, DataError("the value bad is not accepted"))


class RejectingConnector(Connector):
    """A sink that uses the dead letter topic itself (KIP-610)."""

    kind = Kind.SINK
    version = "1"
    config_def = ConfigDef()
    task_class = RejectingTask


class UnstartableTask(RejectingTask):
    """Does not start while the file `lock` exists; counts its tries in the file `tries`."""

    def start(self, context: SinkTaskContext, config: Any) -> None:
        """Fail with a network error, or start."""
        super().start(context, config)
        directory = Path(config["directory"])
        with (directory / "tries").open("a") as file:
            file.write("x")
        if (directory / "lock").exists():
            raise RetriableError("the destination does not answer")


class UnstartableConnector(RejectingConnector):
    """A sink whose destination is away."""

    task_class = UnstartableTask


class UnreachableConverter(StringConverter):
    """A converter whose registry is not reached the first times."""

    tries = 0

    def to_connect(self, topic: str, data: bytes | None, headers: Any = None) -> Any:
        """Fail three times."""
        if data == b"slow" and UnreachableConverter.tries < 3:
            UnreachableConverter.tries += 1
            raise RetriableError("the registry is not reached")
        return super().to_connect(topic, data, headers)


class TooManyConnector(Connector):
    """A source with more tasks than it may have."""

    kind = Kind.SOURCE
    version = "1"
    config_def = ConfigDef()
    task_class = numbers.connector_class.task_class

    def task_configs(self, most_tasks: int) -> list[Any]:
        """Return one too many."""
        return [self.config] * (most_tasks + 1)


class HangingConnector(TooManyConnector):
    """A source whose start never returns."""

    def start(self, context: Any, config: Any) -> None:
        """Hang."""
        time.sleep(3600)


class TensTask(SourceTask):
    """Returns numbers, 7 in a poll; each transaction has ten. Settings: see `TensConnector`."""

    def start(self, context: SourceTaskContext, config: Any) -> None:
        """Go on after the last number."""
        self._transactions, self._config = context.transaction_context, config
        self._next = int((context.offset(PARTITION) or {"after": 0})["after"])

    def poll(self) -> list[SourceRecord]:
        """Return numbers, and say after which of them a transaction ends."""
        time.sleep(0.02)
        stop = int(self._config.get("stop.at", LAST))
        records = []
        for number in range(self._next, min(self._next + POLLS_OF, LAST, stop)):
            value = {"number": number}
            record = SourceRecord(self._config["topic"], 0, None, None, None, value, None, [], PARTITION,
                                  {"after": number + 1})  # fmt: skip
            records.append(record)
            if self._transactions is None or number % 10 != 9:
                continue
            if str(number) == self._config.get("abort.at"):
                self._transactions.abort_transaction(record)
            else:
                self._transactions.commit_transaction(record)
        self._next += len(records)
        return records


class TensConnector(Connector):
    """A source that defines its transactions. `stop.at`: the first number that is not returned; `abort.at`: a last."""

    kind = Kind.SOURCE
    version = "1"
    config_def = ConfigDef()
    task_class = TensTask

    @classmethod
    def can_define_transaction_boundaries(cls, config: Any) -> TransactionBoundaries:
        """Each transaction has ten numbers."""
        return TransactionBoundaries.SUPPORTED
