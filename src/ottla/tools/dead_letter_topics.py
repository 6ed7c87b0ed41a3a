"""Finds the topics of a cluster that have dead letters, and what their letters say.

A topic has dead letters if it is named so, if a setting names it, or if its last records have the headers of dead
letters. The reading is bounded: a few records of at most `MOST_TOPICS` topics, and a sample of each topic found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla import clients
from ottla.clients import TopicPartition
from ottla.clients import admin as api
from ottla.clients.errors import NotAuthorized
from ottla.tools.dead_letters import DeadLetter, is_name_of_dead_letters, read_letter
from ottla.tools.follow import Follower, Limits, Stopping

MOST_TOPICS: Final = 1000
"""The most topics whose last records are read only to find dead letters."""
_LAST: Final = 3
_FIRST: Final = 5
# Settings of topics: the first names another topic, the second allows share groups to write here (KIP-1191).
_NAMES_A_TOPIC: Final = "ottla.schema.validation.dlq.topic"
_ALLOWS_GROUPS: Final = "errors.deadletterqueue.group.enable"


class DeadLetterTopic(NamedTuple):
    """One topic. `letters` counts offsets. The times, writers and reasons are of the first and last records."""

    name: str
    letters: int
    oldest_ms: int | None = None
    newest_ms: int | None = None
    writers: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    sampled: int = 0


class Spans(NamedTuple):
    """The first offset and the end of each partition."""

    first: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]

    def of(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic that have offsets."""
        return [tp for tp in self.end if tp.topic == topic and self.end[tp] > self.first[tp]]


class Finder:
    """One search. `warn` receives a line for each topic that this user may not read."""

    def __init__(self, admin: api.Admin, consumer: clients.Consumer, warn: Callable[[str], object]) -> None:
        self._admin = admin
        self._consumer = consumer
        self._warn = warn

    def find(self, sample: int, stopping: Stopping) -> list[DeadLetterTopic]:
        """Return the topics with dead letters, by name; `sample` is the number of letters that are read of each."""
        counts = {topic.name: topic.partitions for topic in self._admin.list_topics()}
        named = {name for name in counts if is_name_of_dead_letters(name)} | (self._of_settings(counts) & counts.keys())
        others = [name for name in counts if name not in named]
        if len(others) > MOST_TOPICS:
            self._warn(f"only {MOST_TOPICS:,} of {len(others):,} topics were searched for the headers of dead letters")
        searched = others[:MOST_TOPICS]
        spans = self._spans({name: counts[name] for name in (*named, *searched)})
        found = named | self._by_headers(searched, spans, stopping)
        return [self._describe(name, spans, sample, stopping) for name in sorted(found) if not stopping.asked]

    def _spans(self, counts: Mapping[str, int]) -> Spans:
        tps = [TopicPartition(name, partition) for name, count in counts.items() for partition in range(count)]
        if not tps:
            return Spans({}, {})
        return Spans(self._consumer.beginning_offsets(tps), self._consumer.end_offsets(tps))

    def _of_settings(self, names: Iterable[str]) -> set[str]:
        resources = [api.ConfigResource.topic(name) for name in names]
        if not resources:
            return set()
        try:
            settings = self._admin.describe_configs(resources, names=(_NAMES_A_TOPIC, _ALLOWS_GROUPS))
        except api.PartialFailure as error:
            settings = dict(error.results)
            self._warn(
                f"the settings of {len(error.errors):,} topics cannot be read: {next(iter(error.errors.values()))}"
            )
        found = set()
        for resource, entries in settings.items():
            if (entry := entries.get(_NAMES_A_TOPIC)) is not None and entry.value:
                found.add(entry.value)
            if (entry := entries.get(_ALLOWS_GROUPS)) is not None and entry.value == "true":
                found.add(resource.name)
        return found

    def _by_headers(self, names: Sequence[str], spans: Spans, stopping: Stopping) -> set[str]:
        """Return the topics whose last records are dead letters."""
        wanted = {}
        for name in names:
            partitions = spans.of(name)
            if partitions:
                fullest = max(partitions, key=lambda tp: spans.end[tp] - spans.first[tp])
                wanted[fullest] = max(spans.first[fullest], spans.end[fullest] - _LAST)
        records = self._read(wanted, spans.end, stopping, "topics")
        return {record.topic for record in records if read_letter(record.headers).writer}

    def _describe(self, name: str, spans: Spans, sample: int, stopping: Stopping) -> DeadLetterTopic:
        partitions = spans.of(name)
        letters = sum(spans.end[tp] - spans.first[tp] for tp in partitions)
        if not partitions:
            return DeadLetterTopic(name, letters)
        each = max(1, sample // len(partitions))
        first_ends = {tp: min(spans.first[tp] + _FIRST, spans.end[tp]) for tp in partitions}
        first = self._read({tp: spans.first[tp] for tp in partitions}, first_ends, stopping, name)
        starts = {tp: max(spans.first[tp], spans.end[tp] - each) for tp in partitions}
        last = self._read(starts, {tp: spans.end[tp] for tp in partitions}, stopping, name)
        times = [record.timestamp for record in (*first, *last)]
        read = [read_letter(record.headers) for record in last]
        return DeadLetterTopic(
            name,
            letters,
            min(times, default=None),
            max(times, default=None),
            Counter(letter.writer for letter in read if letter.writer),
            Counter(map(_short_reason, read)),
            len(read),
        )

    def _read(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], stopping: Stopping, what: str
    ) -> list[clients.Record]:
        """Return the records between offsets; those read so far if this user may not read a topic."""
        records: list[clients.Record] = []
        if not starts:
            return records
        limits = Limits(ends={tp: ends[tp] for tp in starts})
        try:
            Follower(self._consumer, records.extend, limits, stopping).run(starts)
        except NotAuthorized as error:
            self._warn(f"{what}: {' '.join(str(error).split())}")
        return records


def _short_reason(letter: DeadLetter) -> str:
    """Return the class of the exception, or the message of a writer that has none: letters of one kind share it."""
    return letter.exception.rpartition(".")[2] or letter.message or letter.stage or "unknown"
