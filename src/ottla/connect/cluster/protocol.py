"""The bytes that the workers of one group exchange through its coordinator: Connect's protocols 1 and 2.

Each worker joins with its address, the offset up to which it has read the configurations, and its present work. The
leader of the group answers each with additions to that work, and with revocations (KIP-415). `sessioned` (2) has the
same fields as `compatible` (1), and says that all workers sign internal requests (KIP-507). Kafka's workers and tools
read and write the same bytes. Workers with connect.protocol=eager (0) cannot be in one group with ours.

Source: ConnectProtocol and IncrementalCooperativeConnectProtocol of Kafka 4.3.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.connect.runtime import TaskId

PROTOCOL_TYPE: Final = "connect"
SESSIONED: Final = "sessioned"
COMPATIBLE: Final = "compatible"
VERSIONS: Final[Mapping[str, int]] = {SESSIONED: 2, COMPATIBLE: 1}

NO_ERROR: Final = 0
CONFIG_MISMATCH: Final = 1
"""The leader has not read as much as another member: all read to the end, and join again."""
_CONNECTOR: Final = -1
_MOST_ITEMS: Final = 1_000_000


class Work(NamedTuple):
    """Connectors and tasks."""

    connectors: frozenset[str] = frozenset()
    tasks: frozenset[TaskId] = frozenset()

    def __or__(self, other: Work) -> Work:
        return Work(self.connectors | other.connectors, self.tasks | other.tasks)

    def __sub__(self, other: Work) -> Work:
        return Work(self.connectors - other.connectors, self.tasks - other.tasks)

    def __and__(self, other: Work) -> Work:
        return Work(self.connectors & other.connectors, self.tasks & other.tasks)

    def __bool__(self) -> bool:
        return bool(self.connectors or self.tasks)


NO_WORK: Final = Work()


@dataclass(frozen=True)
class GroupAssignment:
    """The leader's message to one member, or the present work that a member joins with."""

    leader: str = ""
    """The member id of the leader."""
    leader_url: str = ""
    offset: int = -1
    """The offset of the configurations on which the assignment is based."""
    added: Work = NO_WORK
    revoked: Work = NO_WORK
    delay_ms: int = 0
    """When the members join again, to divide the work of a worker that left; 0: they need not."""
    error: int = NO_ERROR


class MemberState(NamedTuple):
    """The metadata of a member."""

    url: str
    offset: int
    work: Work


class MalformedError(ValueError):
    """Bytes that are not of this protocol."""


# -- writing ------------------------------------------------------------------------------------------------------


def encode_member(state: MemberState, version: int, last: GroupAssignment | None) -> bytes:
    """Encode the metadata; `last` is the last assignment, with the present work."""
    allocation = None
    if last is not None:
        allocation = encode_assignment(GroupAssignment(last.leader, last.leader_url, last.offset, state.work), version)
    return b"".join(
        (struct.pack(">h", version), _string(state.url), struct.pack(">q", state.offset), _bytes(allocation))
    )


def encode_assignment(assignment: GroupAssignment, version: int) -> bytes:
    """Encode an assignment."""
    return b"".join(
        (
            struct.pack(">hh", version, assignment.error),
            _string(assignment.leader),
            _string(assignment.leader_url),
            struct.pack(">q", assignment.offset),
            _work(assignment.added),
            _work(assignment.revoked),
            struct.pack(">i", assignment.delay_ms),
        )
    )


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _bytes(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def _work(work: Work) -> bytes:
    numbers: dict[str, list[int]] = {name: [_CONNECTOR] for name in sorted(work.connectors)}
    for task in sorted(work.tasks):
        numbers.setdefault(task.connector, []).append(task.task)
    parts = [struct.pack(">i", len(numbers))]
    for name, tasks in numbers.items():
        parts += [_string(name), struct.pack(f">i{len(tasks)}i", len(tasks), *tasks)]
    return b"".join(parts)


# -- reading ------------------------------------------------------------------------------------------------------


def decode_member(data: bytes) -> MemberState:
    """Decode the metadata of a member. Raises MalformedError."""
    reader = _Reader(data)
    reader.version()
    url, offset, allocation = reader.string(), reader.number(">q"), reader.optional_bytes()
    work = Work() if allocation is None else decode_assignment(allocation).added
    return MemberState(url, offset, work)


def decode_assignment(data: bytes) -> GroupAssignment:
    """Decode what the leader sent. Raises MalformedError."""
    reader = _Reader(data)
    reader.version()
    error, leader, url = reader.number(">h"), reader.string(), reader.string()
    offset, added, revoked = reader.number(">q"), reader.work(), reader.work()
    return GroupAssignment(leader, url, offset, added, revoked, reader.number(">i", default=0), error)


@dataclass
class _Reader:
    data: bytes
    at: int = field(default=0)

    def take(self, length: int) -> bytes:
        if length < 0 or self.at + length > len(self.data):
            raise MalformedError(f"{length} bytes are missing at {self.at} of {len(self.data)}")
        self.at += length
        return self.data[self.at - length : self.at]

    def number(self, form: str, default: int | None = None) -> int:
        if default is not None and self.at == len(self.data):  # older versions end before this field
            return default
        number: int = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return number

    def version(self) -> None:
        if (version := self.number(">h")) < 0:
            raise MalformedError(f"the version {version} is not known")

    def string(self) -> str:
        try:
            return self.take(self.number(">h")).decode()
        except UnicodeDecodeError as error:
            raise MalformedError(str(error)) from error

    def optional_bytes(self) -> bytes | None:
        length = self.number(">i", default=-1)
        return None if length == -1 else self.take(length)

    def items(self) -> Iterable[int]:
        count = self.number(">i", default=-1)
        if count > _MOST_ITEMS:
            raise MalformedError(f"{count} items are too many")
        return range(count)

    def work(self) -> Work:
        connectors: set[str] = set()
        tasks: set[TaskId] = set()
        for _ in self.items():
            name = self.string()
            for _ in self.items():
                number = self.number(">i")
                if number == _CONNECTOR:
                    connectors.add(name)
                else:
                    tasks.add(TaskId(name, number))
        return Work(frozenset(connectors), frozenset(tasks))
