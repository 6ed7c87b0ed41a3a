"""Admin: a cluster's topics, configuration, groups, offsets, brokers and access, as typed calls.

Read `core` first: the state of one call, without I/O. `topics`, `configs`, `groups`, `cluster`, `transactions` and
`access` build the requests of each method and parse the responses. `shell` sends them. `asynchronous` is the asyncio
API; `blocking` derives the blocking API from it, method by method.
"""

from ottla.common.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
