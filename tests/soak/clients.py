"""The load of a soak, one process: `python -m tests.soak.clients BOOTSTRAP`, until its standard input is closed.

An idempotent producer, a transactional one that aborts a third of its transactions, a consumer group whose members
leave and join, a share group, and an auditor that reads all committed records. Every `REPORT_S` it prints a line of
JSON with its counts and the latency of produce requests. After the end of standard input it waits until everything
acknowledged was read, and prints `final` with the problems.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from ottla.clients import Consumer, Producer, ShareConsumer
from ottla.clients.errors import ClientError
from tests.soak.ledger import Ledger

TOPIC, PARTITIONS = "soak", 4
JOBS, WORKERS = "jobs", "soak-workers"
READERS = "soak-readers"
VALUE_BYTES = 500
BATCH = 5
REPORT_S = 10.0
TIMEOUT_S = 120.0
DRAIN_S = 180.0
MEMBER_LIFE_S = 120.0
PAUSE_S = 0.1


class Part(threading.Thread, ABC):
    """A part of the load, which goes on with new clients after an error of the old ones."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True, name=type(self).__name__)
        self.bootstrap = bootstrap
        self.failures = 0
        self.bug: str | None = None
        self._stopping = threading.Event()
        self._due_s = 0.0

    def stop(self) -> None:
        """Let it end; `join` waits for that."""
        self._stopping.set()

    def stopped(self, pause_s: float = 0.0) -> bool:
        """Wait, and return whether to stop."""
        return self._stopping.wait(pause_s)

    def due(self, every_s: float) -> bool:
        """Wait until `every_s` after the previous time; return False to stop. Missed times are skipped.

        The rate does not depend on the latency: a machine that becomes faster must not fill disk and caches.
        """
        now_s = time.monotonic()
        self._due_s = max(self._due_s + every_s, now_s)
        return not self.stopped(self._due_s - now_s)

    def run(self) -> None:
        while not self.stopped():
            try:
                self.work()
            except ClientError:
                self.failures += 1
                self.stopped(0.5)
            except Exception as error:  # noqa: BLE001 - reported as a problem of the run
                self.bug = f"{self.name}: {error!r}"
                return

    @abstractmethod
    def work(self) -> None:
        """Work with new clients until `stopped()`."""


class Writing(Part):
    """Numbers of one writer, for its ledger."""

    def __init__(self, bootstrap: str, ledger: Ledger) -> None:
        super().__init__(bootstrap)
        self.ledger = ledger
        self._next = 0

    @contextmanager
    def numbers(self) -> Iterator[list[int]]:
        """Return the next numbers of the writer, which are in doubt if the block raises."""
        numbers = list(range(self._next, self._next + BATCH))
        self._next += BATCH
        try:
            yield numbers
        except ClientError:
            self.ledger.doubt(numbers)
            raise

    def value(self, number: int) -> bytes:
        """Return the value of a record."""
        return f"{self.ledger.name}:{number}:".encode().ljust(VALUE_BYTES, b".")


class Idempotent(Writing):
    """Sends five records ten times a second with acks=all, and measures how long each takes."""

    def __init__(self, bootstrap: str, ledger: Ledger) -> None:
        super().__init__(bootstrap, ledger)
        self._latencies_ms: list[float] = []

    def work(self) -> None:
        """Send until stopped."""
        with Producer(bootstrap_servers=self.bootstrap, acks="all", enable_idempotence=True) as producer:
            while self.due(PAUSE_S):
                with self.numbers() as numbers:
                    begun_s = time.perf_counter()
                    sent = [producer.send(TOPIC, self.value(n), partition=n % PARTITIONS) for n in numbers]
                    for record in sent:
                        record.result(TIMEOUT_S)
                        self._latencies_ms.append(1000 * (time.perf_counter() - begun_s))
                self.ledger.acknowledge(numbers)

    def latencies_ms(self) -> list[float]:
        """Return the sorted latencies since the previous call."""
        taken, self._latencies_ms = self._latencies_ms, []
        return sorted(taken)


class Transactional(Writing):
    """Two transactions a second, of which a third is aborted."""

    def work(self) -> None:
        """Write transactions until stopped."""
        chance = random.Random(1)
        with Producer({"transactional.id": self.ledger.name}, bootstrap_servers=self.bootstrap) as producer:
            producer.init_transactions(TIMEOUT_S)
            while self.due(0.5):
                with self.numbers() as numbers:
                    producer.begin_transaction()
                    for number in numbers:
                        producer.send(TOPIC, self.value(number), partition=number % PARTITIONS)
                    if chance.random() < 1 / 3:
                        producer.abort_transaction(TIMEOUT_S)
                        self.ledger.abort(numbers)
                    else:
                        producer.commit_transaction(TIMEOUT_S)
                        self.ledger.acknowledge(numbers)


class JobSender(Writing):
    """Records of the share group."""

    def work(self) -> None:
        """Send until stopped."""
        with Producer(bootstrap_servers=self.bootstrap) as producer:
            while self.due(2 * PAUSE_S):
                with self.numbers() as numbers:
                    for record in [producer.send(JOBS, self.value(number)) for number in numbers]:
                        record.result(TIMEOUT_S)
                self.ledger.acknowledge(numbers)


