"""Python clients for Ottla and any Kafka: Producer, Consumer, Admin, each blocking or (`Async...`) for asyncio.

Every name here is imported on first use. Read `errors` for the exceptions and `options` for the settings, then
`network` and `cluster`, which all clients share, then `producer`, `consumer`, `admin`.
"""

from ottla.common.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
