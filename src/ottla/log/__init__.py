"""The log: Kafka's data directory, segments on disk, recovery, retention, compaction. Knows no network and no group.

`LogManager` holds the directories and their logs; `open_log` opens one log alone (the metadata log). One thread calls
everything; `Log.flush` and `LogManager.checkpoint` alone may run in another.

Reading order: files (the seam to the disk), segment and index, log, recovery, producers, epochs, retention, cleaner,
storage (meta.properties, the lock), manager.
"""

from ottla.log.config import LogConfig
from ottla.log.context import LogContext
from ottla.log.directory import LogDirectory, Opening
from ottla.log.files import Files
from ottla.log.log import AppendInfo, Log
from ottla.log.manager import DirectoryInfo, LogManager
from ottla.log.recovery import open_log
from ottla.log.storage import StorageError
from ottla.log.txn_index import AbortedTransaction

__all__ = [
    "AbortedTransaction",
    "AppendInfo",
    "DirectoryInfo",
    "Files",
    "Log",
    "LogConfig",
    "LogContext",
    "LogDirectory",
    "LogManager",
    "Opening",
    "StorageError",
    "open_log",
]
