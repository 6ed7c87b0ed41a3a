"""Kafka's small text files: offset checkpoints of a log directory, and `partition.metadata` of a partition.

An offset checkpoint is a version line, a count line and lines `topic partition offset`. It is written atomically. A
file with other content raises CorruptCheckpointError (Kafka then takes the directory offline).

A changed digit is still a number. Where trusting it could cost records and the offset cannot be derived from other
files, each entry is written three times, and the majority counts when it is read. Kafka reads the copies as one entry.
`partition.metadata` ends with a line that Kafka ignores: the CRC of the lines before it.
"""

import logging
import re
from collections import Counter
from collections.abc import Mapping

from ottla.common.ids import ZERO_UUID, TopicPartition, Uuid, uuid_from_text, uuid_to_text
from ottla.log.files import Files
from ottla.records.checksum import crc32c

logger = logging.getLogger(__name__)

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
# Copies of an entry that cannot be derived from other files.
COPIES = 3
_ENTRY = re.compile(r"([\w.-]+) (\d+) (\d+)", re.ASCII)
_CHECKSUM = b"\ncrc32c: "


class CorruptCheckpointError(OSError):
    """A file is not a valid checkpoint."""


def read_lines(files: Files, path: str, width: int) -> list[list[str]]:
    """The entries of a checkpoint, each split into `width` words; empty if the file is missing."""
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
    """Encode the entries of a checkpoint."""
    return "\n".join(["0", str(len(entries)), *entries, ""]).encode()


def read_offsets(files: Files, directory: str, name: str) -> dict[TopicPartition, int]:
    """Offsets by partition; empty if the file is missing. Where copies differ, the majority counts."""
    path = f"{directory}/{name}"
    try:
        entries = [(TopicPartition(topic, int(p)), int(offset)) for topic, p, offset in read_lines(files, path, 3)]
    except (CorruptCheckpointError, ValueError) as error:
        entries = _salvage(files.read(path))
        if not entries:
            raise CorruptCheckpointError(f"Malformed checkpoint {path}: {error}") from error
        logger.warning("Checkpoint %s is corrupt: using the entries that most copies agree on: %s", path, error)
        return dict(entries)
    copies = max(Counter(tp for tp, _ in entries).values(), default=1)
    if copies == 1:
        return dict(entries)
    offsets: dict[TopicPartition, int] = {}
    for (tp, offset), count in Counter(entries).items():
        if count < copies:
            text = "Checkpoint %s is corrupt: %s %d occurs %d times instead of %d"
            logger.warning(text, path, tp, offset, count, copies)
        if 2 * count > copies:
            offsets[tp] = offset
    return offsets


def _salvage(content: bytes) -> list[tuple[TopicPartition, int]]:
    """The entries that most copies in a corrupt file agree on. A corrupt newline may have joined two lines."""
    found = map(_ENTRY.match, content.decode("utf-8", "replace").split("\n"))
    entries = Counter((TopicPartition(each[1], int(each[2])), int(each[3])) for each in found if each)
    return [entry for entry, count in entries.items() if 2 * count > COPIES]


def write_offsets(
    files: Files, directory: str, name: str, offsets: Mapping[TopicPartition, int], *, copies: int = 1
) -> None:
    """Replace a checkpoint durably, with each entry `copies` times."""
    lines = [f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items())] * copies
    files.write_atomically(f"{directory}/{name}", format_lines(lines))


def read_topic_id(files: Files, directory: str) -> Uuid:
    """The topic id in a partition's `partition.metadata`; ZERO_UUID if the file is missing or unreadable.

    A power cut before the log's first flush leaves the file missing, empty or torn.
    """
    path = topic_id_path(directory)
    if not files.exists(path):
        return ZERO_UUID
    content = files.read(path)
    text, marked, checksum = content.partition(_CHECKSUM)
    if marked and checksum.strip() != b"%08x" % crc32c(text):
        logger.warning("Skipping %s: its checksum is wrong", path)
        return ZERO_UUID
    for line in text.decode("utf-8", "replace").split("\n"):
        name, _, value = line.partition(": ")
        if name == "topic_id":
            try:
                return uuid_from_text(value.strip())
            except ValueError:
                break
    logger.warning("Skipping %s: it has no topic id", path)
    return ZERO_UUID


def topic_id_path(directory: str) -> str:
    """Path of `partition.metadata` in a partition's directory."""
    return f"{directory}/{PARTITION_METADATA}"


def write_topic_id(files: Files, directory: str, topic_id: Uuid) -> None:
    """Write `partition.metadata`, which the caller syncs with the log: topics are created in bulk."""
    path = topic_id_path(directory)
    text = f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode()
    files.write(path + ".tmp", text + _CHECKSUM + b"%08x" % crc32c(text))
    files.rename(path + ".tmp", path)
