"""Reports about groups and clusters, as frozen values. `as_dict` is their JSON form: times in ms, durations in s."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol

from ottla.common import units
from ottla.common.ids import TopicPartition

Severity = Literal["ok", "info", "warning", "critical"]
SEVERITIES: Final[tuple[Severity, ...]] = ("ok", "info", "warning", "critical")


@dataclass(frozen=True)
class Finding:
    """One cause. `code` is stable and for programs; `subject` is a group, partition, broker or setting.

    `next_step` is a sentence or a command, empty if nothing has to be done.
    """

    code: str
    subject: str
    cause: str
    next_step: str
    severity: Severity


@dataclass(frozen=True)
class RecordAt:
    """The record at a position. `key` and `value` are shortened text, None if null or masked; `size` is in bytes."""

    offset: int
    timestamp_ms: int
    key: str | None
    value: str | None
    size: int


@dataclass(frozen=True)
class PartitionRow:
    """One partition of a group. None: unknown, or there is no such thing.

    `position` is the committed offset, `stable_end` the first offset of an open transaction or else `end`.
    `lag_s` is the age of the record at the position; `unmoved_s` how long the position was seen unchanged with lag.
    `code` names the finding that explains the partition.
    """

    topic: str
    partition: int
    member: str | None
    client: str | None
    host: str | None
    position: int | None
    start: int | None
    end: int | None
    stable_end: int | None
    lag: int | None
    lag_s: float | None
    read_per_s: float | None
    written_per_s: float | None
    unmoved_s: float | None
    record: RecordAt | None
    code: str


@dataclass(frozen=True)
class GroupReport:
    """The state of a group after `watched_s` seconds of observation; `findings` begin with the most severe."""

    group: str
    type: str
    state: str
    member_count: int
    watched_s: float
    findings: tuple[Finding, ...] = ()
    partitions: tuple[PartitionRow, ...] = ()

    @property
    def severity(self) -> Severity:
        """The highest severity of the findings."""
        return worst(self.findings)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON objects."""
        return {**asdict(self), "severity": self.severity}


@dataclass(frozen=True)
class ClusterReport:
    """The state of a cluster; `unknown` has the parts that could not be read, with the reason."""

    cluster_id: str
    controller: int | None
    broker_count: int
    watched_s: float
    findings: tuple[Finding, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)

    @property
    def severity(self) -> Severity:
        """The highest severity of the findings."""
        return worst(self.findings)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON objects."""
        return {**asdict(self), "severity": self.severity}


class Watch(NamedTuple):
    """How long to observe, and the clock: `pause` waits for seconds (asyncio.sleep)."""

    seconds: float
    pause: Callable[[float], Awaitable[object]]
    now_ms: Callable[[], int] = units.now_ms


class RecordReader(Protocol):
    """Reads the records at positions. Positions without a readable record are omitted."""

    async def read(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, RecordAt]: ...


def worst(findings: Sequence[Finding]) -> Severity:
    """Return the highest severity, "ok" without findings."""
    return max((each.severity for each in findings), key=SEVERITIES.index, default="ok")


def by_severity(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the findings with the most severe first, otherwise in their order."""
    return tuple(sorted(findings, key=lambda each: -SEVERITIES.index(each.severity)))
