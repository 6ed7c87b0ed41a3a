"""The source: files of a directory as records.

An offset has the file, the position after the record and a fingerprint of the file's beginning: another file under an
old name is read from its beginning. A finished file is moved or deleted after its last record is committed, never
before; after a kill between commit and deletion, the committed offset says that the file is finished.
"""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ottla import __version__
from ottla.connect.api import (
    Config,
    Connector,
    ExactlyOnce,
    Kind,
    SourceOffset,
    SourceTask,
    SourceTaskContext,
)
from ottla.connect.connectors.files.readers import Reader, Row, reader_of
from ottla.connect.connectors.files.settings import SOURCE
from ottla.connect.connectors.files.storage import TEMPORARY, Entry, Storage, storage_of
from ottla.connect.errors import BadRequestError
from ottla.connect.records import EncodedBatch, Position, SourceRecord

_FINGERPRINT_BYTES: Final = 1024
_WAIT_S: Final = 0.2
_SPECIAL: Final = re.compile(r"[*?\[]")
TASK, TASKS = "files.task", "files.tasks"


def split_path(path: str) -> tuple[str, str]:
    """Return the directory without special characters, and the glob below it."""
    found = _SPECIAL.search(path)
    if found is None:
        return path.rstrip("/") or "/", "**"
    root, _, _ = path[: found.start()].rpartition("/")
    return root or ("/" if path.startswith("/") else "."), path[len(root) :].lstrip("/") if root else path.lstrip("/")


