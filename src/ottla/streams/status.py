"""The status of a query, as a run publishes it for `ottla stream list`, `describe` and `why`.

A run publishes the statuses of its queries to the compacted topic `__ottla_streams`, so that any machine can ask. Each
has the key PIPELINE/QUERY. `after_batch` derives the next status from Spark's report about a micro-batch. The size of a
status is limited: of many partitions it has those with the largest lag, of a long run a few samples.

Without I/O, clock or Spark. Times are milliseconds since the epoch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, get_args

TOPIC: Final = "__ottla_streams"
VERSION: Final = 1
INVALID: Final = "invalid"
"""The beginning of the names of observed metrics that count invalid records; the parameter follows after a period."""
OUTPUT: Final = "output"
"""The beginning of the names of observed metrics that count the rows of outputs; the topic follows after a period."""
COUNT: Final = "count"
"""The column of an observed metric."""
INTERVAL_MS: Final = 1_000
"""The shortest time between two records about a query."""
HEARTBEAT_MS: Final = 10_000
"""The longest time between two records about a query that runs."""
SILENT_MS: Final = 3 * HEARTBEAT_MS
"""A run that has published nothing for so long has died, or cannot reach the brokers."""
MOST_PARTITIONS: Final = 50
MOST_SAMPLES: Final = 12
SAMPLE_MS: Final = 10_000
_RECORD: Final = re.compile(r"Topic '([^']+)', partition (\d+), offset (\d+)")

Phase: TypeAlias = Literal["running", "restarting", "stopped", "done", "failed"]
"""`done` is the end of a run with `once`."""
PHASES: Final = get_args(Phase)
RUNS: Final = ("running", "restarting")


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


@dataclass(frozen=True)
class Partition:
    """How far a query is in a partition: it has processed the records before `offset`; `end` is that of the log."""

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
        """Whether the run is expected to publish, and did so lately."""
        return self.phase in RUNS and now_ms - self.at_ms <= SILENT_MS

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
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"the status is unreadable: {error!r}") from None
        if status.phase not in PHASES:
            raise ValueError(f"the status has the unknown phase {status.phase!r}")
        return status


def _read(kind: Any, found: Mapping[str, Any]) -> Any:
    return kind(**{name: value for name, value in found.items() if name in kind.__dataclass_fields__})


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


# -- after a micro-batch -----------------------------------------------------------------------------------------------


def after_batch(before: Status, report: Mapping[str, Any], now_ms: int) -> Status:
    """Return the status after a micro-batch; `report` is Spark's progress as JSON."""
    inputs = _inputs(before, report, now_ms)
    records = sum(each.records for each in inputs)
    total, lag = before.records + records, sum(each.lag for each in inputs)
    stores = _stores(before.run, report)
    sample = Sample(now_ms, lag, sum(each.rows for each in stores), total)
    duration_ms = int(report.get("batchDuration", 0))
    return replace(
        before,
        at_ms=now_ms,
        batch=Batch(
            int(report["batchId"]),
            now_ms,
            duration_ms,
            {name: int(ms) for name, ms in report.get("durationMs", {}).items() if name != "triggerExecution"},
            records,
            _rate(records, duration_ms),
            _arrived(before, total + lag, now_ms),
        ),
        batches=before.batches + 1,
        records=total,
        busy_ms=before.busy_ms + duration_ms,
        inputs=inputs,
        watermark_ms=_watermark(report, before.watermark_ms),
        stores=stores,
        outputs=_added(before.outputs, _output_rows(before.run, report)),
        invalid=_added(before.invalid, _observed(report, INVALID)),
        late=before.late + sum(each.late for each in stores),
        samples=_sampled(before.samples, sample),
        busy_since_ms=None,
    )


