"""The index of aborted transactions of a segment (`.txnindex`): 34 bytes each, in the order of their markers.

The file is created by the first abort. A consumer that reads only committed records receives the entries that overlap
what it fetched, and skips their records itself (KIP-98).
"""

from struct import Struct
from typing import NamedTuple

from ottla.common.shortage import is_shortage
from ottla.log.files import Files
from ottla.log.index import CorruptIndexError

_ENTRY = Struct(">hqqqq")
_VERSION = 0


class AbortedTransaction(NamedTuple):
    """`last_offset` is the marker's offset, `last_stable_offset` the value after the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndex:
    """The entries of one segment. They are loaded on first use: most segments have none."""

    __slots__ = ("_entries", "_written", "files", "is_expected", "path")

    def __init__(self, files: Files, path: str) -> None:
        self.files = files
        self.path = path
        self.is_expected = False
        """Whether the file existed before. If it is missing then, it must be rebuilt."""
        self._entries: list[AbortedTransaction] | None = None
        # Number of entries that are in the file.
        self._written = 0

    def all(self) -> list[AbortedTransaction]:
        """All entries. Raises CorruptIndexError if the file is corrupt, or missing although it existed before."""
        if self._entries is None:
            self._entries = self._load()
            self._written = len(self._entries)
        return self._entries

    def append(self, transaction: AbortedTransaction) -> None:
        """Add an aborted transaction and write it. In a shortage, the next write includes it."""
        self.all().append(transaction)
        try:
            self.write_pending()
        except OSError as error:
            # The marker is in the log already: the entry must not be lost, and the append must not fail.
            if not is_shortage(error):
                raise

    def write_pending(self) -> None:
        """Write the entries that the file lacks; all entries if the file was changed or deleted meanwhile."""
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
        """Rewrite the file if it was deleted meanwhile."""
        if self.is_expected and self._entries and not self.files.exists(self.path):
            self.rewrite(self._entries)

    def rewrite(self, entries: list[AbortedTransaction]) -> None:
        """Replace all entries; without entries the file is deleted."""
        self._entries = entries
        if entries:
            self.files.write(self.path, b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries))
        else:
            self.files.unlink(self.path)
        self._written = len(entries)
        self.is_expected = bool(entries)

    def truncate_to(self, offset: int) -> None:
        """Remove transactions whose marker is at `offset` or above."""
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
                raise CorruptIndexError(f"{self.path} has an impossible entry: {entry}")
            entries.append(entry)
        return entries
