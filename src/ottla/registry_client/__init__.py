"""An HTTP client of schema registries (Ottla's, Confluent's, Karapace): blocking and asyncio, with caches.

Needs the extra `registry`. The serializers of the producers and deserializers of the consumers
(`ottla.clients.serializers`), Spark's source and sink, the command line and the broker's contracts use it.

Methods and settings have the names of Confluent's clients. Read `settings`, then `errors`, then `operations` (the core:
requests, responses, caches, retries, failover, without I/O), then `blocking` and `asynchronous`, which only execute its
steps. Names here are imported on first use, since httpx takes 0.1 s to import.
"""

from ottla.common.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