def glob_pattern(glob: str) -> re.Pattern[str]:
    """Return the regular expression of a glob: `*` and `?` do not match a slash, `**` does."""
    parts = re.split(r"(\*\*/?|\*|\?|\[[^]]+\])", glob)
    special = {"**": ".*", "**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(special.get(each) or _glob_part(each) for each in parts))


def _glob_part(part: str) -> str:
    return part.replace("[!", "[^") if part.startswith("[") else re.escape(part)


@dataclass
class _File:
    """The state of a file. Positions are the reader's; `end` is the size in bytes up to which the file was read."""

    entry: Entry
    position: int = 0
    committed: int = 0
    start: int = 0
    """The number of bytes that the fingerprint covers."""
    fingerprint: int = 0
    reader: Reader | None = None
    rows: list[Row] = field(default_factory=list)
    next_row: int = 0
    read_size: int = -1
    """The size at which the reader found no more rows."""
    read_complete: bool = False


class FilesSourceTask(SourceTask):
    """Reads the files of its share, one after another."""

    def start(self, context: SourceTaskContext, config: Config) -> None:
        """Read the settings. Directory and files may appear later."""
        self._context = context
        values = self._values = SOURCE.parse(config)
        root, glob = split_path(values["path"])
        self._storage: Storage = storage_of(root, values)
        self._glob = glob_pattern(glob)
        self._share = int(config.get(TASK, "0")), int(config.get(TASKS, "1"))
        self._files: dict[str, _File] = {}
        self._moved = f"{values['move.to'].strip('/')}/" if values["after.commit"] == "move" else ""
        self._scan_at = 0.0

    def poll(self) -> Sequence[SourceRecord]:
        """Return records of one file, or none after a pause."""
        if time.monotonic() >= self._scan_at:
            self._scan()
            self._scan_at = time.monotonic() + self._values["scan.interval.ms"] / 1000
        for key in sorted(self._files):
            if self._context.is_stopping():
                return ()
            records = self._records(key)
            if records:
                return records
        time.sleep(_WAIT_S)
        return ()

    # -- finding files -----------------------------------------------------------------------------------------------

    def _scan(self) -> None:
        """Learn new files and new sizes, and free what is finished and committed."""
        share, shares = self._share
        found: set[str] = set()
        for entry in self._storage.entries():
            key = entry.key
            if not self._glob.fullmatch(key) or self._is_skipped(key):
                continue
            if zlib.crc32(key.encode()) % shares != share:
                continue
            found.add(key)
            file = self._files.get(key)
            if file is None or entry.size < file.entry.size:
                self._files[key] = self._opened(entry)
            else:
                file.entry = entry
        for key in self._files.keys() - found:
            del self._files[key]
        for key in list(self._files):
            self._free(key)
        self._context.report({"files": len(self._files), "waits for": f"files in {self._storage.root}"})

    def _is_skipped(self, key: str) -> bool:
        return key.endswith(TEMPORARY) or bool(self._moved and key.startswith(self._moved))

    def _opened(self, entry: Entry) -> _File:
        """Return a file at its committed position, if it is still the same file."""
        file = _File(entry)
        offset = self._context.offset(self._partition(entry.key))
        if offset is not None:
            start = int(offset.get("start", 0))
            if start <= entry.size and self._fingerprint(entry.key, start) == offset.get("fingerprint", 0):
                file.position = file.committed = int(offset["position"])
                file.start, file.fingerprint = start, int(offset.get("fingerprint", 0))
        if file.position > entry.size and self._values["format"] != "parquet":
            return _File(entry)
        return file

    def _fingerprint(self, key: str, length: int) -> int:
        try:
            return zlib.crc32(self._storage.read(key, 0, length)) if length else 0
        except FileNotFoundError:
            return 0

    def _partition(self, key: str) -> Position:
        return {"directory": self._storage.root, "file": key}

    # -- reading -----------------------------------------------------------------------------------------------------

    def _is_complete(self, file: _File) -> bool:
        """Whether the file does not grow any more, so that its last line needs no line end."""
        if self._storage.is_immutable:
            return True
        age_ms = time.time() * 1000 - file.entry.modified_ms
        return bool(self._values["after.commit"] != "keep") and age_ms >= float(self._values["finished.after.ms"])

    def _records(self, key: str) -> list[SourceRecord]:
        file = self._files[key]
        if file.next_row >= len(file.rows) and not self._fill(key, file):
            return []
        rows = file.rows[file.next_row : file.next_row + self._values["batch.size"]]
        file.next_row += len(rows)
        file.position = rows[-1][1]
        self._extend_fingerprint(key, file)
        topic, partition = self._values["topic"], self._partition(key)
        schema = None if file.reader is None else file.reader.schema
        start, fingerprint = file.start, file.fingerprint
        if file.reader is not None and file.reader.encodes:
            batch = EncodedBatch(topic, None, None, None, schema, [value for value, _ in rows])
            batch.source_partition = partition
            batch.source_offset = {"position": file.position, "start": start, "fingerprint": fingerprint}
            return [batch]
        return [
            SourceRecord(
                topic,
                None,
                None,
                None,
                schema,
                value,
                source_partition=partition,
                source_offset={"position": position, "start": start, "fingerprint": fingerprint},
            )
            for value, position in rows
        ]

    def _fill(self, key: str, file: _File) -> bool:
        """Read more rows, unless the file has not changed since there were none."""
        is_complete = self._is_complete(file)
        if file.read_size == file.entry.size and (file.read_complete or not is_complete):
            return False
        size = file.entry.size
        if file.reader is None:
            encodes = self._context.has_plain_text
            file.reader = reader_of(self._storage, key, file.position, self._values, encodes=encodes)
        try:
            file.rows, file.next_row = file.reader.chunk(is_complete=is_complete), 0
        except FileNotFoundError:
            file.rows, file.next_row = [], 0
        if not file.rows:
            file.read_size, file.read_complete, file.reader = size, is_complete, None
        return bool(file.rows)

    def _extend_fingerprint(self, key: str, file: _File) -> None:
        """Cover the beginning of the file, as far as its bytes cannot change any more."""
        if file.start >= _FINGERPRINT_BYTES:
            return
        covered = file.entry.size if self._values["format"] == "parquet" else file.position
        file.start = min(covered, _FINGERPRINT_BYTES)
        file.fingerprint = self._fingerprint(key, file.start)

    # -- after the commit --------------------------------------------------------------------------------------------

    def commit(self, offsets: Sequence[SourceOffset]) -> None:
        """Remember what is durable in Kafka."""
        for partition, offset in offsets:
            file = self._files.get(str(partition["file"]))
            if file is not None and offset is not None:
                file.committed = max(file.committed, int(offset["position"]))

    def _free(self, key: str) -> None:
        """Move or delete a finished file whose records are all committed."""
        file, action = self._files[key], self._values["after.commit"]
        is_read = file.read_complete and file.read_size == file.entry.size and file.next_row >= len(file.rows)
        if action == "keep" or not is_read or file.committed < file.position or not self._is_complete(file):
            return
        now = self._storage.entry(key)
        if now is not None and now.size == file.entry.size:
            if action == "delete":
                self._storage.delete(key)
            else:
                self._storage.move(key, f"{self._moved}{key}")
        del self._files[key]

    def stop(self) -> None:
        """Forget all files."""
        self._files = {}


class FilesSourceConnector(Connector):
    """Files of a directory, local or in S3, as records."""

    kind = Kind.SOURCE
    version = __version__
    config_def = SOURCE
    task_class = FilesSourceTask

    def task_configs(self, most_tasks: int) -> Sequence[Config]:
        """Share the files by the hash of their names. Offsets belong to files, so the number of tasks may change."""
        return [{**self.config, TASK: str(number), TASKS: str(most_tasks)} for number in range(most_tasks)]

    @classmethod
    def problems(cls, config: Config) -> Mapping[str, Sequence[str]]:
        """Check that files can be moved below the directory."""
        values: dict[str, Any] = SOURCE.parse(config)
        if values["after.commit"] == "move" and not values["move.to"].strip("/"):
            return {"move.to": ["move.to must name a directory for after.commit=move"]}
        return {}

    @classmethod
    def exactly_once(cls, config: Config) -> ExactlyOnce:
        """Files can be read again from a position."""
        del config
        return ExactlyOnce.SUPPORTED

    @classmethod
    def alter_offsets(cls, config: Config, offsets: Sequence[SourceOffset] | None) -> None:
        """Accept positions of files. Raises BadRequestError."""
        root, _ = split_path(SOURCE.parse(config)["path"])
        for partition, offset in offsets or ():
            if partition.get("directory") != root or not isinstance(partition.get("file"), str):
                raise BadRequestError(f'A source partition is {{"directory": "{root}", "file": NAME}}, not {partition}')
            position = None if offset is None else offset.get("position")
            if offset is not None and (not isinstance(position, int) or isinstance(position, bool) or position < 0):
                raise BadRequestError(f"The position must be an integer from 0, not {position!r}")
