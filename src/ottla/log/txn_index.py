"""The index of aborted transactions of a segment (`.txnindex`): 34 bytes each, in the order of their markers.

The file exists only once there was an abort. A consumer that reads committed records only is told of the entries
that touch what it fetched, and skips their records itself (KIP-98).
"""

from struct import Struct

from ottla.common.named import NamedTuple
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

    __slots__ = ("_entries", "files", "path")

    def __init__(self, files: Files, path: str) -> None:
        self.files = files
        self.path = path
        self._entries: list[AbortedTransaction] | None = None

    def all(self) -> list[AbortedTransaction]:
        """Every entry; raises CorruptIndexError if the file is none of ours."""
        if self._entries is None:
            self._entries = self._load()
        return self._entries

    def append(self, transaction: AbortedTransaction) -> None:
        """Add an aborted transaction and write it."""
        entries = self.all()
        fd = self.files.open(self.path, create=True)
        try:
            self.files.pwrite(fd, _ENTRY.pack(_VERSION, *transaction), len(entries) * _ENTRY.size)
        finally:
            self.files.close(fd)
        entries.append(transaction)

    def rewrite(self, entries: list[AbortedTransaction]) -> None:
        """Replace all; without entries there is no file."""
        self._entries = entries
        if entries:
            self.files.write(self.path, b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries))
        else:
            self.files.unlink(self.path)

    def truncate_to(self, offset: int) -> None:
        """Forget transactions whose marker is at `offset` or above."""
        entries = self.all()
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) < len(entries):
            self.rewrite(kept)

    def _load(self) -> list[AbortedTransaction]:
        if not self.files.exists(self.path):
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
