"""The consumer: cores that decide, an engine that waits for the network, an asyncio and a blocking face.

Reading order: record, options; the cores without I/O: positions (where we read), fetching (what to ask whom),
decoding (fetched bytes to records), requests (about offsets), reading (finds positions and fetches), membership (the
group), assignors/; then core (all of them as one), engine (obeys the core's effects on an event loop), faces.
"""

from ottla.clients.consumer.asynchronous import AsyncConsumer
from ottla.clients.consumer.blocking import Consumer
from ottla.clients.consumer.record import Record, TimestampType
from ottla.clients.consumer.requests import GroupMetadata, OffsetAndMetadata

__all__ = ["AsyncConsumer", "Consumer", "GroupMetadata", "OffsetAndMetadata", "Record", "TimestampType"]
