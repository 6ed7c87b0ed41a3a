"""Python clients for Ottla and any Kafka: Producer, Consumer, Admin, each blocking or (`Async...`) for asyncio.

Every name here is imported on first use. Read `errors` for what they raise, `options` for their settings, then
`network` and `cluster` for what they share, then `producer`, `consumer`, `admin`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.clients.admin import Admin as Admin
    from ottla.clients.admin import AsyncAdmin as AsyncAdmin
    from ottla.clients.errors import BrokerError as BrokerError
    from ottla.clients.errors import BrokerUnavailable as BrokerUnavailable
    from ottla.clients.errors import BufferExhausted as BufferExhausted
    from ottla.clients.errors import ClientError as ClientError
    from ottla.clients.errors import Closed as Closed
    from ottla.clients.errors import ConfigurationError as ConfigurationError
    from ottla.clients.errors import ConnectionLost as ConnectionLost
    from ottla.clients.errors import DeliveryTimedOut as DeliveryTimedOut
    from ottla.clients.errors import RequestTimedOut as RequestTimedOut
    from ottla.common.ids import TopicPartition as TopicPartition

_HOME = {
    "Admin": "ottla.clients.admin",
    "AsyncAdmin": "ottla.clients.admin",
    "Producer": "ottla.clients.producer",
    "AsyncProducer": "ottla.clients.producer",
    "RecordMetadata": "ottla.clients.producer",
    "Consumer": "ottla.clients.consumer",
    "AsyncConsumer": "ottla.clients.consumer",
    "Record": "ottla.clients.consumer",
    "TopicPartition": "ottla.common.ids",
}


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        if not name[:1].isupper():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = "ottla.clients.errors"
    try:
        value: object = getattr(importlib.import_module(home), name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    globals()[name] = value
    return value
