"""The state of a mirror from the reports of all brokers: what is ready, and why something is not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ottla.common import units
from ottla.metadata.mirrors import is_read_only_state

UNKNOWN: Final = -1
STALE_MS: Final = 30_000


class Finding(NamedTuple):
    """Why a mirror makes no progress, and what to do."""

    subject: str
    text: str
    next_step: str


class MirrorReport(NamedTuple):
    """A mirror: the rows of its partitions by topic and partition, and problems."""

    partitions: list[dict[str, Any]]
    problems: dict[int, str]
    """Of the connection to the source, by broker."""
    topics: dict[str, str]
    groups: dict[str, str]
    acls: dict[int, str]
    """Why access rules are not copied, by broker."""
    groups_age_ms: int
    """How long ago the slowest broker had copied the offsets of its groups; -1 if one of them has not yet."""
    throttling: Mapping[int, Mapping[str, Any]] = MappingProxyType({})
    """The limit of each broker that has one, its rate, and whether it delays fetches."""

    @classmethod
    def of(cls, statuses: Mapping[int, Mapping[str, Any]]) -> MirrorReport:
        """Combine the reports of the brokers."""
        rows = [{**row, "leader": node} for node, each in statuses.items() for row in each["partitions"]]
        ages = [each.get("groups_age_ms", UNKNOWN) for each in statuses.values()]
        return cls(
            sorted(rows, key=lambda row: (row["topic"], row["partition"])),
            {node: each["problem"] for node, each in statuses.items() if each.get("problem")},
            {name: text for each in statuses.values() for name, text in each["topics"].items()},
            {name: text for each in statuses.values() for name, text in each.get("group_errors", {}).items()},
            {node: each["acls"] for node, each in statuses.items() if each.get("acls")},
            UNKNOWN if UNKNOWN in ages else max(ages, default=UNKNOWN),
            {node: each["throttling"] for node, each in statuses.items() if each.get("throttling")},
        )


def behind(rows: Iterable[Mapping[str, Any]], since_ms: int) -> list[Mapping[str, Any]]:
    """The partitions without all records of an answer of the source that is younger than `since_ms`.

    They must be committed: the next leader does not copy any more, and may lack the last records of this one.
    """

    def is_behind(row: Mapping[str, Any]) -> bool:
        is_complete = row["lag"] == 0 and row["committed"] == row["end"] and not row["problem"]
        return not is_complete or not 0 <= row.get("age_ms", UNKNOWN) <= since_ms

    return [row for row in rows if is_behind(row)]


def unready(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The partitions whose copy has not ended: with producers of the source, or uncommitted markers."""
    return [row for row in rows if row["state"] != "STOPPING" or row["producers"] or row["committed"] != row["end"]]


