"""The cluster's metadata as one immutable value, and how records change it.

Reading order: image (what is known), delta (how records make the next image), snapshot (the image as records again),
features (levels that this software knows, versions of records they imply). No I/O, no clock.
"""

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, BrokerImage, MetadataImage, PartitionImage, TopicImage

__all__ = ["EMPTY_IMAGE", "BrokerImage", "MetadataDelta", "MetadataImage", "PartitionImage", "TopicImage"]
