"""Finds skew: a partition, or a key of an operator with state, that has most of the records. Without I/O or Spark.

One Spark task reads a partition, and one task processes a key of an operator with state. If most records are in one
of them, the other tasks have little to do. The run itself finds slow tasks and their keys (`slow_tasks`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.common import units
from ottla.common.ids import TopicPartition
from ottla.streams.facts import Facts, Finding, lag_of, partition_lag
from ottla.streams.facts import records as counted
from ottla.streams.status import Status

SKEWED_SHARE: Final = 0.8
SKEWED_RECORDS: Final = 1_000
SKEWED_KEYS: Final = 0.5
"""A key is a finding if it has more than this share of the newest records."""
LONGEST_KEY: Final = 60
SKEWED_LOAD: Final = 1.5
"""A task has too many rows if it has this many times its share."""
RECENT_MS: Final = 300_000
"""A slow task that was seen longer ago is not reported."""
PROBLEM_MS: Final = 10_000


@dataclass(frozen=True)
class Skew:
    """A partition that has most of the records of its topic."""

    partition: TopicPartition
    share: int
    """Of all partitions, in per cent."""
    what: str
    is_lag: bool


def find_skew(status: Status, facts: Facts) -> Skew | None:
    """Return a partition that has most of the lag, or of the last micro-batch; None if no partition does."""
    for each in status.inputs:
        if len(each.partitions) < 2 or each.omitted:
            continue
        lags = {one.partition: partition_lag(each, one, facts) for one in each.partitions}
        records = {one.partition: one.records for one in each.partitions}
        for counts, what in ((lags, "lag"), (records, "records of the last micro-batch")):
            partition = max(counts, key=counts.__getitem__)
            total = sum(counts.values())
            if total >= SKEWED_RECORDS and counts[partition] > SKEWED_SHARE * total:
                place = TopicPartition(each.topic, partition)
                return Skew(place, 100 * counts[partition] // total, what, what == "lag")
    return None


def skewed_partition(status: Status, facts: Facts) -> Finding | None:
    """Return a finding about a partition that has most of the records, with the key that most of them have."""
    skew = find_skew(status, facts)
    if skew is None:
        return None
    topic, partition = skew.partition
    text = (
        f"Partition {partition} of {topic} has {skew.share} % of the {skew.what}. One task reads a partition, so the "
        "other tasks have little to do."
    )
    keys = facts.keys
    if keys is None or keys.partition != skew.partition or keys.count <= SKEWED_KEYS * keys.records:
        advice = "Producers send too many records with one key, or to one partition."
        return Finding("skewed partition", text, [advice], is_problem=skew.is_lag)
    share = f"{100 * keys.count // keys.records} % of its newest {counted(keys.records)}"
    if keys.key is None:
        advice = "Their producer chooses the partition: without a key, it can use all of them."
        return Finding("skewed partition", f"{text} {share} have no key.", [advice], is_problem=skew.is_lag)
    return Finding(
        "skewed key",
        f"{text} {share} have the key {_shown(keys.key)}.",
        ["Producers can add a part to this key, so that its records are in several partitions; then aggregate twice."],
        is_problem=skew.is_lag,
    )


def slow_task(status: Status, facts: Facts) -> Finding | None:
    """Return a finding about a task that ran much longer than the others, with its most frequent key if known."""
    slow = status.slow
    if slow is None or facts.now_ms - slow.at_ms > RECENT_MS:
        return None
    when = "" if status.busy_since_ms is not None else " in an earlier micro-batch"
    text = (
        f"Task {slow.task} of {slow.tasks}, on {slow.host}, ran for {_seconds(slow.running_ms)}{when}; half of the "
        f"others took at most {_seconds(slow.median_ms)}."
    )
    is_problem = slow.running_ms >= PROBLEM_MS or lag_of(status, facts) >= SKEWED_RECORDS
    if slow.reads_inputs:
        text += " It reads records of the inputs: one partition has most of them, or they take long."
    elif not slow.keys:
        text += f" The key of its rows is not known{f': {slow.unknown}' if slow.unknown else ' yet'}."
    else:
        found = max(slow.keys, key=lambda each: each.task_rows)
        text += f" It has {_per_cent(found.task_rows, found.rows)} of {units.plural(found.rows, 'row')} in a sample"
        if found.task_rows * slow.tasks < SKEWED_LOAD * found.rows:
            text += ", which is not too much: its rows or its machine take long."
        elif found.count <= SKEWED_KEYS * found.task_rows:
            text += ", and none of its keys has most of them."
        else:
            key = ", ".join(f"{name} = {value}" for name, value in zip(found.columns, found.values, strict=True))
            return Finding(
                "skewed key",
                f"{text}, and {_per_cent(found.count, found.task_rows)} of these have {key}. The operator "
                f"{found.operator!r} processes a key in one task, so the other tasks have little to do.",
                ["Filter records of this key that have no effect, or add a column to the key that divides it."],
                is_problem=is_problem,
            )
    return Finding("slow task", text, is_problem=is_problem)


def _per_cent(count: int, total: int) -> str:
    return f"{100 * count // total} %"


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.1f} s"


def _shown(key: bytes) -> str:
    text = repr(key.decode("utf-8", "backslashreplace"))
    return text if len(text) <= LONGEST_KEY else f"{text[:LONGEST_KEY]}..."