def _inputs(before: Status, report: Mapping[str, Any], now_ms: int) -> tuple[Input, ...]:
    known = {(each.topic, one.partition): one for each in before.inputs for one in each.partitions}
    found: dict[str, list[Partition]] = {}
    for source in report.get("sources", ()):
        start, end, latest = (_offsets(source, name) for name in ("startOffset", "endOffset", "latestOffset"))
        for topic, offsets in end.items():
            starts, ends = start.get(topic, {}), latest.get(topic, {})
            # A topic that two streams read is one input.
            found[topic] = []
            for each, offset in offsets.items():
                previous = known.get((topic, int(each)), Partition(int(each), offset, offset))
                # The first micro-batch of a checkpoint has no start.
                span = (starts.get(each, previous.offset), offset, ends.get(each, offset))
                found[topic].append(_partition(int(each), span, previous.last_record_ms, now_ms))
    return tuple(Input.of(topic, partitions) for topic, partitions in found.items())


def _partition(number: int, span: tuple[int, int, int], last_ms: int, now_ms: int) -> Partition:
    """Return a partition after a micro-batch from the first to the second offset, while its log ended at the third."""
    start, offset, end = span
    records = max(0, offset - start)
    return Partition(number, offset, max(offset, end), records, now_ms if records else last_ms)


def _offsets(source: Mapping[str, Any], name: str) -> Mapping[str, Mapping[str, int]]:
    """Return the offsets of a source by topic and partition; nothing if it is not a source of Ottla.

    Names that no topic can have are not offsets: `#idle` is the time of an idle stream.
    """
    found = source.get(name)
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        return {}
    return {topic: offsets for topic, offsets in found.items() if not topic.startswith("#")}


def _stores(run: Run, report: Mapping[str, Any]) -> tuple[Store, ...]:
    stores = report.get("stateOperators", ())
    # Spark names its own operators; those of the program are in the same order if each has one store.
    names = run.operators if len(run.operators) == len(stores) else ()
    return tuple(
        Store(
            names[number] if names else str(each.get("operatorName", "")),
            int(each.get("numRowsTotal", 0)),
            int(each.get("memoryUsedBytes", 0)),
            int(each.get("numRowsUpdated", 0)),
            int(each.get("numRowsRemoved", 0)),
            int(each.get("numRowsDroppedByWatermark", 0)),
        )
        for number, each in enumerate(stores)
    )


def _output_rows(run: Run, report: Mapping[str, Any]) -> dict[str, int]:
    rows = int(report.get("sink", {}).get("numOutputRows", -1))
    if len(run.outputs) == 1 and rows >= 0:
        return {run.outputs[0]: rows}
    return _observed(report, OUTPUT)


def _observed(report: Mapping[str, Any], kind: str) -> dict[str, int]:
    found = {}
    for metric, row in report.get("observedMetrics", {}).items():
        prefix, _, name = metric.partition(".")
        if prefix == kind and COUNT in row:
            found[name] = int(row[COUNT])
    return found


def _watermark(report: Mapping[str, Any], before_ms: int | None) -> int | None:
    text = report.get("eventTime", {}).get("watermark")
    found_ms = round(datetime.fromisoformat(text).timestamp() * 1000) if text else 0
    return found_ms or before_ms  # Spark begins with 0


def _arrived(before: Status, total: int, now_ms: int) -> float:
    if before.batch is None:
        return 0.0
    return _rate(max(0, total - before.records - before.lag), now_ms - before.batch.finished_ms)


def _rate(records: int, duration_ms: int) -> float:
    return round(records * 1000 / max(1, duration_ms), 1)


def _added(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    return {name: before.get(name, 0) + now.get(name, 0) for name in (*before, *now)}


def _sampled(samples: Sequence[Sample], sample: Sample) -> tuple[Sample, ...]:
    """Add a sample, unless the last one is recent. The first one of the run and the last two minutes remain."""
    if samples and sample.at_ms - samples[-1].at_ms < SAMPLE_MS:
        return tuple(samples)
    added = (*samples, sample)
    return added if len(added) <= MOST_SAMPLES else (added[0], *added[2:])


def is_due(published: Status | None, now: Status) -> bool:
    """Whether to publish a status: after a change, but not more often than once a second; and as a heartbeat."""
    if published is None or published.phase != now.phase or published.problem != now.problem:
        return True
    waited_ms = now.at_ms - published.at_ms
    return waited_ms >= HEARTBEAT_MS or (waited_ms >= INTERVAL_MS and replace(published, at_ms=now.at_ms) != now)
