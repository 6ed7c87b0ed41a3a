"""The consumer: cores that decide, an engine that waits for the network, an asyncio and a blocking face.

Reading order: record, options; the cores without I/O: positions (where we read), fetching (what to ask whom),
decoding (fetched bytes to records), membership (the group), assignors/; then core (all of them as one), engine
(obeys the core's effects on an event loop), faces.
"""

from ottla.clients.consumer.asynchronous import AsyncConsumer
from ottla.clients.consumer.blocking import Consumer
from ottla.clients.consumer.core import OffsetAndMetadata
from ottla.clients.consumer.record import Record

__all__ = ["AsyncConsumer", "Consumer", "OffsetAndMetadata", "Record"]
