"""Kafka's example connectors: FileStreamSource writes the lines of a file to a topic, FileStreamSink does the reverse.

Positions are bytes. Stock counts characters, so that its position is wrong after the first one beyond ASCII.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import stat
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import BinaryIO, ClassVar, Final

from ottla.connect import data
from ottla.connect.api import (
    Config,
    Connector,
    ExactlyOnce,
    Kind,
    SinkTask,
    SinkTaskContext,
    SourceOffset,
    SourceTask,
    SourceTaskContext,
    TopicPartition,
)
from ottla.connect.config.definition import ConfigDef, Importance, Setting, SettingType, non_empty
from ottla.connect.converters.java_text import object_text
from ottla.connect.errors import BadRequestError, ConnectError, RetriableError
from ottla.connect.records import EncodedBatch, PlainRecords, SinkRecord, SourceRecord, valid_text

logger = logging.getLogger(__name__)
_LINE_END: Final = re.compile(rb"\r\n|\r(?!\Z)|\n")
_READ_BYTES: Final = 1 << 17
_WAIT_S: Final = 0.25
LONGEST_LINE: Final = 32 << 20
"""The most bytes of a line without an end that are kept in memory. No broker takes such a record by default."""
LOCK_S: Final = 10.0
_LOCK_PAUSE_S: Final = 0.005


class FileStreamSourceTask(SourceTask):
    """Reads lines that end with LF, CR or CR LF; the last line waits for its end."""

    java_class: ClassVar[str] = "org.apache.kafka.connect.file.FileStreamSourceTask"

    def start(self, context: SourceTaskContext, config: Config) -> None:
        """Read the settings. The file may appear later."""
        values = FileStreamSourceConnector.config_def.parse(config)
        self._context = context
        self._name: str = values["file"] or ""
        self._topic: str = values["topic"]
        self._batch_size: int = values["batch.size"]
        self._partition = {"filename": self._name or None}
        self._file: BinaryIO | None = None if self._name else sys.stdin.buffer
        self._position = 0
        self._rest = b""
        self._lines: list[bytes] = []
        self._ends: list[int] = []
        """The positions after the lines."""
        self._taken = 0
        self._encodes = context.has_plain_text

    def poll(self) -> Sequence[SourceRecord]:
        """Return the next lines, or none after a pause."""
        if self._file is None and not self._open():
            time.sleep(_WAIT_S)
            return ()
        while len(self._lines) - self._taken < self._batch_size and self._read():
            pass
        taken, self._taken = self._taken, min(self._taken + self._batch_size, len(self._lines))
        lines, ends = self._lines[taken : self._taken], self._ends[taken : self._taken]
        if not lines:
            time.sleep(_WAIT_S)
            return ()
        if not self._encodes:
            return list(map(self._record, lines, ends))
        batch = EncodedBatch(self._topic, None, None, None, data.STRING, valid_text(lines))
        return [self._with_offset(batch, ends[-1])]

    def _open(self) -> bool:
        try:
            self._file = open(self._name, "rb", buffering=0)  # noqa: SIM115 - open until `stop`
        except FileNotFoundError:
            self._context.report({"waits for": f"the file {self._name}"})
            return False
        except OSError as error:
            raise ConnectError(f"{self._name} cannot be read: {error}") from error
        offset = self._context.offset(self._partition)
        position = 0 if offset is None else offset.get("position", 0)
        if not isinstance(position, int):
            raise ConnectError(f"The offset position of {self._name} is {position!r}, not an integer")
        self._file.seek(position)
        self._position = position
        return True

    def _read(self) -> bool:
        assert self._file is not None
        more = self._file.read(_READ_BYTES)
        if not more:
            return False
        whole = self._rest + more
        if b"\r" in whole:
            found = list(_LINE_END.finditer(whole))
            ends = [0, *(each.end() for each in found)]
            lines = [whole[start : each.start()] for start, each in zip(ends, found, strict=False)]
            self._rest = whole[ends[-1] :]
        else:
            *lines, self._rest = whole.split(b"\n")
            ends = list(accumulate((len(each) + 1 for each in lines), initial=0))
        if len(self._rest) > LONGEST_LINE:
            raise ConnectError(
                f"{self._name or 'The standard input'} has a line of more than {LONGEST_LINE} bytes at position "
                f"{self._position + ends[-1]}: it has no lines, or is not a text"
            )
        start = self._position
        self._lines = self._lines[self._taken :] + lines
        self._ends = self._ends[self._taken :] + [start + each for each in ends[1:]]
        self._position, self._taken = start + ends[-1], 0
        return True

    def _record(self, line: bytes, end: int) -> SourceRecord:
        text, now_ms = line.decode(errors="replace"), time.time_ns() // 1_000_000
        return self._with_offset(SourceRecord(self._topic, None, None, None, data.STRING, text, now_ms), end)

    def _with_offset(self, record: SourceRecord, end: int) -> SourceRecord:
        record.source_partition = self._partition
        record.source_offset = {"position": end if self._name else None}
        return record

    def stop(self) -> None:
        """Close the file."""
        if self._file is not None and self._name:
            self._file.close()


class FileStreamSourceConnector(Connector):
    """Lines of a file as records."""

    kind: ClassVar[Kind] = Kind.SOURCE
    version: ClassVar[str] = "4.3.0"
    task_class: ClassVar[type[SourceTask | SinkTask]] = FileStreamSourceTask
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            Setting(
                "file",
                SettingType.STRING,
                "Source filename. If not specified, the standard input will be used",
                None,
                Importance.HIGH,
            ),
            Setting(
                "topic",
                SettingType.STRING,
                "The topic to publish data to",
                importance=Importance.HIGH,
                validator=non_empty,
            ),
            Setting(
                "batch.size",
                SettingType.INT,
                "The maximum number of records the source task can read from the file each time it is polled",
                2000,
                Importance.LOW,
            ),
        ]
    )

    @classmethod
    def exactly_once(cls, config: Config) -> ExactlyOnce:
        """A file that is only appended to can be read again; the standard input cannot."""
        return ExactlyOnce.SUPPORTED if config.get("file") else ExactlyOnce.UNSUPPORTED

    @classmethod
    def alter_offsets(cls, config: Config, offsets: Sequence[SourceOffset] | None) -> None:
        """Check positions, in stock's words. Raises BadRequestError."""
        if not config.get("file"):
            raise BadRequestError(
                "Offsets cannot be modified if the 'file' configuration is unspecified. "
                "This is because stdin is used for input and offsets are not tracked."
            )
        for partition, offset in offsets or ():
            if offset is not None:
                _check_offset(partition, offset)


