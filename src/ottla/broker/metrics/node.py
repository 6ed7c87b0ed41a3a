"""The metrics of a node with `ottla.metrics.listener`: counters, the endpoint, and their life.

`create_meter` is also for a node that only has a request log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.broker.http_listener import HttpListener
from ottla.broker.metrics.client_usage import ClientUsages
from ottla.broker.metrics.collect import RUNNING, STARTING, STOPPING, Sources, collect
from ottla.broker.metrics.lag_rows import GroupLag
from ottla.broker.metrics.loop_delay import LoopDelay
from ottla.broker.metrics.meter import Meter
from ottla.broker.metrics.requests import RequestTimes
from ottla.broker.metrics.slow_requests import SlowRequests
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.config.metrics_rows import CLIENT_AUTH, KEYSTORE, LISTENER, SLOW_REQUEST_MS, TOKEN
from ottla.metrics.http import Endpoint, Scrapes
from ottla.network.endpoint_tls import accepting, endpoint_tls

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.config import BrokerConfig
    from ottla.network.server import Server

logger = logging.getLogger(__name__)

# Quantiles and the greatest delay cover the last one to two windows.
WINDOW_S: Final = 60.0
# The rates of clients are averages of the last full interval.
RATES_S: Final = 10.0


def create_meter(config: BrokerConfig, loop: asyncio.AbstractEventLoop) -> Meter:
    """Return the meter of a node with these settings."""
    slow_ms = config.int(SLOW_REQUEST_MS)
    return Meter(RequestTimes(), ClientUsages(loop.time), SlowRequests(slow_ms) if slow_ms >= 0 else None)


class NodeMetrics:
    """Bound at its creation; `open` follows, and `close` may be called at any time."""

    def __init__(self, config: BrokerConfig, loop: asyncio.AbstractEventLoop, meter: Meter) -> None:
        """Bind the listener.

        Raises ListenError, and KafkaError if other machines could reach it without authentication or its certificate
        cannot be used.
        """
        self._loop = loop
        self._token = config.text(TOKEN)
        self.tls = endpoint_tls(config)
        self._listener = HttpListener(config, "METRICS", LISTENER)
        self.address = self._listener.address
        """The bound address of the endpoint."""
        given = config.text(LISTENER)
        authenticates = self._token is not None or config.text(CLIENT_AUTH) == "required"
        is_reachable = self._listener.is_reachable
        if is_reachable and not authenticates and not config.is_insecure:
            self._listener.close()
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{LISTENER}={given} would be open to other machines without authentication: set {TOKEN} or"
                f" {CLIENT_AUTH}=required, listen on 127.0.0.1, or start with --insecure (ottla.insecure=true)",
            )
        if is_reachable and self._token is not None and self.tls is None:
            logger.warning(
                "Serving metrics at %s, which other machines can reach, without encryption: %s can be read on the"
                " network. Set %s",
                given,
                TOKEN,
                KEYSTORE,
            )
        self._meter = meter
        self._loop_delay = LoopDelay(loop)
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}
        self._sources: Sources | None = None
        self._opening: asyncio.Task[None] | None = None

    def open(self, broker: Broker) -> None:
        """Answer scrapes, from the start of the node on."""
        sources = self._sources = Sources(broker, self._meter, self._loop_delay, time.time(), GroupLag(broker))
        worker = broker.schedulers.worker

        def make(content_type: str) -> Completion[list[bytes]]:
            return worker.submit(collect(sources, content_type))

        endpoint = Endpoint(Scrapes(make, self._loop.time), self._loop, self._token)
        self._loop_delay.start()
        self._every(WINDOW_S, self._rotate)
        self._every(RATES_S, self._meter.clients.roll)
        self._opening = self._loop.create_task(self._listen(endpoint))

    async def _listen(self, endpoint: Endpoint) -> None:
        await self._listener.open(endpoint, accepting(self.tls, endpoint.connection))
        logger.info("Serving metrics at %s/metrics", self._listener.url("http" if self.tls is None else "https"))

    def started(self, network: Server | None) -> None:
        """Report the node as running, with its connections."""
        assert self._sources is not None, "`open` was called"
        self._sources.network = network
        self._sources.state = RUNNING

    def stopping(self) -> None:
        """Report the node as stopping."""
        if self._sources is not None and self._sources.state != STARTING:
            self._sources.state = STOPPING

    def _rotate(self) -> None:
        self._meter.times.rotate()
        self._loop_delay.rotate()

    def _every(self, seconds: float, work: Callable[[], None]) -> None:
        """Call `work` now and at intervals, until the end."""
        work()
        self._timers[work] = self._loop.call_later(seconds, self._every, seconds, work)

    async def close(self) -> None:
        """Stop: close the listener and all connections."""
        for timer in self._timers.values():
            timer.cancel()
        self._loop_delay.stop()
        if self._opening is not None:
            await self._opening
        self._listener.close()
