"""Helpers for the tests of all clients: sample records, waiting with a deadline, a rebalance scenario."""

from __future__ import annotations

import gc
import threading
import time
import uuid
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Self

WAIT_S = 20.0
# The beginning of today, in UTC: records of a fixed day would be deleted by retention a week later.
FIRST_TIMESTAMP = int(time.time()) // 86_400 * 86_400_000


class Sent(NamedTuple):
    """A record that a test sends and expects to read back. `timestamp` is in ms since the epoch."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int


def sample_records(count: int) -> list[Sent]:
    """Return records with and without key, value and headers; with empty, binary and compressible values."""
    records = []
    for i in range(count):
        key = None if i % 5 == 0 else f"key-{i % 7}".encode()
        value = None if key and i % 11 == 0 else (b"" if i % 13 == 0 else f"value {i} ".encode() * (i % 40))
        headers: list[tuple[str, bytes | None]] = (
            [] if i % 3 else [("n", str(i).encode()), ("bin", b"\x00\xff"), ("n", b"")]
        )
        records.append(Sent(key, value, headers, FIRST_TIMESTAMP + i * 10))
    return records


def unique(name: str) -> str:
    """Return a name that no other test uses."""
    return f"{name}-{uuid.uuid4().hex[:10]}"


class NotInTime(AssertionError):
    """A condition was not true before its deadline."""


def collect_left_sockets() -> None:
    """Collect sockets that a third-party client left open. Otherwise their ResourceWarning would fail a later test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
    """Wait until the condition is true. After `timeout_s`, raise NotInTime with `what`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise NotInTime(f"not within {timeout_s} s: {what}")
        time.sleep(0.02)


class Member(ABC):
    """A group member that polls in its own thread. When partitions are revoked, it commits the records that it read.

    A client's class says how to `run` until `stopping`, calls `assigned` and `revoked` as they come, and `saw` for each
    record.
    """

    def __init__(self, stop_s: float = WAIT_S) -> None:
        self.assignments = 0
        self._stop_s = stop_s
        self.stopping = threading.Event()
        self._owned: set[int] = set()
        self._read: list[tuple[int, int]] = []
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    @abstractmethod
    def run(self) -> None:
        """Join, poll until `stopping` is set, commit and leave."""

    def start(self) -> Self:
        self._thread.start()
        return self

    def assigned(self, partitions: Iterable[int]) -> None:
        self.assignments += 1
        self._owned |= set(partitions)

    def revoked(self, partitions: Iterable[int]) -> None:
        self._owned -= set(partitions)

    def saw(self, partition: int, offset: int) -> None:
        self._read.append((partition, offset))

    def owned(self) -> set[int]:
        """Return the partitions that the member owns now."""
        return set(self._owned)

    def read(self) -> list[tuple[int, int]]:
        """Return (partition, offset) of every record that the member read, in order."""
        return list(self._read)

    def positions(self) -> dict[int, int]:
        """Return the next offset of each partition that the member has read from."""
        return {partition: offset + 1 for partition, offset in self._read}

    def stop(self) -> None:
        """Commit, leave the group and end the thread. Raises the thread's exception, if there was one."""
        self.stopping.set()
        self._thread.join(self._stop_s)
        if self._thread.is_alive():
            raise NotInTime("the consumer did not close in time")
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _guarded(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 - `stop` raises it
            self._failure = error
        self._owned = set()


def share(members: Sequence[Member], partitions: int) -> bool:
    """Whether every partition has exactly one owner and every member owns a partition."""
    owned = [member.owned() for member in members]
    return all(owned) and sorted(p for own in owned for p in own) == list(range(partitions))


def rebalance_story(
    join: Callable[[], Member], produce: Callable[[int], None], partitions: int = 6, wait_s: float = WAIT_S
) -> None:
    """Check a group in which two members share a topic, a third joins and one leaves: every record is read once.

    `produce(n)` sends n records to each partition. Records are in order within a partition.
    """
    members: list[Member] = []
    left: list[Member] = []

    def all_read(each: int) -> bool:
        return sum(len(m.read()) for m in members + left) >= each * partitions

    def wait(condition: Callable[[], bool], what: str) -> None:
        wait_until(condition, what, wait_s)

    def shares() -> str:
        return f"each of {partitions} partitions with one member, none idle: {[m.owned() for m in members]}"

    try:
        members += [join(), join()]
        produce(10)
        wait(lambda: share(members, partitions), shares())
        wait(lambda: all_read(10), "10 records of each partition read by two members")
        members.append(join())
        wait(lambda: share(members, partitions), "three members share the partitions")
        produce(10)
        wait(lambda: all_read(20), "20 records of each partition read by three members")
        left.append(members.pop(1))
        left[0].stop()
        wait(lambda: share(members, partitions), "the two members that stayed share the partitions")
        produce(10)
        wait(lambda: all_read(30), "30 records of each partition read in all")
    finally:
        for member in members:
            member.stop()
    assert_read_once([m.read() for m in members + left], partitions, 30)


def assert_read_once(reads: Iterable[list[tuple[int, int]]], partitions: int, each: int) -> None:
    """Check that exactly one member read each offset 0..each-1 of every partition, in ascending order."""
    counts: Counter[tuple[int, int]] = Counter()
    for read in reads:
        counts.update(read)
        for partition in range(partitions):
            offsets = [offset for p, offset in read if p == partition]
            assert offsets == sorted(offsets), f"partition {partition} was read out of order: {offsets}"
    expected = Counter({(p, o): 1 for p in range(partitions) for o in range(each)})
    assert counts == expected, f"missing {expected - counts}, too many {counts - expected}"
