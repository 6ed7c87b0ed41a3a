"""The sink: each partition of a topic as a chain of files, exactly once.

A file has the records from the end of the previous file up to its own end. The small file `_ottla/TOPIC+PARTITION.json`
has the end of the chain: first and next offset, and the name of the last file. A file is completed in two steps:

1. Extend the chain by compare-and-swap (locally under a lock, in S3 by a conditional put). If it has another version,
   another task has extended the chain: the buffered records are dropped, and the task starts again behind that file.
2. Write the file under its name, completely or not at all (temporary name, fsync and rename; or one put).

After a kill between the steps, the chain names a file that does not exist: the task writes exactly its offsets first.
So a delayed task can do no damage: it writes the file of a link once more with the same records, or nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import orjson

from ottla import __version__
from ottla.connect import data
from ottla.connect.api import Config, Connector, Kind, SinkTask, SinkTaskContext, TopicPartition
from ottla.connect.connectors.files.encoders import Encoder, encoder_of, suffix_of
from ottla.connect.connectors.files.settings import SINK
from ottla.connect.connectors.files.storage import Storage, storage_of
from ottla.connect.data import Schema
from ottla.connect.errors import ConnectError, DataError, RetriableError
from ottla.connect.records import PlainRecords, SinkRecord

CHAINS: Final = "_ottla"
Directory = tuple[str, str]
"""The topic and the time of a file, as names of directories."""


@dataclass(frozen=True)
class Link:
    """The last file of a chain: offsets from `first` up to, without, `next`."""

    first: int
    next: int
    file: str
    """The key of the file; empty if all its records were rejected."""


@dataclass
class _Chain:
    """A partition: the end of its chain, and the file that is being filled."""

    version: Any = None
    link: Link | None = None
    start: int = -1
    """The offset at which this task began; -1: the committed one of the consumer group."""
    next: int | None = None
    """The next offset to accept; None: any."""
    is_lost: bool = False
    """Whether another task has extended the chain."""
    repeated: Link | None = None
    """A link whose file must be written first, after a kill."""
    first: int = 0
    encoder: Encoder | None = None
    directory: Directory = ("", "")
    schema: Schema | None = None
    records: int = 0
    opened_at: float = 0.0
    written: tuple[Link, bytes] | None = None
    """A file whose link is in the chain, and that is not written yet."""


class FilesSinkTask(SinkTask):
    """Writes files for its partitions."""

    clock: Callable[[], float] = staticmethod(time.monotonic)

    def start(self, context: SinkTaskContext, config: Config) -> None:
        """Read the settings."""
        self._context = context
        values = self._values = SINK.parse(config)
        self._storage: Storage = storage_of(values["path"].rstrip("/"), values)
        self._suffix = suffix_of(values)
        self._chains: dict[TopicPartition, _Chain] = {}
        self._files = 0

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        """Continue each partition after its last file."""
        for tp in partitions:
            chain = self._chains[tp] = self._loaded(tp)
            if chain.next is not None:
                self._context.seek({tp: chain.next})

    def _loaded(self, tp: TopicPartition) -> _Chain:
        found = self._storage.versioned(_chain_key(tp))
        if found is None:
            return _Chain()
        contents, version = found
        link = Link(**orjson.loads(contents))
        if link.file and self._storage.entry(link.file) is None:
            return _Chain(version, link, link.first, link.first, repeated=link)
        return _Chain(version, link, link.next, link.next)

    # -- records -----------------------------------------------------------------------------------------------------

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Add records to files, and complete files that are full. Records that were added before are skipped."""
        parts = records.by_partition() if isinstance(records, PlainRecords) else (records,)
        for each in parts:
            if not (isinstance(each, PlainRecords) and self._add_together(each)):
                self._add_each(each)
        self._limit_memory()

    def _add_together(self, records: PlainRecords) -> bool:
        """Add the records of one partition to its open file, if they all belong there. False: nothing was done."""
        first, last = records.raw[0], records.raw[-1]
        tp = TopicPartition(first.topic, first.partition)
        chain, values = self._chains[tp], self._values
        if chain.encoder is None or chain.repeated is not None or chain.next is None or first.offset < chain.next:
            return False
        if chain.directory != (tp.topic, "") or chain.records + len(records) > values["flush.size"]:
            return False
        schema = data.OPTIONAL_STRING if records.is_text else data.OPTIONAL_BYTES
        has_nulls = any(each.value is None for each in records.raw)
        if has_nulls or chain.schema != schema or not chain.encoder.add_plain(records):
            return False
        chain.records += len(records)
        chain.next = last.offset + 1
        if self._is_full(chain):
            self._complete(tp, chain)
        return True

    def _add_each(self, records: Sequence[SinkRecord]) -> None:
        for record in records:
            tp = TopicPartition(record.original_topic, record.original_partition)
            chain = self._chains[tp]
            if chain.is_lost:
                continue
            if chain.next is None or record.original_offset >= chain.next:
                self._add(tp, chain, record)
            elif record.original_offset < chain.start:
                raise ConnectError(
                    f"{tp.topic}-{tp.partition} delivers offset {record.original_offset}, but its files in "
                    f"{self._storage.root} end at {chain.start}. Was the topic recreated? To write its records, "
                    f"choose another path or delete {_chain_key(tp)}."
                )

    def _add(self, tp: TopicPartition, chain: _Chain, record: SinkRecord) -> None:
        offset = record.original_offset
        if chain.repeated is not None and offset >= chain.repeated.next:
            self._complete(tp, chain)
        if record.value is None and self._values["behavior.on.null.values"] == "ignore":
            chain.next = offset + 1
            return
        directory = self._directory(record)
        is_other = (chain.directory, chain.schema) != (directory, record.value_schema)
        if chain.encoder is not None and chain.repeated is None and is_other and not self._complete(tp, chain):
            return
        if chain.encoder is None:
            chain.first = offset if chain.repeated is None else chain.repeated.first
            chain.directory, chain.schema = directory, record.value_schema
            chain.encoder = encoder_of(self._values, record.value_schema, self._context.reject)
            chain.records, chain.opened_at = 0, self.clock()
        if record.value is None:
            place = f"{tp.topic}-{tp.partition} offset {offset}"
            self._context.reject(record, DataError(f"The record {place} has no value (behavior.on.null.values=fail)"))
        else:
            chain.encoder.add(record)
        chain.records += 1
        chain.next = offset + 1
        if self._is_full(chain):
            self._complete(tp, chain)

    def _is_full(self, chain: _Chain) -> bool:
        if chain.encoder is None:
            return False
        if chain.repeated is not None:
            return chain.next == chain.repeated.next
        values = self._values
        return bool(chain.records >= values["flush.size"] or chain.encoder.size >= values["rotate.bytes"])

    def _directory(self, record: SinkRecord) -> Directory:
        pattern = self._values["partition.by.time"]
        if not pattern:
            return record.topic, ""
        at = datetime.fromtimestamp((record.timestamp or 0) / 1000, UTC)
        return record.topic, at.strftime(pattern)

    def _limit_memory(self) -> None:
        """Complete the largest files until the rest fits the memory."""
        open_files = sorted(
            (each for each in self._chains.items() if each[1].encoder is not None and each[1].repeated is None),
            key=lambda each: each[1].encoder.size if each[1].encoder else 0,
        )
        total = sum(chain.encoder.size for _, chain in open_files if chain.encoder)
        while open_files and total > self._values["buffer.bytes"]:
            tp, chain = open_files.pop()
            total -= chain.encoder.size if chain.encoder else 0
            self._complete(tp, chain)

    # -- files -------------------------------------------------------------------------------------------------------

    def _complete(self, tp: TopicPartition, chain: _Chain) -> bool:
        """Extend the chain and write the file. Returns False if another task has extended the chain."""
        if chain.encoder is None:  # the records of a repeated link were deleted from the topic
            chain.repeated = None
            return True
        assert chain.next is not None
        contents = chain.encoder.contents()
        link = chain.repeated or Link(chain.first, chain.next, self._name(tp, chain) if contents else "")
        if chain.repeated is None and not self._extended(tp, chain, link):
            chain.is_lost, chain.encoder = True, None
            return False
        chain.encoder, chain.link, chain.repeated = None, link, None
        chain.next = max(chain.next, link.next)
        if link.file and contents:
            chain.written = link, contents
        self._write(chain)
        return True

    def _write(self, chain: _Chain) -> None:
        """Write the file of the last link, if that has not succeeded yet."""
        if chain.written is not None:
            link, contents = chain.written
            self._storage.write(link.file, contents)
            chain.written = None
            self._files += 1
            self._context.report({"files": self._files, "last file": link.file})

    def _extended(self, tp: TopicPartition, chain: _Chain, link: Link) -> bool:
        """Write the link if the chain has not changed. After an unknown outcome, the stored link decides."""
        self._write(chain)
        key, contents = _chain_key(tp), orjson.dumps(link.__dict__)
        try:
            self._storage.replace(key, contents, chain.version)
        except RetriableError:
            found = self._storage.versioned(key)
            if found is None or found[0] != contents:
                raise
        # The same link from another task means the same file: both may write it.
        found = self._storage.versioned(key)
        if found is None or found[0] != contents:
            return False
        chain.version = found[1]
        return True

    def _name(self, tp: TopicPartition, chain: _Chain) -> str:
        assert chain.next is not None
        topic, at = chain.directory
        name = f"{tp.topic}+{tp.partition}+{chain.first:020}+{chain.next - 1:020}{self._suffix}"
        return "/".join(part for part in (quote(topic), f"partition={tp.partition}", at, quote(name, safe="+")) if part)

    # -- offsets -----------------------------------------------------------------------------------------------------

    def flush(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Complete files that are old enough; return the offsets up to which all files are durable."""
        durable: dict[TopicPartition, int] = {}
        for tp, offset in offsets.items():
            chain = self._chains.get(tp)
            if chain is None:
                continue
            old = self.clock() - chain.opened_at >= self._values["rotate.interval.ms"] / 1000
            if chain.encoder is not None and chain.repeated is None and old:
                self._complete(tp, chain)
            if chain.is_lost:
                raise RetriableError(
                    f"Another task has written files of {tp.topic}-{tp.partition}; this one starts again behind them"
                )
            self._write(chain)
            if chain.encoder is not None:
                durable[tp] = chain.first
            elif chain.repeated is not None:
                durable[tp] = chain.repeated.first
            else:
                durable[tp] = offset if chain.next is None else min(offset, chain.next)
        return durable

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        """Drop files that are not complete: their offsets are not committed."""
        for tp in partitions:
            self._chains.pop(tp, None)

    def stop(self) -> None:
        """Drop files that are not complete."""
        self._chains = {}


def _chain_key(tp: TopicPartition) -> str:
    return f"{CHAINS}/{quote(tp.topic)}+{tp.partition}.json"


class FilesSinkConnector(Connector):
    """Topics as files of a directory, local or in S3."""

    kind = Kind.SINK
    version = __version__
    config_def = SINK
    task_class = FilesSinkTask

    @classmethod
    def problems(cls, config: Config) -> Mapping[str, Sequence[str]]:
        """Check that the format has the compression."""
        values = SINK.parse(config)
        known = ("default", "none", "gzip") if values["format"] == "jsonl" else ("default", "none", "zstd", "snappy")
        if values["compression"] not in known:
            return {"compression": [f"{values['format']} files have the compressions {', '.join(known)}"]}
        return {}
