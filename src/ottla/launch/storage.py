"""Log directories before a broker opens them: the default location, the owner, and failures of the start."""

import errno
import os

from ottla.common.failure import Failure
from ottla.common.ids import uuid_from_text
from ottla.log.files import Files
from ottla.log.storage import StorageError, read_meta
from ottla.network.sockets import ListenError


def default_data_directory() -> str:
    """Return `$OTTLA_DATA`, or `ottla` in the user's data directory (`$XDG_DATA_HOME`, `~/.local/share`)."""
    configured = os.environ.get("OTTLA_DATA")
    if configured:
        return configured
    home = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")  # noqa: PTH111 - pathlib is slow to import
    return f"{home}/ottla"


def check_cluster_id(text: str) -> str:
    """Return the id; raises Failure if Kafka would reject it."""
    try:
        uuid_from_text(text)
    except ValueError as error:
        advice = "Without --cluster-id the id is random."
        raise Failure(f"the cluster id {text!r} is not valid: {error}", advice, exit_code=2) from error
    return text


def known_node_id(directory: str) -> int | None:
    """Return the node that a formatted directory belongs to; None if it is unknown."""
    files = Files()
    try:
        meta = read_meta(files, directory) if files.is_directory(directory) else None
    except (StorageError, OSError):
        return None  # Opening the directory later reports the problem.
    return meta.node_id if meta is not None and meta.node_id >= 0 else None


def unusable(directory: str, error: OSError) -> Failure:
    """Return the failure for a directory that cannot be created, read or written."""
    reason = error.strerror or str(error)
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        reason = "the path, or a part of it, is a file"
    return Failure(
        f"the data directory {directory} cannot be used: {reason}",
        "Choose another one with --data DIR, or change the owner of this one.",
    )


def cannot_listen(error: ListenError) -> Failure:
    """Return the failure for an address that cannot be bound."""
    if error.errno == errno.EADDRINUSE:
        advice = "Stop the process that uses it, or choose another port: --listen 127.0.0.1:9093 (0: a free one)."
        return Failure(f"{error.listener.host or 'every interface'}:{error.listener.port} is in use", advice)
    return Failure(str(error.strerror), "Choose another address with --listen HOST:PORT.")
