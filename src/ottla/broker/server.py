"""A broker's life: open the storage, join the quorum, listen, and stop cleanly.

The order matters. Logs are recovered and the metadata replayed before anybody connects; the listeners are bound
before the broker registers, so that port 0 has become a real one; requests are accepted only when the partitions are
there. Stopping goes backwards, and the clean-shutdown file is written last of all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ottla.common.clock import SystemClock

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.config import BrokerConfig

logger = logging.getLogger(__name__)

STOP_WITHIN_S = 5.0


class Bootstrap(NamedTuple):
    """Where clients connect first."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
