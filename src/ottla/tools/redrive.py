"""Redriving: reads dead letters once, and sends them to their topics in transactions.

A transaction has the records of up to `LETTERS` letters, and the offsets of the group that knows which letters were
redriven (`redriven_offsets`). A redrive that is killed at any time continues where its last transaction ended. The
transactional id is the group's name, so a second redrive with the same group fences the first one.

The caller uses them in this order: `Producer.init_transactions`, `read_redriven`, `Redrive.take` for the records in the
order of their offsets, `Redrive.finish`.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from ottla import clients
from ottla.clients import OffsetAndMetadata
from ottla.clients import admin as api
from ottla.clients.errors import ClientError, TransactionFailed
from ottla.common import units
from ottla.common.failure import Failure
from ottla.common.ids import TopicPartition
from ottla.tools.dead_letters import DeadLetter, Left, Plan, Redriven, decide, read_letter
from ottla.tools.follow import Stopping
from ottla.tools.progress import Progress
from ottla.tools.redriven_offsets import NotARedrive, RedrivenOffsets, TooManyRanges

LETTERS: Final = 500
"""The most letters in a transaction."""
BYTES: Final = 8 << 20
"""A transaction ends with the letter that exceeds this size."""
ACKNOWLEDGED_S: Final = 60.0
EDIT_S: Final = 60.0
_ABORTED: Final = "Its transaction was aborted; the letters of earlier transactions are redriven."


class Filter(NamedTuple):
    """The letters that are chosen: by a text of the reason, and by the original topic."""

    reason: str | None = None
    origin: str | None = None

    def accepts(self, letter: DeadLetter) -> bool:
        """Whether a letter is chosen."""
        return (self.reason is None or letter.mentions(self.reason)) and self.origin in (None, letter.topic)


Edit = Callable[[bytes], "bytes | None"]


class Rules(NamedTuple):
    """The treatment of each letter. `edit` returns the new value, None if it failed; `limit` ends the run."""

    chosen: Filter
    plan: Plan
    partitions: Mapping[str, int]
    edit: Edit | None = None
    limit: int | None = None


class Counts:
    """The letters of a run: redriven by topic, left by reason, not chosen by the filter, and redriven before."""

    def __init__(self) -> None:
        self.redriven: Counter[str] = Counter()
        self.left: Counter[Left] = Counter()
        self.not_chosen = 0
        self.before = 0

    @property
    def total(self) -> int:
        """The number of redriven letters."""
        return self.redriven.total()


class Redrive:
    """One run. Without a producer it only counts what a run would do."""

    def __init__(
        self,
        producer: clients.Producer | None,
        group: str,
        redriven: dict[TopicPartition, RedrivenOffsets],
        rules: Rules,
        stopping: Stopping,
        bar: Progress,
    ) -> None:
        self._producer = producer
        self._group = group
        self._redriven = redriven
        self._rules = rules
        self._stopping = stopping
        self._bar = bar
        self._next = {tp: offsets.position for tp, offsets in redriven.items()}
        self._changed: set[TopicPartition] = set()
        self.counts = Counts()
        self.is_full = rules.limit == 0

    def start_at(self, first: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offsets to read from, for the `first` wanted ones: letters that were redriven are skipped."""
        starts = {tp: max(offset, self._redriven[tp].position) for tp, offset in first.items()}
        self._next.update(starts)
        return starts

    def take(self, records: Sequence[clients.Record]) -> None:
        """Redrive the records of a poll: a sink of a Follower. Ends early after an interrupt and at the limit."""
        position = 0
        while position < len(records) and not (self.is_full or self._stopping.asked):
            position = self._take_some(records, position)
        if self.is_full:
            self._stopping.asked = True

    def finish(self, ends: Mapping[TopicPartition, int]) -> None:
        """Commit that there is no letter after the last ones, up to `ends`, unless the run ended early."""
        if self.is_full or self._stopping.asked:
            return
        for tp, end in ends.items():
            self._pass(tp, end)
        if self._changed:
            self._write([])

    def _take_some(self, records: Sequence[clients.Record], position: int) -> int:
        """Redrive letters in one transaction; returns the position of the next record."""
        batch: list[tuple[clients.Record, Redriven]] = []
        size = 0
        while position < len(records) and len(batch) < LETTERS and size < BYTES and not self._stopping.asked:
            record = records[position]
            position += 1
            self._pass(record.topic_partition, record.offset)
            self._next[record.topic_partition] = record.offset + 1
            new = self._decide(record)
            if new is not None:
                batch.append((record, new))
                size += len(new.key or b"") + len(new.value or b"")
            self.is_full = self._rules.limit is not None and self.counts.total + len(batch) >= self._rules.limit
            if self.is_full:
                break
        if batch:
            for record, _ in batch:
                self._add(record.topic_partition, record.offset, record.offset + 1)
            self._write(batch)
            self.counts.redriven.update(new.topic for _, new in batch)
        self._bar.advance(0)
        return position

    def _decide(self, record: clients.Record) -> Redriven | None:
        """Return the record to send; counts a letter that is not redriven."""
        if record.offset in self._redriven[record.topic_partition]:
            self.counts.before += 1
            return None
        letter = read_letter(record.headers)
        if not self._rules.chosen.accepts(letter):
            self.counts.not_chosen += 1
            return None
        new = decide(record, letter, self._rules.plan, self._rules.partitions)
        if isinstance(new, Redriven) and self._rules.edit is not None and new.value is not None:
            edited = self._rules.edit(new.value)
            new = Left.EDIT if edited is None else new._replace(value=edited)
        if isinstance(new, Left):
            self.counts.left[new] += 1
            return None
        return new

    def _pass(self, tp: TopicPartition, offset: int) -> None:
        """Note that there is no letter between the last record that was read and `offset`."""
        self._add(tp, self._next[tp], offset)

    def _add(self, tp: TopicPartition, start: int, end: int) -> None:
        if start < end:
            self._redriven[tp].add(start, end)
            self._changed.add(tp)

    def _write(self, batch: Sequence[tuple[clients.Record, Redriven]]) -> None:
        """Send the records and commit the offsets in one transaction."""
        offsets = {tp: self._to_commit(tp) for tp in self._changed}
        if self._producer is not None:
            with self._naming_group(), self._producer.transaction():
                self._send(self._producer, batch)
                self._producer.send_offsets_to_transaction(offsets, self._group)
        self._changed.clear()
        self._bar.advance(len(batch))

    @contextmanager
    def _naming_group(self) -> Iterator[None]:
        """Raise Failure for a transaction that failed and was aborted, for example without a right to the group."""
        try:
            yield
        except TransactionFailed as error:
            text = " ".join(str(error.__cause__ or error).split())
            raise Failure(
                f"the redriven letters cannot be remembered by group {self._group}: {text}", _ABORTED
            ) from error

    def _to_commit(self, tp: TopicPartition) -> OffsetAndMetadata:
        try:
            return OffsetAndMetadata(self._redriven[tp].position, -1, self._redriven[tp].metadata())
        except TooManyRanges as error:
            raise Failure(
                f"group {self._group} cannot remember {error} of {tp}: its commit would exceed 4,096 bytes",
                "The letters of earlier transactions are redriven. Redrive the oldest letters with any reason first: "
                "--until OFFSET without --reason and --origin.",
            ) from None

    def _send(self, producer: clients.Producer, batch: Sequence[tuple[clients.Record, Redriven]]) -> None:
        """Send the records and wait for their acknowledgements. Raises Failure for a record that is refused."""
        sent = []
        for record, new in batch:
            with _naming(record, new):
                delivery = producer.send(
                    new.topic,
                    new.value,
                    new.key,
                    partition=new.partition,
                    timestamp_ms=new.timestamp_ms,
                    headers=new.headers,
                    callback=_ignore,
                )
            sent.append((record, new, delivery))
        for record, new, delivery in sent:
            with _naming(record, new):
                delivery.result(ACKNOWLEDGED_S)


