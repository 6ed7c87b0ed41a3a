"""Files of a log directory as a whole: `meta.properties`, the lock against a second broker, the clean-shutdown file.

The lock is the same as Kafka's (a POSIX record lock on `.lock`), so Kafka and Ottla exclude each other.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct

from ottla.common.ids import ZERO_UUID, Uuid, uuid_from_text, uuid_to_text
from ottla.common.shortage import is_shortage
from ottla.common.values import value
from ottla.config.properties import parse_properties
from ottla.log.files import Files
from ottla.records.checksum import crc32c

META_PROPERTIES = "meta.properties"
LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
# Kafka skips this line as a comment.
_CHECKSUM = b"#crc32c="
# `struct flock` of Linux: type, whence, start, length, process.
_FLOCK = "@hhqqi"
# A POSIX lock does not exclude the process that holds it.
_locked_here: set[str] = set()


class StorageError(Exception):
    """A log directory cannot be used. The message says why and what to do."""


def refuse_shortage(error: OSError) -> None:
    """Refuse a start without enough descriptors or memory for the logs: no directory is at fault."""
    if is_shortage(error):
        raise StorageError(
            f"The logs cannot be opened: {error}. Each partition needs an open file; raise the limit (ulimit -n)"
        ) from error


@value
class MetaProperties:
    """The identity of a log directory. Without entries in an old file, `node_id` is -1 and `directory_id` is zero."""

    cluster_id: str
    node_id: int
    directory_id: Uuid


def read_meta(files: Files, directory: str) -> MetaProperties | None:
    """Read the directory's `meta.properties`; None if it is not formatted. Raises StorageError if it is corrupt."""
    path = f"{directory}/{META_PROPERTIES}"
    if not files.exists(path):
        return None
    content = files.read(path)
    try:
        values = {name: value.strip() for name, value in parse_properties(content.decode("utf-8", "replace")).items()}
    except ValueError as error:
        raise StorageError(f"{path} is damaged: {error}") from error
    if values.get("version") not in {"0", "1"}:
        raise StorageError(f"{path} has version {values.get('version')!r}; this program reads 1 (and 0)")
    node_id = values.get("node.id", values.get("broker.id", "-1"))
    if not re.fullmatch(r"-?[0-9]{1,10}", node_id):
        raise StorageError(f"{path} is damaged: node.id={node_id[:80]} is not a number")
    try:
        meta = MetaProperties(
            values.get("cluster.id", ""),
            int(node_id),
            uuid_from_text(values["directory.id"]) if "directory.id" in values else ZERO_UUID,
        )
    except ValueError as error:
        raise StorageError(f"{path} is damaged: {error}") from error
    text, marked, checksum = content.rpartition(_CHECKSUM)
    if marked and checksum.strip() != b"%08x" % crc32c(text):
        raise StorageError(f"{path} is damaged: its checksum is wrong. Check its values, then remove its last line")
    return meta


def write_meta(files: Files, directory: str, meta: MetaProperties) -> None:
    """Write `meta.properties`, version 1."""
    lines = ["#", f"cluster.id={meta.cluster_id}", "version=1", f"directory.id={uuid_to_text(meta.directory_id)}"]
    lines.append(f"node.id={meta.node_id}")
    text = ("\n".join(lines) + "\n").encode()
    files.write_atomically(f"{directory}/{META_PROPERTIES}", text + _CHECKSUM + b"%08x\n" % crc32c(text))


def format_directory(
    files: Files, directory: str, cluster_id: str, node_id: int, directory_id: Uuid, *, ignore_formatted: bool = False
) -> MetaProperties:
    """Format `directory` as a log directory of the cluster, and create it if it is missing.

    A formatted directory raises StorageError. With `ignore_formatted` it is left as it is if cluster and node match.
    """
    known = read_meta(files, directory) if files.is_directory(directory) else None
    if known is not None:
        if not ignore_formatted:
            raise StorageError(f"Log directory {directory} is already formatted; use --ignore-formatted to skip it")
        check_meta(known, directory, cluster_id, node_id)
        return known
    files.make_directory(directory)
    meta = MetaProperties(cluster_id, node_id, directory_id)
    write_meta(files, directory, meta)
    return meta


def check_meta(meta: MetaProperties, directory: str, cluster_id: str, node_id: int) -> None:
    """Raise StorageError unless the directory belongs to this cluster and node."""
    if meta.cluster_id != cluster_id:
        raise StorageError(
            f"{directory} belongs to cluster {meta.cluster_id}, not {cluster_id}; point log.dirs elsewhere"
        )
    if meta.node_id not in {-1, node_id}:
        raise StorageError(f"{directory} belongs to node {meta.node_id}, not {node_id}; check node.id and log.dirs")


class DirectoryLock:
    """A lock from `acquire` to `release`; the system releases it when the process dies."""

    def __init__(self, directory: str) -> None:
        self.path = f"{directory}/{LOCK}"
        self._fd = -1

    def acquire(self) -> None:
        """Take the lock. Raises StorageError, which names the process that holds it, if it is taken."""
        real = os.path.realpath(self.path)
        if real in _locked_here:
            raise StorageError(_in_use(self.path, os.getpid()))
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(fd).st_nlink:
                raise StorageError(f"{self.path} was removed by a start that was refused; start again")
        except (BlockingIOError, PermissionError) as error:
            holder = _holder(fd)
            os.close(fd)
            raise StorageError(_in_use(self.path, holder)) from error
        except StorageError:
            os.close(fd)
            raise
        self._fd = fd
        _locked_here.add(real)

    def release(self) -> None:
        """Release the lock if it is held."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            _locked_here.discard(os.path.realpath(self.path))
            os.close(fd)


def _holder(fd: int) -> int:
    """Return the process that holds a lock on the file; 0 if it ended, or is in another container."""
    wanted = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, process = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, wanted))
    return process if kind != fcntl.F_UNLCK and process > 0 else 0


def _in_use(path: str, holder: int) -> str:
    process = f"process {holder}" if holder else "another process"
    return f"{path} is held by {process}: stop that broker, or choose another directory with --data DIR or log.dirs"


def take_clean_shutdown(files: Files, directory: str) -> int | None:
    """The broker epoch of a clean shutdown (-1 if unknown), None after an unclean one. Deletes the file."""
    path = f"{directory}/{CLEAN_SHUTDOWN}"
    if not files.exists(path):
        return None
    data = files.read(path)
    files.unlink(path)
    files.fsync_directory(directory)
    try:
        broker_epoch = json.loads(data)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return -1
    return broker_epoch if isinstance(broker_epoch, int) else -1


def write_clean_shutdown(files: Files, directory: str, broker_epoch: int) -> None:
    """Mark that all logs of the directory were closed cleanly."""
    content = f'{{"version":0,"brokerEpoch":{broker_epoch}}}'
    files.write_atomically(f"{directory}/{CLEAN_SHUTDOWN}", content.encode())
