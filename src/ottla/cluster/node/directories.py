"""The log directories of a node: locked, identified, and compared with those that the broker registered before."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from ottla.common.ids import ZERO_UUID, Uuid, uuid_to_text
from ottla.log import DirectoryInfo, Files, LogConfig, LogManager, LogManagerPorts, StorageError
from ottla.log.storage import (
    MetaProperties,
    check_meta,
    format_directory,
    read_meta,
    write_clean_shutdown,
    write_meta,
)
from ottla.network.descriptors import cached_segments, open_file_limit

if TYPE_CHECKING:
    from ottla.cluster.metadata.snapshotting import RunInThread
    from ottla.common.clock import Clock
    from ottla.config import BrokerConfig
    from ottla.metadata.image import MetadataImage

logger = logging.getLogger(__name__)


def open_directories(
    config: BrokerConfig,
    clock: Clock,
    files: Files,
    run_in_thread: RunInThread,
    on_failed: Callable[[DirectoryInfo, OSError], None],
) -> tuple[LogManager, str]:
    """Lock the log directories and identify them; returns their logs, not loaded yet, and the cluster id.

    Raises StorageError and OSError; then the directories are unlocked, and marked as closed cleanly as before.
    """
    logs = LogManager(
        config.log_dirs,
        clock,
        LogConfig(file_delete_delay_ms=config.int("log.segment.delete.delay.ms")),
        LogManagerPorts(on_failed, run_in_thread),
        files=files,
        max_open_files=cached_segments(open_file_limit()),
    )
    try:
        logs.acquire()
        lost = {directory.path for directory in logs.log_directories() if not directory.online}
        cluster_id = identify(config, files, lost - {config.metadata_log_dir})
        for directory in (each for each in logs.log_directories() if each.online):
            directory.directory_id = directory_id(files, directory.path)
    except BaseException:
        close_unopened(files, logs)
        raise
    return logs, cluster_id


def close_unopened(files: Files, logs: LogManager) -> None:
    """Unlock directories whose logs were not opened, and mark those as closed cleanly again that were before.

    A node that found no active controller is as clean as before: otherwise it would leave the ISR.
    """
    try:
        _restore_clean_shutdown(files, logs)
    except OSError as error:  # The next start recovers the logs.
        logger.warning("Failed to mark the log directories as closed cleanly: %s", error)
    logs.abandon()


def identify(config: BrokerConfig, files: Files | None = None, lost: Collection[str] = ()) -> str:
    """Return the cluster id of the directories; a directory without an identity gets one. `lost` ones are skipped.

    Kafka before 3.7 wrote no directory id.

    Raises StorageError if they belong to another node or to different clusters, or if none is formatted and the cluster
    has other nodes.
    """
    files = files or Files()
    directories = [path for path in config.directories if path not in lost]
    found = {directory: read_meta(files, directory) for directory in directories}
    cluster_id = next((meta.cluster_id for meta in found.values() if meta is not None), None)
    if cluster_id is None and not config.formats_itself:
        raise StorageError(
            f"No readable meta.properties files found in {', '.join(directories)}: format them with the id of the"
            " cluster that this node joins: ottla format --cluster-id ID"
        )
    if cluster_id is None:
        # Command-line tools would read an id that begins with "-" as an option.
        cluster_id = uuid_to_text(b"o" + os.urandom(15))
    for directory, meta in found.items():
        if meta is None:
            format_directory(files, directory, cluster_id, config.node_id, os.urandom(16))
            continue
        check_meta(meta, directory, cluster_id, config.node_id)
        if meta.directory_id == ZERO_UUID:
            write_meta(files, directory, MetaProperties(cluster_id, config.node_id, os.urandom(16)))
    return cluster_id


def directory_id(files: Files, directory: str) -> Uuid:
    """The id of a formatted directory. Raises StorageError."""
    meta = read_meta(files, directory)
    if meta is None:
        raise StorageError(f"{directory} has no meta.properties")
    return meta.directory_id


def _restore_clean_shutdown(files: Files, logs: LogManager) -> None:
    for directory in logs.log_directories():
        if directory.online and directory.was_clean:
            write_clean_shutdown(files, directory.path, directory.broker_epoch)


def missing_directories(logs: LogManager, image: MetadataImage, node_id: int) -> list[Uuid]:
    """The ids of directories that this broker had when it last registered, and does not have now."""
    known = image.brokers.get(node_id)
    present = {directory.directory_id for directory in logs.log_directories()}
    missing = sorted(set(known.directories) - present) if known is not None else []
    for each in missing:
        logger.error(
            "The log directory with id %s is missing: its partitions are offline until it is in log.dirs again"
            " or their topics are deleted",
            uuid_to_text(each),
        )
    return missing
