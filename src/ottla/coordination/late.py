"""Names that the start of a broker does not need.

The coordinator of groups takes 60 ms of CPU to import, the coordinators of share groups and of transactions 15 ms each,
`Cleaner` 6 ms, `PeerRequests` 3 ms. A broker starts in 120 ms.
"""

from ottla.common.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
