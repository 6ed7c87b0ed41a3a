"""Send records: `Producer` blocks, `AsyncProducer` is for asyncio; one core decides for both.

Reading order: face (what users call), core (what happens to a record), partition (order and sequences), batch
(futures), sender (the core's I/O), requests, partitioner, settings, serializers, columns (Arrow).
"""

from ottla.clients.producer.batch import AppendedRange, RecordMetadata
from ottla.clients.producer.face import AsyncProducer, Producer

__all__ = ["AppendedRange", "AsyncProducer", "Producer", "RecordMetadata"]
