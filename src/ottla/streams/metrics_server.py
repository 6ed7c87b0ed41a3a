"""Serves the metrics of a run over HTTP, in a thread: a pipeline neither waits for it nor fails with it.

While the address is in use, the thread retries. A scrape reads the statuses that the run offered last, so it asks
neither Spark nor the brokers.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from ottla.common import units
from ottla.common.completion import Completion
from ottla.common.slices import finish
from ottla.metrics.exposition import Samples
from ottla.metrics.http import Endpoint, Scrapes
from ottla.network.endpoint_tls import accepting
from ottla.network.sockets import is_loopback
from ottla.streams.metrics_address import KEYSTORE, TOKEN, MetricsAddress
from ottla.streams.metrics_rows import FAMILIES, add_status
from ottla.streams.status import RUNS, Status

logger = logging.getLogger("ottla.streams")

RETRY_S: Final = 10.0
CLOSE_S: Final = 5.0
"""How long the end of a run waits for the thread."""
WATCH_CERTIFICATE_S: Final = 5.0
"""How often changed files of the certificate are looked for."""
MOST_QUERIES: Final = 500
"""How many queries have samples: a program may start queries with new names as long as it runs."""
_BACKLOG: Final = 32


class MetricsServer:
    """Call `offer` often, and at last `close`. Any thread may do so."""

    def __init__(self, address: MetricsAddress) -> None:
        self._given = address
        self._lock = threading.Lock()
        self._statuses: dict[str, Status] = {}
        self.address: tuple[str, int] | None = None
        """The bound address; None before."""
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="ottla-streams-metrics", daemon=True)
        self._thread.start()

    def offer(self, status: Status) -> None:
        """Let scrapes have the latest status of a query. Does not block.

        A query above the limit replaces the first one that has ended; if all run, it has no samples.
        """
        with self._lock:
            if status.key not in self._statuses and len(self._statuses) >= MOST_QUERIES:
                ended = next((key for key, each in self._statuses.items() if each.phase not in RUNS), None)
                if ended is None:
                    return
                del self._statuses[ended]
            self._statuses[status.key] = status

    def close(self) -> None:
        """End the endpoint. Blocks for at most 5 seconds."""
        with suppress(RuntimeError):  # the thread has ended
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        endpoint = Endpoint(Scrapes(self._scrape, self._loop.time), self._loop, self._given.token)
        server = await self._listen(endpoint)
        if server is None:
            return
        while not self._closing.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), WATCH_CERTIFICATE_S)
            if self._given.tls is not None:
                self._given.tls.reload()
        server.close()
        endpoint.close()

    async def _listen(self, endpoint: Endpoint) -> asyncio.Server | None:
        """Return the server as soon as the address is free; None after `close`."""
        level = logging.WARNING
        while not self._closing.is_set():
            try:
                accept = accepting(self._given.tls, endpoint.connection)
                server = await self._loop.create_server(accept, self._given.host, self._given.port, backlog=_BACKLOG)
            except (OSError, UnicodeError) as error:  # UnicodeError: the host is not a valid international name
                logger.log(level, "Metrics not served at %s, retry every %g s: %s", self._given, RETRY_S, error)
                level = logging.DEBUG
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), RETRY_S)
                continue
            host, port = server.sockets[0].getsockname()[:2]
            self.address = host, port
            self._announce(MetricsAddress(host, port), is_reachable=not all(map(is_loopback, server.sockets)))
            return server
        return None

    def _announce(self, bound: MetricsAddress, *, is_reachable: bool) -> None:
        if is_reachable and self._given.token is not None and self._given.tls is None:
            logger.warning(
                "Serving metrics at %s, which other machines can reach, without encryption: $%s can be read on the"
                " network. Set $%s",
                bound,
                TOKEN,
                KEYSTORE,
            )
        logger.info("Serving metrics at %s://%s/metrics", "http" if self._given.tls is None else "https", bound)

    def _scrape(self, content_type: str) -> Completion[list[bytes]]:
        done: Completion[list[bytes]] = Completion()
        # A failure is a response with status 500 and a line in the log.
        done.complete_with(lambda: render(self._latest(), content_type, units.now_ms()))
        return done

    def _latest(self) -> list[Status]:
        with self._lock:
            return list(self._statuses.values())


def render(statuses: Sequence[Status], content_type: str, now_ms: int) -> list[bytes]:
    """Return the body of a scrape."""
    samples = Samples(FAMILIES)
    for status in statuses:
        add_status(samples, status, now_ms)
    return finish(samples.render(content_type))
