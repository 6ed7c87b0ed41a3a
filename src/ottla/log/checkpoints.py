"""Kafka's small text files: offset checkpoints of a log directory, and `partition.metadata` of a partition.

An offset checkpoint is a version line, a count line and lines `topic partition offset`. Written atomically; a file
that cannot be read as such raises CorruptCheckpointError (Kafka takes the directory offline then).
"""

import logging
from collections.abc import Mapping

from ottla.common.ids import ZERO_UUID, TopicPartition, Uuid, uuid_from_text, uuid_to_text
from ottla.log.files import Files

logger = logging.getLogger(__name__)

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"


class CorruptCheckpointError(OSError):
    """A checkpoint file holds something else."""


def read_lines(files: Files, path: str, width: int) -> list[list[str]]:
    """The entries of a checkpoint, each split in `width` words; none if there is no file."""
    if not files.exists(path):
        return []
    content = files.read(path)
    if not content:  # Kafka creates them empty
        return []
    try:
        lines = content.decode().split("\n")
        if int(lines[0]) != 0:
            raise ValueError(f"version {lines[0]}")
        entries = [line.split(" ") for line in lines[2:] if line]
        if len(entries) != int(lines[1]) or any(len(entry) != width for entry in entries):
            raise ValueError("the number of entries is wrong")
    except (ValueError, IndexError) as error:
        raise CorruptCheckpointError(f"Malformed checkpoint {path}: {error}") from error
    return entries


def format_lines(entries: list[str]) -> bytes:
    """A checkpoint file's content."""
    return "\n".join(["0", str(len(entries)), *entries, ""]).encode()


def read_offsets(files: Files, directory: str, name: str) -> dict[TopicPartition, int]:
    """Offsets by partition; empty if the file is missing."""
    path = f"{directory}/{name}"
    try:
        return {TopicPartition(topic, int(p)): int(offset) for topic, p, offset in read_lines(files, path, 3)}
    except ValueError as error:
        raise CorruptCheckpointError(f"Malformed checkpoint {path}: {error}") from error


def write_offsets(files: Files, directory: str, name: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace a checkpoint durably."""
    lines = [f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items())]
    files.write_atomically(f"{directory}/{name}", format_lines(lines))


def read_topic_id(files: Files, directory: str) -> Uuid:
    """The topic id in a partition's `partition.metadata`; ZERO_UUID if there is none that can be read.

    A power cut before the log's first flush leaves the file missing, empty or torn.
    """
    path = f"{directory}/{PARTITION_METADATA}"
    if not files.exists(path):
        return ZERO_UUID
    for line in files.read(path).decode("utf-8", "replace").split("\n"):
        name, _, value = line.partition(": ")
        if name == "topic_id":
            try:
                return uuid_from_text(value.strip())
            except ValueError:
                break
    logger.warning("Passing over %s: it holds no topic id", path)
    return ZERO_UUID


def write_topic_id(files: Files, directory: str, topic_id: Uuid) -> str:
    """Write `partition.metadata`; the path, for the caller to sync with the log: thousands are made in one go."""
    path = f"{directory}/{PARTITION_METADATA}"
    text = f"version: 0\ntopic_id: {uuid_to_text(topic_id)}"
    files.write(path + ".tmp", text.encode())
    files.rename(path + ".tmp", path)
    return path
