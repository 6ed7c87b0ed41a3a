"""What the tests of every client share: records to send, waiting with a deadline, the story of a rebalance."""

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
# A day in November 2026, so that no test depends on the clock.
FIRST_TIMESTAMP = 1_795_000_000_000


class Sent(NamedTuple):
    """One record as a test sends it and expects it back; timestamps in ms since the epoch."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int


def sample_records(count: int) -> list[Sent]:
    """Records of every shape: with and without key, value, headers; empty, binary, and long enough to compress."""
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
    """A name that no other test uses."""
    return f"{name}-{uuid.uuid4().hex[:10]}"


class NotInTime(AssertionError):
    """What should have happened did not happen before its deadline."""


def collect_left_sockets() -> None:
    """Let go of sockets that another client left to the garbage collector, before they fail a test that has none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
    """Poll until it holds; fails with `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise NotInTime(f"not within {timeout_s} s: {what}")
        time.sleep(0.02)


class Member(ABC):
    """A group's member in a thread of its own: polls until it is stopped, commits what it read when it must give it up.

    A client's class says how to `run` until `stopping`, calls `assigned` and `revoked` as they come, and `saw` for each
    record.
    """

    def __init__(self) -> None:
        self.assignments = 0
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
        """The partitions it owns now."""
        return set(self._owned)

    def read(self) -> list[tuple[int, int]]:
        """(partition, offset) of every record it was handed, in order."""
        return list(self._read)

    def positions(self) -> dict[int, int]:
        """The next offset to read of each partition that it read."""
        return {partition: offset + 1 for partition, offset in self._read}

    def stop(self) -> None:
        """Commit, leave the group, end the thread; raises what went wrong in the thread."""
        self.stopping.set()
        self._thread.join(WAIT_S)
        if self._thread.is_alive():
            raise NotInTime("the consumer did not close in time")
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _guarded(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 - handed to whoever stops the member
            self._failure = error
        self._owned = set()


def share(members: Sequence[Member], partitions: int) -> bool:
    """Whether the members own every partition, each only one, and no member none."""
    owned = [member.owned() for member in members]
    return all(owned) and sorted(p for own in owned for p in own) == list(range(partitions))


def rebalance_story(join: Callable[[], Member], produce: Callable[[int], None], partitions: int = 6) -> None:
    """Two members share a topic; a third joins; one leaves; every record is read once, in order within a partition.

    `produce(n)` sends n records to each partition.
    """
    members: list[Member] = []
    left: list[Member] = []

    def all_read(each: int) -> bool:
        return sum(len(m.read()) for m in members + left) >= each * partitions

    def shares() -> str:
        return f"each of {partitions} partitions with one member, none idle: {[m.owned() for m in members]}"

    try:
        members += [join(), join()]
        produce(10)
        wait_until(lambda: share(members, partitions), shares())
        wait_until(lambda: all_read(10), "10 records of each partition read by two members")
        members.append(join())
        wait_until(lambda: share(members, partitions), "three members share the partitions")
        produce(10)
        wait_until(lambda: all_read(20), "20 records of each partition read by three members")
        left.append(members.pop(1))
        left[0].stop()
        wait_until(lambda: share(members, partitions), "the two members that stayed share the partitions")
        produce(10)
        wait_until(lambda: all_read(30), "30 records of each partition read in all")
    finally:
        for member in members:
            member.stop()
    assert_read_once([m.read() for m in members + left], partitions, 30)


def assert_read_once(reads: Iterable[list[tuple[int, int]]], partitions: int, each: int) -> None:
    """Every offset 0..each-1 of every partition in exactly one member's list, ascending there."""
    counts: Counter[tuple[int, int]] = Counter()
    for read in reads:
        counts.update(read)
        for partition in range(partitions):
            offsets = [offset for p, offset in read if p == partition]
            assert offsets == sorted(offsets), f"partition {partition} was read out of order: {offsets}"
    expected = Counter({(p, o): 1 for p in range(partitions) for o in range(each)})
    assert counts == expected, f"missing {expected - counts}, too many {counts - expected}"
