"""Send records: `Producer` blocks, `AsyncProducer` is for asyncio. One core makes the decisions for both.

Reading order: asynchronous and producer (public classes; base has what they share), _encoder (a record into its open
batch, and its future; compiled if possible), accumulator (topics, queues, memory), batch (the life of a batch, and the
order and sequence numbers of its partition), core and outcomes (what is sent when, and what a response means),
transaction_states and transactions (KIP-98, KIP-890), effects and sender (I/O), requests, metadata, runtime,
delivery (futures), columns (Arrow).
"""

from ottla.common.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
