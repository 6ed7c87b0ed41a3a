"""Replays the records of the metadata log into an image: the committed ones, or all of them on a new leader.

A record that cannot be replayed raises KAFKA_STORAGE_ERROR, which names its offset and what to do. The image never has
a part of a metadata transaction (KIP-868).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster.metadata import snapshots
from ottla.cluster.metadata.loading import READ_SIZE, corrupt_log
from ottla.common.errors import ErrorCode, KafkaError
from ottla.metadata.delta import MetadataDelta, MetadataError
from ottla.protocol.metadata_records import UnknownRecordError, decode_metadata_record
from ottla.protocol.wire import DecodeError
from ottla.records import Buffer, decode_batch, iter_batches

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.metadata.image import MetadataImage


class LogReplay:
    """The image of all records below `position` that are not in an open transaction."""

    def __init__(self, log: Log, image: MetadataImage, position: int) -> None:
        """`image` has all records below `position`."""
        self._log = log
        self._delta = MetadataDelta(image)
        self.image = image
        self.position = position

    @property
    def in_transaction(self) -> bool:
        """Whether a metadata transaction is open at `position`."""
        return self._delta.in_transaction

    def advance(self, end_offset: int) -> MetadataImage:
        """Replay the records below `end_offset`, the end of a batch; returns the new image. Raises KafkaError.

        The work is proportional to the records, and they are replayed at once.
        """
        epoch = -1
        while self.position < end_offset:
            data = self._log.read(self.position, READ_SIZE, end_offset)
            before = self.position
            for place, header in iter_batches(data):
                if header.base_offset > self.position:
                    break  # this log is never compacted: a gap in the offsets is a loss
                if header.base_offset == self.position:
                    if not header.is_control:
                        self._replay(data, place)
                    self.position = header.next_offset
                    epoch = header.partition_leader_epoch
            if self.position == before:
                raise corrupt_log(self._log, before)
        if epoch >= 0 and not self.in_transaction:
            self.image = self._delta.apply(self.position - 1, epoch)
        return self.image

    def _replay(self, data: Buffer, place: int) -> None:
        directory = self._log.directory
        for record in decode_batch(data, place):
            try:
                self._delta.replay(decode_metadata_record(record.value or b""))
            except UnknownRecordError as error:
                where = f"offset {record.offset} of {directory}"
                raise snapshots.unknown_record(where, self._delta.metadata_version, error) from error
            except (MetadataError, DecodeError) as error:
                text = f"The metadata in {directory} cannot be read: {error}, at offset {record.offset}"
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text) from error
