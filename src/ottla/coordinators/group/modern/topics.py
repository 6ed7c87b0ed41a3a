"""The cluster's topics as the group coordinator sees them, and the hash by which a group detects changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import NamedTuple

from ottla.common.ids import Uuid
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage, TopicImage


class Topics(NamedTuple):
    """All topics at one version of the metadata; immutable, since the parts of an image are."""

    by_name: Mapping[str, TopicImage]
    by_id: Mapping[Uuid, TopicImage]
    version: int
    """The offset of the metadata log."""

    @classmethod
    def of(cls, image: MetadataImage) -> Topics:
        """The topics of `image`."""
        return cls(image.topics_by_name, image.topics_by_id, image.offset)

    def ids(self, names: Iterable[str]) -> frozenset[Uuid]:
        """The ids of those topics that exist."""
        by_name = self.by_name
        return frozenset([by_name[name].topic_id for name in names if name in by_name])

    def partition_counts(self, names: Iterable[str]) -> dict[Uuid, int]:
        """The numbers of partitions of those topics that exist."""
        found = (self.by_name.get(name) for name in names)
        return {topic.topic_id: len(topic.partitions) for topic in found if topic is not None}


EMPTY_TOPICS = Topics.of(EMPTY_IMAGE)


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """A signed 64-bit hash of the existing topics' names, ids and numbers of partitions; 0 if there are none.

    Another algorithm than Kafka's: a group that moves between the two gets one additional epoch.
    """
    existing = sorted([name for name in names if name in topics.by_name])
    if not existing:
        return 0
    hasher = blake2b(digest_size=8)
    for name in existing:
        topic = topics.by_name[name]
        hasher.update(f"{name}\0{len(topic.partitions)}\0".encode())
        hasher.update(topic.topic_id)
    return int.from_bytes(hasher.digest(), "big", signed=True)
