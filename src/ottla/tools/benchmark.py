"""Measurements of a cluster for `ottla bench`: what is sent and read, and the figures about it."""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla import clients
from ottla.common.failure import Failure
from ottla.tools.progress import Progress

MOST_SAMPLES: Final = 200_000
"""The most latencies that one run measures."""
_PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9)
_DISTINCT_VALUES: Final = 512
_VALUES_BYTES: Final = 64 << 20
"""The most bytes of all values: of large values there are fewer different ones."""
_QUIET_S: Final = 5.0
"""A topic without a record for so long has no more of them."""
_READ_S: Final = 30.0
"""How long an acknowledged record may take to be read."""


class Measurement:
    """The times, counts and latencies of one measurement. An interrupt ends it early; the figures up to then count."""

    def __init__(self, total: int, *, shown: bool) -> None:
        """`total` is the expected number of records; `shown`: show the progress."""
        self.bar = Progress("records", total=total, shown=shown)
        self.latencies = array("d")
        self.records = self.size = self.failed = 0
        self.first_record_ms: float | None = None
        self.took_s = self.cpu_s = 0.0
        self.interrupted = False
        self.start_s, self._start_cpu_s = time.perf_counter(), time.process_time()

    def complete(self, work: Callable[[], object]) -> bool:
        """Run a part of the measurement; returns False if an interrupt ended it."""
        try:
            work()
        except KeyboardInterrupt:
            self.interrupted = True
            return False
        finally:
            self.bar.clear()
        return True

    def stop(self) -> None:
        """Set the elapsed time and the CPU time."""
        self.took_s, self.cpu_s = time.perf_counter() - self.start_s, time.process_time() - self._start_cpu_s

    def figures(self) -> dict[str, Any]:
        """Return the figures by name: rates per second, times in seconds, latencies in milliseconds."""
        took_s = self.took_s
        row: dict[str, Any] = {
            "records": self.records,
            "bytes": self.size,
            "seconds": round(took_s, 4),
            "records_per_second": round(self.records / took_s) if took_s else 0,
            "mb_per_second": round(self.size / took_s / 1e6, 2) if took_s else 0.0,
            "cpu_seconds": round(self.cpu_s, 4),
            **(_percentiles(self.latencies) if self.latencies else {}),
        }
        more = {"failed": self.failed, "first_record_ms": self.first_record_ms, "interrupted": self.interrupted}
        return row | {name: value for name, value in more.items() if value}


class Load(NamedTuple):
    """The records that a measurement sends."""

    topic: str
    records: int
    values: Sequence[bytes]
    keys: Sequence[bytes] = ()
    """The keys of the records, one after the other; without any, the records have no key."""
    rate: float | None = None
    """Records per second; None for as many as possible."""


def send_all(run: Measurement, producer: Any, load: Load, every: int) -> None:
    """Send the records. Measures each `every`-th one from `send` to the acknowledgement."""
    send, topic, rate, clock = producer.send, load.topic, load.rate, time.perf_counter
    values, keys = load.values, load.keys
    step = 1024 if rate is None else 1

    def on_delivery(sent_s: float) -> Callable[[Any], None]:
        def done(delivery: Any) -> None:
            if delivery.exception() is None:
                run.latencies.append(clock() - sent_s)
            else:
                run.failed += every  # the records of a batch fail together

        return done

    count = 0
    start_s = clock()
    try:
        for number in range(load.records):
            value = values[number % len(values)]
            key = keys[number % len(keys)] if keys else None
            if number % every == 0:
                send(topic, value, key, callback=on_delivery(clock()))
            else:
                send(topic, value, key)
            count = number + 1
            if number % step == 0:
                run.bar.advance(step, step * len(value))
            if rate is not None and (ahead_s := number / rate - (clock() - start_s)) > 0.001:
                time.sleep(ahead_s)
    finally:
        run.records = count


def read_all(run: Measurement, poll: Callable[[], tuple[int, int]], wanted: int, at_end: Callable[[], bool]) -> None:
    """Count the records and bytes that polls return."""
    quiet_since_s = run.start_s
    while run.records < wanted:
        count, size = poll()
        now_s = time.perf_counter()
        if count:
            if run.first_record_ms is None:
                run.first_record_ms = round((now_s - run.start_s) * 1e3, 3)
            run.records, run.size, quiet_since_s = run.records + count, run.size + size, now_s
            run.bar.advance(count, size)
        elif now_s - quiet_since_s > _QUIET_S or at_end():
            return  # the remaining offsets have no records: markers, or removed by compaction


def record_poll(consumer: clients.Consumer) -> Callable[[], tuple[int, int]]:
    """Return a function that polls records, and returns their number and bytes."""

    def poll() -> tuple[int, int]:
        rows = consumer.poll(1.0, max_records=10_000)
        return len(rows), sum([len(row.value or b"") + len(row.key or b"") for row in rows])

    return poll


def arrow_poll(consumer: clients.Consumer) -> Callable[[], tuple[int, int]]:
    """Return a function that polls an Arrow batch, and returns its number of records and bytes."""
    try:
        import pyarrow.compute as pc  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise Failure("--arrow needs pyarrow", "`pip install pyarrow` installs it.", exit_code=2) from error

    def poll() -> tuple[int, int]:
        batch = consumer.poll_arrow(1.0)
        sizes = (pc.sum(pc.binary_length(batch.column(name))).as_py() or 0 for name in ("key", "value"))
        return batch.num_rows, sum(sizes)

    return poll


def await_value(consumer: clients.Consumer, value: bytes) -> None:
    """Poll until a record has this value. Raises Failure after 30 s."""
    deadline_s = time.monotonic() + _READ_S
    while time.monotonic() < deadline_s:
        if any(record.value == value for record in consumer.poll(1.0)):
            return
    raise Failure(
        f"an acknowledged record was not read within {_READ_S:g} s", "Does another client write to the topic?"
    )


def random_values(size: int) -> list[bytes]:
    """Return values that hardly compress: random letters, the same ones in each run."""
    generator = random.Random(1)
    letters = bytes(range(97, 123)) + bytes(range(65, 91)) + b"0123456789-_"
    count = max(1, min(_DISTINCT_VALUES, _VALUES_BYTES // max(size, 1)))
    return [bytes(generator.choices(letters, k=size)) for _ in range(count)]


def _percentiles(latencies: Sequence[float]) -> Mapping[str, float]:
    ordered = sorted(latencies)
    row = {
        f"p{percent:g}_ms".replace(".", "_"): ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
        for percent in _PERCENTILES
    }
    row["max_ms"] = ordered[-1]
    return {name: round(value * 1000, 3) for name, value in row.items()}
