"""The log: Kafka's data directory, segments on disk, recovery, retention, compaction. No network, no groups.

`LogManager` owns the log directories and their logs; `open_log` opens a single log (the metadata log). One thread calls
everything; only `Log.flush` and `LogManager.checkpoint` may run in another thread.

Reading order: files (all disk access), index, segment (with segment_file, segment_indices and recent_batches),
segment_list, producer_state, durability, log, recovery, epochs, retention, compaction and cleaner, storage
(meta.properties, the lock), directory, manager.
"""

from ottla.log.config import LogConfig
from ottla.log.context import LogContext
from ottla.log.directory import DirectoryInfo, LogDirectory, Opening
from ottla.log.files import Files
from ottla.log.log import AppendInfo, Log
from ottla.log.manager import LogManager
from ottla.log.manager_ports import LogManagerPorts
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
    "LogManagerPorts",
    "Opening",
    "StorageError",
    "open_log",
]