def named(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of partitions."""
    return [f"{row['topic']}-{row['partition']}" for row in rows]


def unreported(partitions: Iterable[tuple[str, int]], rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of partitions that no broker reports: they have no leader, or it has not followed yet."""
    seen = {(row["topic"], row["partition"]) for row in rows}
    return [f"{topic}-{index}" for topic, index in partitions if (topic, index) not in seen]


def losses(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The records that an unplanned promotion loses: by partition, and together for those that had all records."""
    found, complete = [], []
    for row in rows:
        if row["lag"] or row.get("age_ms", UNKNOWN) < 0:
            found.append((f"{row['topic']}-{row['partition']}", _missing_records(row)))
        else:
            complete.append(row)
    if complete:
        age_ms = max(row["age_ms"] for row in complete)
        count = f"{len(complete)} {'other partitions' if found else 'partitions'}"
        found.append((count, f"no records were missing {age_ms / 1000:.1f} s ago; later ones are missing"))
    return found


def _missing_records(row: Mapping[str, Any]) -> str:
    age_ms = row.get("age_ms", UNKNOWN)
    if row["lag"] < 0 or age_ms < 0:
        return "the source has not answered this leader, so that the number of missing records is unknown"
    return f"{row['lag']} records are missing, and all of the last {age_ms / 1000:.1f} s"


def explain(report: MirrorReport, mirror: str) -> list[Finding]:
    """Return why the mirror of this name makes no progress; empty if it does."""
    found = [
        Finding(f"broker {node}", text, "Check bootstrap.servers, the security settings, and the rights at the source")
        for node, text in report.problems.items()
    ]
    found += [
        Finding(f"topic {name}", text, "See `ottla mirror status`; a topic that is not wanted: change --topics")
        for name, text in report.topics.items()
    ]
    found += [
        Finding(
            f"group {name}",
            f"its offsets are not accepted: {text}",
            "A group with members here is active here: its offsets are its own",
        )
        for name, text in report.groups.items()
    ]
    found += [
        Finding("access rules", text, "The copy needs DESCRIBE on the source's cluster; it is retried every minute")
        for text in report.acls.values()
    ]
    found += _throttled(report, mirror)
    found += _paused(report, mirror)
    found += _waiting_for_failback(report, mirror)
    for row in report.partitions:
        subject = f"{row['topic']}-{row['partition']}"
        if row["problem"]:
            found.append(Finding(subject, f"{row['state']}: {row['problem']}", "It is retried"))
        elif row["state"] == "MIRRORING" and row.get("age_ms", UNKNOWN) > STALE_MS:
            age_s = row["age_ms"] // 1000
            found.append(Finding(subject, f"the source has not answered for {age_s} s", "Check the link to the source"))
        if row.get("truncated"):
            text = f"{row['truncated']} records were dropped, because the source had lost them"
            found.append(Finding(subject, text, "Look for an unclean election at the source"))
        if row.get("skipped"):
            text = f"{row['skipped']} offsets were skipped: the source had deleted them before they were copied"
            found.append(Finding(subject, text, "Raise the retention of the source"))
    return found


def _throttled(report: MirrorReport, mirror: str) -> Iterator[Finding]:
    """The brokers whose limit is a cause of their lag."""
    for node, each in report.throttling.items():
        missing = sum(max(row["lag"], 0) for row in report.partitions if row.get("leader") == node)
        if each["is_delaying"] and missing:
            yield Finding(
                f"broker {node}",
                f"{missing} records behind, throttled: it fetches {units.size(each['rate'])}/s of at most "
                f"{units.size(each['limit'])}/s",
                f"`ottla mirror alter {mirror} --throttle RATE` raises the limit of each broker, "
                "`--throttle none` removes it",
            )


def _paused(report: MirrorReport, mirror: str) -> Iterator[Finding]:
    """The state of a mirror that was paused."""
    count = sum(row["state"] == "PAUSED" for row in report.partitions)
    if count:
        text = f"it is paused, and copies nothing into {count} partitions"
        yield Finding(f"mirror {mirror}", text, f"`ottla mirror resume {mirror}`")


def _waiting_for_failback(report: MirrorReport, mirror: str) -> Iterator[Finding]:
    """The topics that are read-only here and not copied yet."""
    for topic in dict.fromkeys(row["topic"] for row in report.partitions if row["state"] == "FAILBACK"):
        yield Finding(
            f"topic {topic}",
            "FAILBACK: it is read-only, and waits until the source has the same topic, open for writes",
            f"Promote it at the source, or open it here: `ottla mirror failback {mirror} {topic} --cancel`",
        )


class FailbackTopic(NamedTuple):
    """A topic of one cluster, as a failback compares it."""

    topic_id: str
    partitions: int
    state: str


def failback_problem(name: str, ours: FailbackTopic, source: FailbackTopic | None) -> tuple[str, str] | None:
    """Why a topic would wait for ever in FAILBACK, and the next step; None if it would not. `name` is the source's."""
    if source is None:
        return f"the source has no topic {name!r}", "Check --source-prefix and the rights at the source."
    if source.topic_id != ours.topic_id:
        return (
            f"topic {name!r} of the source is not a copy of it, since it has another id",
            "Copy the topic to the source first, with a mirror there.",
        )
    if is_read_only_state(source.state):
        return (
            f"topic {name!r} of the source is {source.state}, and so read-only too",
            "Promote it at the source first: `ottla mirror promote`.",
        )
    if source.partitions < ours.partitions:
        return (
            f"topic {name!r} of the source has {source.partitions} partitions, fewer than {ours.partitions} here",
            "Add the partitions at the source first: `ottla topic alter`.",
        )
    return None
