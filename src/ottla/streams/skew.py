"""Finds skew: a partition, or a key of an operator with state, that has most of the records. Without I/O or Spark.

One task of Spark reads a partition, and one task processes a key of an operator with state. If most records are in one
of them, the other tasks have little to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.common.ids import TopicPartition
from ottla.streams.facts import Facts, Finding, GroupSample, lag_of, partition_lag
from ottla.streams.facts import records as counted
from ottla.streams.status import Status

SKEWED_SHARE: Final = 0.8
SKEWED_RECORDS: Final = 1_000
SKEWED_KEYS: Final = 0.5
"""A key is a finding if it has more than this share of the newest records."""
LONGEST_KEY: Final = 60


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


def needs_groups(status: Status, facts: Facts) -> bool:
    """Whether a query is behind, and several tasks could share the keys of its operators."""
    partitions = sum(len(each.partitions) for each in status.inputs)
    return bool(status.run.groupings) and partitions > 1 and lag_of(status, facts) >= SKEWED_RECORDS


def skewed_group(status: Status, facts: Facts) -> Finding | None:
    """Return a finding about the key of an operator with state that most of the newest records have."""
    skewed = [each for each in facts.groups if each.count > SKEWED_KEYS * each.records]
    if not skewed or not needs_groups(status, facts):
        return None
    # Operators that combine the rows of a key before they are sent to its task suffer least.
    found = min(skewed, key=lambda each: (each.grouping.is_combined, -each.count / each.records))
    grouping = found.grouping
    text = (
        f"{100 * found.count // found.records} % of the newest {counted(found.records)} of {grouping.topic} have "
        f"{_values(found)}. The operator {grouping.operator!r} processes a key in one task"
    )
    if grouping.is_combined:
        return Finding(
            "skewed key",
            f"{text}, but each task that reads records combines those of a key first, so this is seldom the reason.",
            ["Only values that are collected (collect_list, collect_set) are not combined."],
            is_problem=False,
        )
    return Finding(
        "skewed key",
        f"{text}, so the other tasks have little to do.",
        ["Filter records of this key that have no effect, or add a column to the key that divides it."],
    )


def _values(found: GroupSample) -> str:
    return ", ".join(
        f"{column} = {_cut(value)}" for column, value in zip(found.grouping.columns, found.key, strict=True)
    )


def _shown(key: bytes) -> str:
    return _cut(repr(key.decode("utf-8", "backslashreplace")))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_KEY else f"{text[:LONGEST_KEY]}..."
