"""The index of aborted transactions of a segment (`.txnindex`): 34 bytes each, in the order of their markers.

The file exists only once there was an abort. A consumer that reads committed records only is told of the entries
that touch what it fetched, and skips their records itself (KIP-98).
"""

from struct import Struct
from typing import NamedTuple

from ottla.common.shortage import is_shortage
from ottla.log.files import Files
from ottla.log.index import CorruptIndexError

_ENTRY = Struct(">hqqqq")
_VERSION = 0


class AbortedTransaction(NamedTuple):
    """`last_offset` is that of the marker; `last_stable_offset` as it was after the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndex:
    """Loaded on first use: most segments have none."""

    __slots__ = ("_entries", "_written", "files", "is_expected", "path")

    def __init__(self, files: Files, path: str) -> None:
        self.files = files
        self.path = path
        self.is_expected = False
        """Whether the file was there before: if it is missing then, it has to be rebuilt."""
        self._entries: list[AbortedTransaction] | None = None
        # How many of the entries are in the file.
        self._written = 0

    def all(self) -> list[AbortedTransaction]:
        """Every entry; raises CorruptIndexError if the file is corrupt, or missing although it was there before."""
        if self._entries is None:
            self._entries = self._load()
            self._written = len(self._entries)
        return self._entries

    def append(self, transaction: AbortedTransaction) -> None:
        """Add an aborted transaction and write it. A shortage postpones the write to the next one."""
        self.all().append(transaction)
        try:
            self.write_pending()
        except OSError as error:
            # The marker is in the log already: the entry must not be lost, nor the append fail.
            if not is_shortage(error):
                raise

    def write_pending(self) -> None:
        """Write the entries that the file lacks; all of them, if the file is not as this index left it."""
        if self._entries is None or self._written == len(self._entries):
            return
        fd = self.files.open(self.path, create=True)
        try:
            if self.files.length(fd) < self._written * _ENTRY.size:
                self._written = 0
            data = b"".join(_ENTRY.pack(_VERSION, *entry) for entry in self._entries[self._written :])
            self.files.pwrite(fd, data, self._written * _ENTRY.size)
        finally:
            self.files.close(fd)
        self._written = len(self._entries)
        self.is_expected = True

    def restore(self) -> None:
        """Write the entries again if their file has vanished."""
        if self.is_expected and self._entries and not self.files.exists(self.path):
            self.rewrite(self._entries)

    def rewrite(self, entries: list[AbortedTransaction]) -> None:
        """Replace all; without entries there is no file."""
        self._entries = entries
        if entries:
            self.files.write(self.path, b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries))
        else:
            self.files.unlink(self.path)
        self._written = len(entries)
        self.is_expected = bool(entries)

    def truncate_to(self, offset: int) -> None:
        """Forget transactions whose marker is at `offset` or above."""
        entries = self.all()
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) < len(entries):
            self.rewrite(kept)

    def _load(self) -> list[AbortedTransaction]:
        if not self.files.exists(self.path):
            if self.is_expected:
                raise CorruptIndexError(f"{self.path} is missing")
            return []
        data = self.files.read(self.path)
        if len(data) % _ENTRY.size:
            raise CorruptIndexError(f"{self.path} has {len(data)} bytes, not a multiple of {_ENTRY.size}")
        entries = []
        for version, *rest in _ENTRY.iter_unpack(data):
            entry = AbortedTransaction(*rest)
            if version != _VERSION or entry.last_offset < entry.first_offset:
                raise CorruptIndexError(f"{self.path} holds an impossible entry: {entry}")
            entries.append(entry)
        return entries
