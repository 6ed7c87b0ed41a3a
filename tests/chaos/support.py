"""Shared by the fault tests: a writer that knows the fate of each record, and a reader that checks CRCs.

The writer encodes its requests itself (`tests.clients.wire`) and sends one at a time. Each record is therefore known to
be acknowledged, rejected with an error code, or in doubt because the broker was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import struct
import threading
import time
from pathlib import Path

import crc32c
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.wire import STARTING, Connection, ConnectionClosed, batch, fetch, init_producer_id, produce
from tests.ottla_process import OttlaProcess

WAIT_S = 20.0
ANSWER_WITHIN_S = 5.0
WAITING = "What waits: "  # as fast_housekeeping.py prints it
KAFKA_STORAGE_ERROR = 56
_NUMBER = re.compile(rb"number=(\d{12});")


class WatchedProcess(OttlaProcess):
    """A broker that reports its resource usage."""

    period_s = 0.25
    """The interval of the reports; to be set before the start."""

    def command(self) -> list[str]:
        command = super().command()
        script = str(Path(__file__).parent / "monitored_broker.py")
        report = [str(self.directory / "held.jsonl"), str(self.period_s)]
        return [command[0], script, *report, *command[command.index("up") :]]

    def wait_for_reports(self) -> None:
        """Wait until the broker has reported all event loop iterations that ended before this call."""
        # Of two timers that are both late, either may run first: the next report may lack the last iteration.
        position, deadline = self.reported(), time.monotonic() + WAIT_S
        while len(self.held(position)) < 2:
            assert time.monotonic() < deadline, "the broker reports nothing"
            time.sleep(self.period_s / 4)

    def reported(self) -> int:
        """The position after the last report, for `held`."""
        return (self.directory / "held.jsonl").stat().st_size

    def held(self, position: int = 0) -> list[dict[str, float]]:
        """The reports since that position."""
        with (self.directory / "held.jsonl").open("rb") as file:
            file.seek(position)
            # The broker may be writing the last line.
            return [json.loads(line) for line in file if line.endswith(b"\n")]


class HurriedProcess(OttlaProcess):
    """A broker that runs its maintenance tasks very often."""

    def command(self) -> list[str]:
        command = super().command()
        return [command[0], str(Path(__file__).parent / "fast_housekeeping.py"), *command[command.index("up") :]]

    def ask(self) -> str:
        """The stacks of its threads, its waiting requests and its last log lines."""
        since = self.log_size()
        os.kill(self.pid, signal.SIGUSR1)
        os.kill(self.pid, signal.SIGUSR2)
        deadline = time.monotonic() + ANSWER_WITHIN_S
        while WAITING not in self.log_tail(since) and time.monotonic() < deadline:
            time.sleep(0.01)
        before = self.log_path.read_bytes()[:since].decode(errors="replace")
        return f"{self.log_tail(since)}\nIts log before that:\n{before[-4000:]}"


def value_of(number: int, size: int) -> bytes:
    return b"number=%012d;" % number + bytes(size)


def admin(process: OttlaProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": process.bootstrap, "log_level": 2})


def create_topic(process: OttlaProcess, name: str, partitions: int = 1, **config: object) -> None:
    """`config` by Kafka's names with underscores for dots."""
    settings = {key.replace("_", "."): str(value) for key, value in config.items()}
    client = admin(process)  # the future does not keep the client alive
    client.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(WAIT_S)


