"""Temporary shortages of descriptors or memory, as opposed to failures of a disk.

A disk failure takes the log directory offline, because its data may be lost. A shortage fails only one operation: the
caller gets `ShortageError`, whose code KAFKA_STORAGE_ERROR clients retry, and the directory stays online.
An operation that raises it has changed nothing, or completes its work at the next attempt.

A failed fsync is never a shortage. The system may have dropped the data that it could not write, and a second fsync
would report success. `Files` raises it as `SyncError`.
"""

import errno

from ottla.common.errors import ErrorCode, KafkaError

DESCRIPTOR_SHORTAGES = frozenset((errno.EMFILE, errno.ENFILE))
_SHORTAGES = DESCRIPTOR_SHORTAGES | {errno.ENOMEM}


class SyncError(OSError):
    """An fsync failed: the data may be lost."""


class ShortageError(KafkaError):
    """An operation failed because of a shortage of descriptors or memory; it may succeed later."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


def is_shortage(error: OSError) -> bool:
    """Whether the error is a shortage of the process or the machine, not a failure of the disk."""
    return error.errno in _SHORTAGES and not isinstance(error, SyncError)
