"""The common parts of the races of streams: a broker, two warm processes, topics, and the check of the output."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
import pyarrow.compute as pc  # type: ignore[import-untyped,unused-ignore]

from benchmarks.brokers import Broker
from benchmarks.streams_contenders import Contender, Program, open_contender, start_alone
from benchmarks.wire import new_topic, passing_topic
from ottla.clients import Admin, Consumer, Producer, TopicPartition
from ottla.clients.admin import OffsetSpec

PARTITIONS = 4
DEADLINE_S = 600.0
WATCH_S = 0.02
_AT_ONCE = 50_000
_FILLER = b"the quick brown fox jumps over the lazy dog while the broker keeps all that it has acknowl"


@dataclass
class Stage:
    """A broker, the two warm processes, and inputs by records and keys."""

    broker: Broker
    directory: Path
    stack: ExitStack
    _contenders: dict[str, Contender] = field(default_factory=dict)
    _topics: dict[tuple[int, int], str] = field(default_factory=dict)
    _admin: Admin | None = None

    @property
    def admin(self) -> Admin:
        """A client for questions."""
        if self._admin is None:
            self._admin = self.stack.enter_context(Admin(self.broker.bootstrap))
        return self._admin

    def contender(self, who: str) -> Contender:
        """The warm process of a side."""
        if who not in self._contenders:
            self._contenders[who] = self.stack.enter_context(open_contender(who, self.broker.bootstrap, self.directory))
        return self._contenders[who]

    @contextmanager
    def alone(self, who: str, program: Program, *, once: bool = False) -> Iterator[Contender]:
        """A process for one program; it is killed afterwards."""
        one = start_alone(who, program, self.broker.bootstrap, self.directory / program.name, once=once)
        try:
            yield one
        finally:
            one.kill()

    @contextmanager
    def program(
        self, kind: str, source: str, guarantee: str, most: int = 0, latency_ms: int | None = 0, **config: str
    ) -> Iterator[Program]:
        """A new program with an output of its own, which is deleted afterwards; `config` is its topic's.

        Its latency is the lowest one, or with None the default.
        """
        with passing_topic(self.broker, PARTITIONS, **config) as target:
            yield Program(f"race-{uuid.uuid4().hex[:8]}", kind, source, target, guarantee, most, latency_ms)

    # -- topics --------------------------------------------------------------------------------------------------------

    def topic(self, **config: str) -> str:
        """A new topic."""
        return new_topic(self.broker, PARTITIONS, **config)

    def filled(self, records: int, keys: int) -> str:
        """A topic with the records of `tables`."""
        if (records, keys) not in self._topics:
            topic = self.topic()
            self.send(topic, tables(records, keys))
            os.sync()  # else the first contender waits for the disk
            self._topics[records, keys] = topic
        return self._topics[records, keys]

    def send(self, topic: str, rows: Iterable[pa.Table]) -> None:
        """Send tables of records."""
        with Producer(bootstrap_servers=self.broker.bootstrap) as producer:
            for table in rows:
                producer.send_batch(topic, table)

    def send_few(self, topic: str, records: int, times: int) -> None:
        """Send some records to partition 0 in one batch, and as many again."""
        with Producer(bootstrap_servers=self.broker.bootstrap) as producer:
            for _ in range(times):
                for number in range(records):
                    producer.send(topic, b"1%09d" % number + _FILLER, key=b"few", partition=0)
                producer.flush()

    def partitions(self, topic: str) -> list[TopicPartition]:
        """All of a topic."""
        return [TopicPartition(topic, number) for number in range(PARTITIONS)]

    # -- progress ------------------------------------------------------------------------------------------------------

    def wait_until_committed(self, program: Program, contender: Contender) -> None:
        """Until the program's group has the ends of the input."""
        places = self.partitions(program.source)
        ends = {
            at: found.offset for at, found in self.admin.list_offsets(dict.fromkeys(places, OffsetSpec.LATEST)).items()
        }
        deadline = time.monotonic() + DEADLINE_S
        while True:
            committed = self.admin.list_group_offsets(program.name, places)
            if all(end == 0 or (at in committed and committed[at].offset >= end) for at, end in ends.items()):
                return
            if time.monotonic() > deadline or not contender.is_running:
                raise TimeoutError(f"{program} stands at {committed} of {ends}:\n{contender.tail()}")
            time.sleep(WATCH_S)

    def check(self, program: Program, records: int, keys: int) -> None:
        """Read the output with read_committed: all kept records once, or the right count of each key."""
        rows = self._read(program.target)
        if program.kind == "stateless":
            distinct = pc.count_distinct(rows["value"]).as_py()
            assert distinct == rows.num_rows == records - -(-records // 10), (
                f"{rows.num_rows} rows, {distinct} distinct"
            )
            return
        counts = pa.table({"key": rows["key"], "count": rows["value"].cast(pa.string()).cast(pa.int64())})
        last = counts.group_by("key").aggregate([("count", "max")])
        total = pc.sum(last["count_max"]).as_py()
        assert (total, last.num_rows) == (records, min(keys, records)), f"{last.num_rows} keys count {total}"

    def _read(self, topic: str) -> pa.Table:
        places = self.partitions(topic)
        settings = {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
        batches = []
        with Consumer(settings, bootstrap_servers=self.broker.bootstrap) as reader:
            reader.assign(places)
            ends = reader.end_offsets(places)
            deadline = time.monotonic() + DEADLINE_S
            while any(reader.position(at) < end for at, end in ends.items()):
                assert time.monotonic() < deadline, f"the end of {topic} cannot be read"
                batches.append(reader.poll_arrow(0.2).select(["key", "value"]))
        return pa.Table.from_batches(batches)


def tables(records: int, keys: int) -> Iterator[pa.Table]:
    """Records of 100 B, of which the filter drops a tenth; each key comes equally often."""
    for start in range(0, records, _AT_ONCE):
        numbers = range(start, min(start + _AT_ONCE, records))
        names = pa.array([b"key-%07d" % (i * 7_919 % keys) for i in numbers])
        values = pa.array([b"%d%09d" % (i % 10, i) + _FILLER for i in numbers])
        yield pa.table({"key": names, "value": values})