class Writer(threading.Thread):
    """Writes 0, 1, 2, ... to one partition as an idempotent producer, across crashes of the broker, until `finish`.

    `acknowledged` maps each number to its offset. Each number is sent again until it is acknowledged, so that a
    duplicate means that the broker lost its producer state.
    """

    def __init__(self, process: OttlaProcess, topic: str, partition: int = 0, *, size: int = 20_000) -> None:
        super().__init__(daemon=True)
        self.acknowledged: dict[int, int] = {}
        self.error: str | None = None
        self.retried: set[int] = set()
        """Errors after which a record is sent again, beside the errors of a partition that starts."""
        self._process, self._topic, self._partition, self._size = process, topic, partition, size
        self._stopping = threading.Event()
        self._producer: tuple[int, int] | None = None

    def run(self) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(ConnectionClosed, OSError), Connection(self._process.bootstrap) as connection:
                if self._producer is None:
                    self._producer = init_producer_id(connection)
                while not self._stopping.is_set():
                    if not self._write_next(connection):
                        return
            time.sleep(0.02)

    def _write_next(self, connection: Connection) -> bool:
        assert self._producer is not None
        number = len(self.acknowledged)
        records = batch(
            [value_of(number, self._size)],
            producer_id=self._producer[0],
            epoch=self._producer[1],
            sequence=number,
            timestamp=int(time.time() * 1000),
        )
        answer = produce(connection, self._topic, records, self._partition)
        if answer.error == 0:
            self.acknowledged[number] = answer.base_offset
        elif answer.error in STARTING or answer.error in self.retried:
            time.sleep(0.01)
        else:
            self.error = f"error {answer.error} for {number}"
        return self.error is None

    def wait_for(self, more: int) -> None:
        """Wait until this many more numbers were acknowledged."""
        goal, deadline = len(self.acknowledged) + more, time.monotonic() + WAIT_S
        while len(self.acknowledged) < goal:
            assert self.error is None, self.error
            assert time.monotonic() < deadline, f"{len(self.acknowledged)} of {goal} acknowledged in {WAIT_S} s"
            time.sleep(0.005)

    def finish(self) -> None:
        self._stopping.set()
        self.join(WAIT_S)
        assert not self.is_alive()
        assert self.error is None, self.error

    def check(self, *, start: int = 0) -> None:
        """Check that each acknowledged number is stored once and in order, from offset `start` on."""
        stored = read_numbers(self._process.bootstrap, self._topic, self._partition, start)
        expected = {offset: number for number, offset in self.acknowledged.items() if offset >= start}
        missing = {offset: number for offset, number in expected.items() if stored.get(offset) != number}
        assert not missing, f"acknowledged but lost: {list(missing.items())[:5]}"
        numbers = list(stored.values())
        assert numbers == sorted(set(numbers)), "once and in order"


def read_numbers(bootstrap: str, topic: str, partition: int = 0, start: int = 0) -> dict[int, int]:
    """Map the offset of each record of a `Writer` to its number, up to the high watermark."""
    found: dict[int, int] = {}
    offset, end, deadline = start, start + 1, time.monotonic() + WAIT_S
    with Connection(bootstrap) as connection:
        while offset < end:
            assert time.monotonic() < deadline, f"read {topic}-{partition} to {offset} of {end} in {WAIT_S} s"
            error, high_watermark, data = fetch(connection, topic, partition, offset, 1_000_000)
            if error in STARTING:
                time.sleep(0.01)
                continue
            assert error == 0, f"error {error} at offset {offset} of {topic}-{partition}"
            end = high_watermark
            for base, number in split_batches(data):
                if base >= start:
                    found[base] = number
                offset = base + 1
    return found


def split_batches(data: bytes) -> list[tuple[int, int]]:
    """(offset, number) of the whole batches in `data`, each of one record; their CRCs must be right."""
    found, position = [], 0
    while position + 61 <= len(data):
        base, length = struct.unpack_from(">qi", data, position)
        stop = position + 12 + length
        if stop > len(data):
            break
        (crc,) = struct.unpack_from(">I", data, position + 17)
        assert crc32c.crc32c(data[position + 21 : stop]) == crc, f"the CRC of the batch at {base} is wrong"
        number = _NUMBER.search(data, position + 61, stop)
        assert number is not None, f"the batch at {base} is not the writer's"
        found.append((base, int(number[1])))
        position = stop
    return found