class JobWorker(Part):
    """A member of the share group, which accepts everything."""

    def __init__(self, bootstrap: str, ledger: Ledger) -> None:
        super().__init__(bootstrap)
        self._ledger = ledger

    def work(self) -> None:
        """Accept records until stopped."""
        with ShareConsumer(
            bootstrap_servers=self.bootstrap, group_id=WORKERS, share_acknowledgement_mode="explicit"
        ) as consumer:
            consumer.subscribe(JOBS)
            while not self.stopped():
                records = consumer.poll(0.5)
                for record in records:
                    consumer.acknowledge(record)
                consumer.commit_sync(TIMEOUT_S)
                for record in records:
                    self._ledger.read(int((record.value or b"").split(b":")[1]))


class Member(Part):
    """A member of the consumer group, which leaves after `MEMBER_LIFE_S` and joins again."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.count = 0

    def work(self) -> None:
        """Read and commit for one life."""
        end_s = time.monotonic() + MEMBER_LIFE_S * random.uniform(0.5, 1.5)
        with Consumer(
            bootstrap_servers=self.bootstrap, group_id=READERS, auto_offset_reset="earliest",
            auto_commit_interval_ms=1000,
        ) as consumer:  # fmt: skip
            consumer.subscribe(TOPIC)
            while not self.stopped() and time.monotonic() < end_s:
                self.count += len(consumer.poll(0.5) or ())


class Auditor(Part):
    """Reads all committed records, and notes them in the ledgers of their writers."""

    def __init__(self, bootstrap: str, ledgers: list[Ledger]) -> None:
        super().__init__(bootstrap)
        self._ledgers = {ledger.name.encode(): ledger for ledger in ledgers}
        self._positions = dict.fromkeys(((TOPIC, partition) for partition in range(PARTITIONS)), 0)

    def work(self) -> None:
        """Read until stopped, from where the previous consumer failed."""
        with Consumer(
            bootstrap_servers=self.bootstrap, group_id=None, auto_offset_reset="none", isolation_level="read_committed"
        ) as consumer:
            consumer.assign(list(self._positions))
            for partition, position in self._positions.items():
                consumer.seek(partition, position)
            while not self.stopped():
                for record in consumer.poll(0.5) or ():
                    name, number, _ = (record.value or b"").split(b":", 2)
                    self._ledgers[name].read(int(number))
                    self._positions[TOPIC, record.partition] = record.offset + 1


class Load:
    """All parts, and what they report."""

    def __init__(self, bootstrap: str) -> None:
        ledgers = [Ledger("idempotent", PARTITIONS), Ledger("transactional", PARTITIONS)]
        jobs = Ledger("jobs", 1, ordered=False)
        self.ledgers = [*ledgers, jobs]
        self.idempotent = Idempotent(bootstrap, ledgers[0])
        self.members = [Member(bootstrap) for _ in range(2)]
        self.writers: list[Part] = [self.idempotent, Transactional(bootstrap, ledgers[1]), JobSender(bootstrap, jobs)]
        workers = [JobWorker(bootstrap, jobs) for _ in range(2)]
        self.readers: list[Part] = [*self.members, *workers, Auditor(bootstrap, ledgers)]

    @property
    def parts(self) -> list[Part]:
        """Writers, then readers."""
        return [*self.writers, *self.readers]

    def report(self) -> dict[str, object]:
        """Return the counts so far, and the latency since the previous report."""
        latencies = self.idempotent.latencies_ms()
        figures: dict[str, object] = {f"{ledger.name} acknowledged": ledger.acknowledged for ledger in self.ledgers}
        figures["read"] = sum(member.count for member in self.members)
        figures["unread"] = sum(len(ledger.unread()) for ledger in self.ledgers)
        figures["failures"] = sum(part.failures for part in self.parts)
        if latencies:
            figures["p50_ms"] = latencies[len(latencies) // 2]
            figures["p99_ms"] = latencies[int(len(latencies) * 0.99)]
        return figures

    def problems(self) -> list[str]:
        """Return what went wrong so far."""
        bugs = [part.bug for part in self.parts if part.bug]
        return bugs + [problem for ledger in self.ledgers for problem in ledger.problems]

    def finish(self) -> dict[str, object]:
        """Stop the writers, read the rest, and return the last report with all problems."""
        for writer in self.writers:
            writer.stop()
        for writer in self.writers:
            writer.join(2 * TIMEOUT_S)
        end_s = time.monotonic() + DRAIN_S
        while any(ledger.unread() for ledger in self.ledgers) and time.monotonic() < end_s and not self.problems():
            time.sleep(0.2)
        unread = {ledger.name: ledger.unread() for ledger in self.ledgers}
        lost = [f"{name}: acknowledged and never read: {left[:20]}" for name, left in unread.items() if left]
        for reader in self.readers:
            reader.stop()
        for reader in self.readers:
            reader.join(TIMEOUT_S)
        stuck = [f"{part.name} does not stop" for part in self.parts if part.is_alive()]
        return self.report() | {"final": True, "problems": [*self.problems(), *lost, *stuck]}


def main(bootstrap: str) -> None:
    """Run the load until standard input is closed."""
    load = Load(bootstrap)
    for part in load.parts:
        part.start()
    closed = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), closed.set()), daemon=True).start()
    while not closed.wait(REPORT_S):
        print(json.dumps(load.report() | {"problems": load.problems()}), flush=True)
    print(json.dumps(load.finish()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
