"""Send records: `Producer` blocks, `AsyncProducer` is for asyncio; one core decides for both.

Reading order: face (what users call), accumulator (a record into its batch, and its future; compiled if possible),
core (what happens to a batch), partition (order and sequences), sender (the I/O of the core),
requests, settings, serializers, columns (Arrow).
"""

from ottla.clients.producer.batch import AppendedRange, RecordMetadata
from ottla.clients.producer.batch import BlockingDelivery as Delivery
from ottla.clients.producer.face import AsyncProducer, Producer
from ottla.clients.producer.waiting import AsyncDelivery

__all__ = ["AppendedRange", "AsyncDelivery", "AsyncProducer", "Delivery", "Producer", "RecordMetadata"]
