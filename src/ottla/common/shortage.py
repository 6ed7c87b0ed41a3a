"""Shortages of descriptors or memory, which say nothing about a disk and pass.

A broken disk takes its log directory offline, since nothing that was written to it can be promised. A shortage fails
one operation instead: the caller gets `ShortageError`, whose code KAFKA_STORAGE_ERROR clients retry, and the directory
stays online. An operation that raises it has changed nothing, or finishes its work at the next attempt.

A failed fsync is never a shortage: the system may have dropped the data that it could not write, and a second fsync
would report success. `Files` raises it as `SyncError`.
"""

import errno

from ottla.common.errors import ErrorCode, KafkaError

DESCRIPTOR_SHORTAGES = frozenset((errno.EMFILE, errno.ENFILE))
_SHORTAGES = DESCRIPTOR_SHORTAGES | {errno.ENOMEM}


class SyncError(OSError):
    """An fsync failed: what it was to write may be lost."""


class ShortageError(KafkaError):
    """An operation failed for want of descriptors or memory; the same operation may succeed later."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


def is_shortage(error: OSError) -> bool:
    """Whether the error is a shortage of the process or the machine, and not a failure of the disk."""
    return error.errno in _SHORTAGES and not isinstance(error, SyncError)
