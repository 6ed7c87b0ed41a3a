"""The status of a query after each micro-batch, from Spark's report about it. Without I/O, clock or Spark.

A report is Spark's StreamingQueryProgress as JSON. `observe` adds metrics to it, which are named here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from ottla.streams.status import Batch, Input, Partition, Run, Sample, Status, Store

INVALID: Final = "invalid"
"""The beginning of the names of observed metrics that count invalid records; the parameter follows after a period."""
OUTPUT: Final = "output"
"""The beginning of the names of observed metrics that count the rows of outputs; the topic follows after a period."""
COUNT: Final = "count"
"""The column of an observed metric."""
MOST_SAMPLES: Final = 12
SAMPLE_MS: Final = 10_000
"""The shortest time between two samples."""


def after_batch(before: Status, report: Mapping[str, Any], now_ms: int) -> Status:
    """Return the status after a micro-batch; `report` is Spark's progress as JSON."""
    inputs = _inputs(before, report, now_ms)
    records = _records(before, report, inputs)
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


def _records(before: Status, report: Mapping[str, Any], inputs: Sequence[Input]) -> int:
    sources = report.get("sources", ())
    if not before.inputs and any(each.get("startOffset") is None for each in sources):
        # The first micro-batch of a query whose start is not known: only Spark knows how much it has read.
        return sum(int(each.get("numInputRows", 0)) for each in sources)
    return sum(each.records for each in inputs)


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
    given = source.get(name)
    found = {topic: each for topic, each in given.items() if topic[:1] != "#"} if isinstance(given, dict) else {}
    return found if all(map(_are_positions, found.values())) else {}


def _are_positions(offsets: object) -> bool:
    return isinstance(offsets, dict) and all(
        number.isdecimal() and isinstance(offset, int) for number, offset in offsets.items()
    )


def _stores(run: Run, report: Mapping[str, Any]) -> tuple[Store, ...]:
    stores = report.get("stateOperators", ())
    # Spark names its own operators; the program's operators are in the same order if each has one store.
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
