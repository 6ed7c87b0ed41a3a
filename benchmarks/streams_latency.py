"""How long a record takes through a program until a reader with read_committed has its result."""

from __future__ import annotations

import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.process_times import spent
from benchmarks.streams_contenders import EXACTLY_ONCE, Program, start_alone
from benchmarks.streams_stage import PARTITIONS, Stage
from benchmarks.wire import Figures
from ottla.clients import Consumer, Producer, Record, TopicPartition

RECORDS_S = 100
KEYS = 1_000
WARM_S = 5.0
IDLE_S = 60.0
DEADLINE_S = 180.0
CPU_MINUTE = "CPU s per minute"
_FILLER = b"y" * 80


class Sender(threading.Thread):
    """Sends records at a steady rate; the value begins with its number, of which `sent` has the times."""

    def __init__(self, bootstrap: str, topic: str, keys: int) -> None:
        super().__init__(daemon=True)
        self.sent: list[float] = []
        self._servers, self._topic, self._keys = bootstrap, topic, keys
        self._ending = threading.Event()

    def run(self) -> None:
        """Send until `finish`."""
        begin = time.perf_counter()
        with Producer(bootstrap_servers=self._servers, linger_ms=0) as producer:
            while not self._ending.is_set():
                number = len(self.sent)
                wait = begin + number / RECORDS_S - time.perf_counter()
                if wait > 0:
                    time.sleep(wait)
                key = b"key-%07d" % (number % self._keys)
                self.sent.append(time.perf_counter())
                producer.send(self._topic, b"1%09d " % number + _FILLER, key=key)

    def finish(self) -> None:
        """End the thread."""
        self._ending.set()
        self.join(30)


class Seen:
    """When the reader had the result of each record that was sent."""

    def __init__(self, program: Program) -> None:
        self.at: dict[int, float] = {}
        self._kind = program.kind
        self._counts: dict[bytes, int] = defaultdict(int)

    def take(self, record: Record) -> None:
        """Note a record of the output."""
        now, key, value = time.perf_counter(), record.key, record.value
        assert key is not None
        assert value is not None
        if self._kind == "stateless":
            self.at.setdefault(int(value[1:10]), now)
            return
        first, last = self._counts[key], int(value)
        for count in range(first, last):  # one update may stand for several records
            self.at[int(key[4:]) + count * KEYS] = now
        self._counts[key] = max(first, last)


@contextmanager
def _reader(stage: Stage, topic: str) -> Iterator[Consumer]:
    settings = {"isolation.level": "read_committed", "auto.offset.reset": "earliest", "fetch.max.wait.ms": 100}
    with Consumer(settings, bootstrap_servers=stage.broker.bootstrap) as reader:
        reader.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        yield reader


def latency(stage: Stage, who: str, kind: str, seconds: float, latency_ms: int | None = 0) -> Figures:
    """The time of each record through a warm process, at a steady rate of records. None is the default latency."""
    contender, source = stage.contender(who), stage.topic()
    with (
        stage.program(kind, source, EXACTLY_ONCE, latency_ms=latency_ms) as program,
        _reader(stage, program.target) as reader,
    ):
        sender, seen = Sender(stage.broker.bootstrap, source, KEYS), Seen(program)
        contender.start(program)
        sender.start()
        before, broker, end = contender.cpu_parts(), stage.broker.cpu_seconds(), time.perf_counter() + WARM_S + seconds
        while time.perf_counter() < end:
            for record in reader.poll(0.05):
                seen.take(record)
        parts, broker = spent(before, contender.cpu_parts()), stage.broker.cpu_seconds() - broker
        sender.finish()
        deadline = time.perf_counter() + DEADLINE_S
        while len(seen.at) < len(sender.sent):
            if time.perf_counter() > deadline:
                raise TimeoutError(f"{len(seen.at)} of {len(sender.sent)} results:\n{contender.tail()}")
            for record in reader.poll(0.05):
                seen.take(record)
        contender.stop()
    skipped = int(WARM_S * RECORDS_S)
    times = sorted((seen.at[number] - at) * 1e3 for number, at in enumerate(sender.sent) if number >= skipped)
    cuts = statistics.quantiles(times, n=100)
    return {"p50 ms": cuts[49], "p99 ms": cuts[98], **_per_minute(parts, broker, WARM_S + seconds)}


def idle(stage: Stage, who: str, _scale: float) -> Figures:
    """The cost of a process for one program while there are no records; with Ottla, `ottla stream run`."""
    source = stage.topic()
    with (
        stage.program("stateless", source, EXACTLY_ONCE, latency_ms=None) as program,
        _reader(stage, program.target) as reader,
        stage.alone(who, program) as one,
    ):
        sender, seen = Sender(stage.broker.bootstrap, source, KEYS), Seen(program)
        sender.start()
        _read_until(reader, seen, 10 * RECORDS_S, time.perf_counter() + DEADLINE_S)
        sender.finish()
        time.sleep(WARM_S)
        before, broker = one.cpu_parts(), stage.broker.cpu_seconds()
        time.sleep(IDLE_S)
        return _per_minute(spent(before, one.cpu_parts()), stage.broker.cpu_seconds() - broker, IDLE_S)


def _per_minute(parts: dict[str, float], broker_s: float, seconds: float) -> Figures:
    return {
        CPU_MINUTE: sum(parts.values()) * 60 / seconds,
        f"broker {CPU_MINUTE}": broker_s * 60 / seconds,
        **{f"{part}: {CPU_MINUTE}": used * 60 / seconds for part, used in parts.items()},
    }


def restart(stage: Stage, who: str, _scale: float) -> Figures:
    """Kill a process and start it again at once: the time until the output of a record that was sent after the kill."""
    source = stage.topic()
    with stage.program("stateless", source, EXACTLY_ONCE) as program, _reader(stage, program.target) as reader:
        sender, seen = Sender(stage.broker.bootstrap, source, KEYS), Seen(program)
        sender.start()
        home = stage.directory / program.name
        for _ in range(2):
            one = start_alone(who, program, stage.broker.bootstrap, home)
            begin, first = time.perf_counter(), len(sender.sent)
            try:
                _read_until(reader, seen, first, begin + DEADLINE_S)
                seconds = time.perf_counter() - begin
                _read_until(reader, seen, len(sender.sent) + 3 * RECORDS_S, time.perf_counter() + DEADLINE_S)
            finally:
                one.kill()
        sender.finish()
    return {"seconds": seconds}


def _read_until(reader: Consumer, seen: Seen, number: int, deadline: float) -> None:
    """Until the result of this record or a later one is there."""
    while not any(each >= number for each in seen.at):
        if time.perf_counter() > deadline:
            raise TimeoutError(f"no result of a record from {number} on")
        for record in reader.poll(0.05):
            seen.take(record)
