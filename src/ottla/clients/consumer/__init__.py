"""The consumer: a core without I/O, a runner that carries out its effects, an asyncio and a blocking interface.

Reading order:

1. record, settings, effects: the values.
2. The fetch core: positions, fetch_session, fetcher, offset_lookup, decoding, collectors, delivery; fetch_core joins
   them. It knows nothing of groups.
3. The group: group_member; assignors, group_protocol, group_leader, membership (classic);
   heartbeat_requests, heartbeat_membership (KIP-848); requests and commits.
4. core: the fetch core, the group, topic_metadata and subscription together.
5. effect_runner and queries (on an event loop), client, interface; blocking and asynchronous are the public classes.
6. ranges and range_core: a reader of ranges for Spark, on the same fetch core and runner.
"""

from ottla.common.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
