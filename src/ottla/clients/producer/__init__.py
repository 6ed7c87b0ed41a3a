"""Send records: `Producer` blocks, `AsyncProducer` is for asyncio. One core makes the decisions for both.

Reading order: producer and asynchronous (public classes; base has what they share), _encoder (a record into its open
batch, and its future; compiled if possible), accumulator (topics, queues, memory), batch (the life of a batch),
partition_queue (order and sequence numbers), core (what is sent when, and outcomes), transaction_states and
transactions (KIP-98, KIP-890), sender (I/O), requests, waiting, columns (Arrow), transaction_calls (the `with`
statement of a transaction).
"""

from ottla.common.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
