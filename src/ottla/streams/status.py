"""The status of a query, as a run publishes it for `ottla stream list`, `describe` and `why`.

A run publishes the statuses of its queries to the compacted topic `__ottla_streams`, so that any machine can ask. Each
has the key PIPELINE/QUERY. `batch_reports` derives the next status from Spark's report about a micro-batch. The size of
a status is limited: of many partitions it has those with the largest lag, of a long run a few samples.

Without I/O, clock or Spark. Times are milliseconds since the epoch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, Protocol, TypeAlias, get_args

TOPIC: Final = "__ottla_streams"
VERSION: Final = 1
INTERVAL_MS: Final = 1_000
"""The shortest time between two records about a query."""
HEARTBEAT_MS: Final = 10_000
"""The longest time between two records about a query that runs."""
SILENT_MS: Final = 3 * HEARTBEAT_MS
"""A run that has published nothing for so long has died, or cannot reach the brokers."""
MOST_PARTITIONS: Final = 50
_RECORD: Final = re.compile(r"Topic '([^']+)', partition (\d+), offset (\d+)")

Phase: TypeAlias = Literal["running", "restarting", "stopped", "done", "failed"]
"""`done` is the end of a run with `once`."""
PHASES: Final = get_args(Phase)
RUNS: Final = ("running", "restarting")


@dataclass(frozen=True)
class FrequentKey:
    """The most frequent key among the rows of one task, in a sample of the records that the query processes next."""

    operator: str
    columns: Sequence[str]
    values: Sequence[str]
    """The values of the columns, as text of limited length."""
    count: int
    """How many rows have this key."""
    task_rows: int
    """How many rows of the sample are for this task."""
    rows: int
    """How many rows the sample has, for all tasks."""


@dataclass(frozen=True)
class SlowTask:
    """A task that runs much longer than the others of its stage: its share of the rows may be too large."""

    at_ms: int
    """When it was seen last."""
    stage: int
    """The number of the stage in Spark."""
    task: int
    """The number of the task in its stage, and of its shuffle partition."""
    tasks: int
    """The tasks of the stage."""
    running_ms: int
    median_ms: int
    """Half of the finished tasks took at most so long."""
    host: str = ""
    reads_inputs: bool = False
    """Whether the stage reads topics, so that its tasks have partitions and not keys."""
    keys: Sequence[FrequentKey] = ()
    """Of each operator with state whose rows the task may have; empty if they are not known."""
    unknown: str = ""
    """Why the keys are not known."""


@dataclass(frozen=True)
class Run:
    """One run of a query, and what its program declares."""

    pipeline: str
    query: str
    run_id: str = ""
    host: str = ""
    pid: int = 0
    started_ms: int = 0
    checkpoint: str = ""
    once: bool = False
    exactly_once: bool = False
    mode: str = "append"
    streams: Mapping[str, str] = field(default_factory=dict)
    """The topic of each stream, by parameter."""
    tables: Sequence[str] = ()
    outputs: Sequence[str] = ()
    operators: Sequence[str] = ()
    """The operators with state."""
    has_event_time: bool = False
    notes_batches: bool = True
    """Whether the run notes when a micro-batch begins."""


@dataclass(frozen=True)
class Partition:
    """How far a query is in a partition: it has processed the records before `offset`; `end` is the end of the log."""

    partition: int
    offset: int
    end: int
    records: int = 0
    """The records of the last micro-batch."""
    last_record_ms: int = 0
    """When a micro-batch of this run last had a record of this partition; 0 if none had."""

    @property
    def lag(self) -> int:
        """The number of offsets that are not processed yet."""
        return max(0, self.end - self.offset)


@dataclass(frozen=True)
class Input:
    """How far a query is in a topic. The totals include the partitions that are omitted."""

    topic: str
    partitions: Sequence[Partition] = ()
    omitted: int = 0
    lag: int = 0
    records: int = 0
    last_record_ms: int = 0

    @classmethod
    def of(cls, topic: str, partitions: Sequence[Partition]) -> Input:
        """Return the input with these partitions, which are all of the topic."""
        return cls(
            topic,
            tuple(sorted(partitions, key=lambda each: each.partition)),
            0,
            sum(each.lag for each in partitions),
            sum(each.records for each in partitions),
            max((each.last_record_ms for each in partitions), default=0),
        )

    def limited(self) -> Input:
        """Return the input with few partitions: those with the largest lag."""
        shown = sorted(self.partitions, key=lambda each: (-each.lag, each.partition))[:MOST_PARTITIONS]
        return replace(
            self,
            partitions=tuple(sorted(shown, key=lambda each: each.partition)),
            omitted=self.omitted + len(self.partitions) - len(shown),
        )


@dataclass(frozen=True)
class Batch:
    """A finished micro-batch."""

    number: int
    finished_ms: int
    duration_ms: int
    phases_ms: Mapping[str, int] = field(default_factory=dict)
    records: int = 0
    processed_per_s: float = 0.0
    arrived_per_s: float = 0.0
    """Records that were written to the inputs, since the previous micro-batch."""


@dataclass(frozen=True)
class Store:
    """The state of one operator."""

    operator: str
    rows: int
    memory_bytes: int
    updated: int
    removed: int
    late: int
    """The rows of the last micro-batch that were dropped, because they were too late."""


@dataclass(frozen=True)
class Sample:
    """Figures of an earlier time of the run."""

    at_ms: int
    lag: int
    state_rows: int
    records: int


@dataclass(frozen=True)
class Problem:
    """Why a query failed last."""

    at_ms: int
    kind: str
    reason: str
    restarts: int = 0
    next_start_ms: int | None = None

    @property
    def record(self) -> tuple[str, int, int] | None:
        """Topic, partition and offset of the invalid record."""
        found = _RECORD.search(self.reason) if self.kind == "data" else None
        return None if found is None else (found[1], int(found[2]), int(found[3]))


@dataclass(frozen=True)
class Status:
    """Everything about a query at one time."""

    run: Run
    phase: Phase = "running"
    at_ms: int = 0
    batch: Batch | None = None
    batches: int = 0
    """The finished micro-batches of this run."""
    records: int = 0
    """The records that this run has processed."""
    busy_ms: int = 0
    """How long the micro-batches of this run took together."""
    inputs: Sequence[Input] = ()
    watermark_ms: int | None = None
    stores: Sequence[Store] = ()
    outputs: Mapping[str, int] = field(default_factory=dict)
    """The rows that this run has written, by topic, as far as Spark reports them."""
    invalid: Mapping[str, int] = field(default_factory=dict)
    """The invalid records of this run that were skipped or written to their topic, by parameter."""
    late: int = 0
    """The rows that operators with state have dropped in this run, because they were later than the watermark."""
    problem: Problem | None = None
    samples: Sequence[Sample] = ()
    busy_since_ms: int | None = None
    """Since when a micro-batch runs."""
    slow: SlowTask | None = None
    """The last slow task of this run."""

    @property
    def key(self) -> str:
        """The key of the record in the topic."""
        return f"{self.run.pipeline}/{self.run.query}"

    @property
    def lag(self) -> int:
        """The number of offsets of all inputs that are not processed yet."""
        return sum(each.lag for each in self.inputs)

    @property
    def state_rows(self) -> int:
        """The rows of all operators with state."""
        return sum(each.rows for each in self.stores)

    def is_alive(self, now_ms: int) -> bool:
        """Whether the run is expected to publish, and did so lately. Before a start it may wait without publishing."""
        waits_until_ms = 0 if self.problem is None else self.problem.next_start_ms or 0
        last_ms = max(self.at_ms, waits_until_ms) if self.phase == "restarting" else self.at_ms
        return self.phase in RUNS and now_ms - last_ms <= SILENT_MS

    def dumps(self) -> bytes:
        """Return the value of the record; its size is limited."""
        limited = replace(self, inputs=tuple(each.limited() for each in self.inputs))
        return json.dumps({"version": VERSION, **asdict(limited)}, separators=(",", ":")).encode()

    @classmethod
    def loads(cls, value: bytes) -> Status:
        """Read the value of a record. Unknown fields are ignored. Raises ValueError."""
        try:
            found: Any = json.loads(value)
            status: Status = _read(cls, found)
            status = replace(
                status,
                run=_read(Run, found["run"]),
                batch=None if found["batch"] is None else _read(Batch, found["batch"]),
                problem=None if found["problem"] is None else _read(Problem, found["problem"]),
                inputs=tuple(_read_input(each) for each in found["inputs"]),
                stores=tuple(_read(Store, each) for each in found["stores"]),
                samples=tuple(_read(Sample, each) for each in found["samples"]),
                slow=None if found.get("slow") is None else _read_slow(found["slow"]),
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"the status is unreadable: {error!r}") from None
        if status.phase not in PHASES:
            raise ValueError(f"the status has the unknown phase {status.phase!r}")
        return status


class Receiver(Protocol):
    """A receiver of the statuses of a run. It neither blocks nor fails."""

    def offer(self, status: Status) -> None:
        """Take the present status of a query."""


def _read(kind: Any, found: Mapping[str, Any]) -> Any:
    return kind(**{name: value for name, value in found.items() if name in kind.__dataclass_fields__})


def _read_slow(found: Mapping[str, Any]) -> SlowTask:
    read: SlowTask = _read(SlowTask, found)
    return replace(read, keys=tuple(_read(FrequentKey, each) for each in found["keys"]))


def _read_input(found: Mapping[str, Any]) -> Input:
    read: Input = _read(Input, found)
    return replace(read, partitions=tuple(_read(Partition, each) for each in found["partitions"]))


def at_start(run: Run, offsets: Mapping[str, Mapping[int, tuple[int, int]]]) -> Status:
    """Return the status before the first micro-batch; `offsets` are the start and end of each partition by topic."""
    inputs = tuple(
        Input.of(topic, [Partition(number, start, end) for number, (start, end) in partitions.items()])
        for topic, partitions in offsets.items()
    )
    return Status(run, at_ms=run.started_ms, inputs=inputs)


def is_due(published: Status | None, now: Status) -> bool:
    """Whether to publish a status: after a change, but not more often than once a second; and as a heartbeat."""
    if published is None or published.phase != now.phase or published.problem != now.problem:
        return True
    waited_ms = now.at_ms - published.at_ms
    return waited_ms >= HEARTBEAT_MS or (waited_ms >= INTERVAL_MS and replace(published, at_ms=now.at_ms) != now)