def _ignore(_delivery: object) -> None:
    """Keep the producer from logging the failures after the first one, which ends the redrive."""


@contextmanager
def _naming(record: clients.Record, new: Redriven) -> Iterator[None]:
    """Raise Failure with the letter's place for an error of its record."""
    try:
        yield
    except ClientError as error:
        text = " ".join(str(error).split())
        raise Failure(
            f"letter {record.topic_partition}@{record.offset} cannot be written to {new.topic}: {text}",
            _ABORTED,
        ) from error


def read_redriven(
    admin: api.Admin, group: str, partitions: Sequence[TopicPartition], *, stable: bool
) -> dict[TopicPartition, RedrivenOffsets]:
    """Return the redriven offsets of each partition. `stable` waits for the end of transactions that commit them.

    Raises Failure if another program commits to the group.
    """
    committed = admin.list_group_offsets(group, partitions, require_stable=stable)
    found = {}
    for tp in partitions:
        row = committed.get(tp)
        try:
            found[tp] = RedrivenOffsets(0) if row is None else RedrivenOffsets(row.offset, row.metadata)
        except NotARedrive:
            raise Failure(
                f"group {group} is not the group of a redrive: another program committed its offset of {tp}",
                "--group NAME names another group.",
            ) from None
    return found


def edit_with(command: str) -> Edit:
    """Return an edit that pipes a value through a shell command; None if it fails or takes longer than a minute.

    A line break that ends the output, but not the value, is removed: most filters of text add one.
    """

    def edit(value: bytes) -> bytes | None:
        try:
            # Ctrl-C must end the redrive after this letter, and not the command.
            done = subprocess.run(  # noqa: S603 - the user wrote the command
                ["/bin/sh", "-c", command],
                input=value,
                stdout=subprocess.PIPE,
                timeout=EDIT_S,
                check=False,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            return None
        if done.returncode != 0:
            return None
        return done.stdout.removesuffix(b"\n") if not value.endswith(b"\n") else done.stdout

    return edit


def summary(counts: Counts, *, dry_run: bool) -> str:
    """Return the line at the end of a run."""
    done = f"{'would redrive' if dry_run else 'redriven'} {units.plural(counts.total, 'letter')}"
    parts = [f"left {left:,} {why.value}" for why, left in counts.left.items()]
    parts += [f"{counts.before:,} redriven before"] if counts.before else []
    parts += [f"{counts.not_chosen:,} not chosen"] if counts.not_chosen else []
    return ", ".join([done, *parts])