def _check_offset(partition: Mapping[str, object], offset: Mapping[str, object]) -> None:
    if "position" not in offset:
        raise BadRequestError("Offset objects should either be null or contain the key 'position'")
    position = offset["position"]
    if not isinstance(position, int) or isinstance(position, bool):
        raise BadRequestError("The value for the 'position' key in the offset is expected to be a Long value")
    if position < 0:
        raise BadRequestError("The value for the 'position' key in the offset should be a non-negative value")
    if "filename" not in partition:
        raise BadRequestError("Partition objects should contain the key 'filename'")


class FileStreamSinkTask(SinkTask):
    """Appends each value as a line. Lines are on disk before their offsets are committed."""

    java_class: ClassVar[str] = "org.apache.kafka.connect.file.FileStreamSinkTask"

    def start(self, context: SinkTaskContext, config: Config) -> None:
        """Open the file for appending."""
        del context
        name = FileStreamSinkConnector.config_def.parse(config)["file"]
        self._is_file, self._name = bool(name), name or "the standard output"
        self._is_regular = False
        """Whether the file can be cut and synced, unlike a pipe."""
        try:
            # Without a buffer: the rest of a write that failed must not be written by `stop`.
            self._file: BinaryIO = open(name, "ab", buffering=0) if name else sys.stdout.buffer  # noqa: SIM115 - open until `stop`
            if name:
                self._is_regular = stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)
        except OSError as error:
            raise ConnectError(f"Couldn't find or create file '{name}' for FileStreamSinkTask: {error}") from error
        if self._is_regular:
            with self._errors(), _locked(self._file, self._name):
                self._end_half_line()

    def _end_half_line(self) -> None:
        """End a line that kill -9 or a loss of power has cut: its record is written again, as a line of its own."""
        with open(self._name, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            if size and file.read(1) != b"\n":
                self._append(b"\n")

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Write lines, for those who follow the file; `flush` syncs them. Raises ConnectError if there is no space."""
        lines = b"".join([b"%b\n" % each for each in _texts(records)])
        with self._errors():
            if self._is_regular:
                with _locked(self._file, self._name):
                    self._append(lines)
            else:
                _write_all(self._file, lines)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConnectError(f"{self._name} cannot be written: {error.strerror or error}") from error

    def _append(self, lines: bytes) -> None:
        """Write all lines or none: the next line would be glued to a half one after a restart."""
        fd = self._file.fileno()
        size = os.fstat(fd).st_size
        try:
            _write_all(self._file, lines)
        except OSError:
            os.ftruncate(fd, size)
            raise

    def flush(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Sync the lines. Raises ConnectError."""
        if self._is_regular:
            with self._errors():
                os.fsync(self._file.fileno())
        return offsets

    def stop(self) -> None:
        """Close the file."""
        if getattr(self, "_is_file", False) and hasattr(self, "_file"):
            try:
                self._file.close()
            except OSError as error:
                # These lines belong to a put that has failed, too: they are written again.
                logger.warning("Closing %s: %s", self._name, error)


def _write_all(file: BinaryIO, lines: bytes) -> None:
    rest = memoryview(lines)
    while rest:
        rest = rest[file.write(rest) :]
    file.flush()


@contextmanager
def _locked(file: BinaryIO, name: str) -> Iterator[None]:
    """Lock a file, which the tasks of a connector share: a failed write must not cut the lines of another task."""
    deadline = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                raise RetriableError(f"{name} is locked by another process since {LOCK_S:.0f} s") from error
            time.sleep(_LOCK_PAUSE_S)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _texts(records: Sequence[SinkRecord]) -> Sequence[bytes]:
    values = records.valid_values() if isinstance(records, PlainRecords) else None
    if values is None:
        return [object_text(each.value, each.value_schema).encode() for each in records]
    return [b"null" if each is None else each for each in values]


class FileStreamSinkConnector(Connector):
    """Values of records as lines of a file."""

    kind: ClassVar[Kind] = Kind.SINK
    version: ClassVar[str] = "4.3.0"
    task_class: ClassVar[type[SourceTask | SinkTask]] = FileStreamSinkTask
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            Setting(
                "file",
                SettingType.STRING,
                "Destination filename. If not specified, the standard output will be used",
                None,
                Importance.HIGH,
            )
        ]
    )
