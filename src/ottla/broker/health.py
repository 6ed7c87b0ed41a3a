"""The probes of a node with `ottla.health.listener`: GET /health/live and /health/ready, without a client.

They answer as `ottla health live` and `ottla health ready` do, with status 200 or 503 and the state as one word or two.
Anyone who reaches the listener may ask, so that a response names no topic, and at most one scan of the metadata is made
in `FRESH_S`. A node whose event loop is blocked does not answer at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Literal

from ottla.broker.http_listener import HttpListener
from ottla.common.completion import Completion
from ottla.common.health import Health, Standing, readiness, why_not_serving
from ottla.common.ids import TopicPartition
from ottla.config.metrics_rows import HEALTH_LISTENER
from ottla.metrics.http import PLAIN, Answer, Endpoint

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.config import BrokerConfig

logger = logging.getLogger(__name__)

FRESH_S: Final = 1.0
Phase = Literal["starting", "running", "stopping"]


def node_health(broker: Broker, *, is_broker: bool) -> Health:
    """Return the health of a node that has started.

    A controller alone is ready while it knows the active controller; it has no replicas.
    """
    image, node = broker.metadata.image, broker.identity.node_id
    if not is_broker:
        return readiness(Standing(node, "" if broker.metadata.leader else "knows no active controller"))
    registered = image.brokers.get(node)
    missing = why_not_serving(None if registered is None else registered.fenced)
    failed = sum(not each.online for each in broker.logs.log_directories())
    behind = [
        TopicPartition(topic.name, index)
        for topic in image.topics_by_name.values()
        for index, partition in topic.partitions.items()
        if node in partition.replicas and node not in partition.isr
    ]
    return readiness(Standing(node, missing, failed, behind))


class HealthPages:
    """The two pages. `phase` follows the life of the node."""

    hint = b"The probes are /health/live and /health/ready.\n"

    def __init__(self, check: Callable[[], Health], now_s: Callable[[], float]) -> None:
        self._check = check
        self._now_s = now_s
        self._latest: tuple[float, Health] | None = None
        self.phase: Phase = "starting"

    def answer(self, path: str, headers: Mapping[str, str]) -> Completion[Answer] | None:  # noqa: ARG002 - of `Pages`
        """Return the response to a probe."""
        if path == "/health/live":
            return _answer("starting" if self.phase == "starting" else "live", is_good=self.phase != "starting")
        if path == "/health/ready":
            state = self.phase if self.phase != "running" else self._health().state
            return _answer(state, is_good=state == "ready")
        return None

    def _health(self) -> Health:
        now_s = self._now_s()
        if self._latest is None or now_s - self._latest[0] >= FRESH_S:
            self._latest = now_s, self._check()
        return self._latest[1]


def _answer(state: str, *, is_good: bool) -> Completion[Answer]:
    return Completion.of(Answer(200 if is_good else 503, PLAIN, [f"{state.replace('_', ' ')}\n".encode()]))


class NodeProbes:
    """The endpoint of the probes: bound at its creation; `open` follows, and `close` may be called at any time."""

    def __init__(self, config: BrokerConfig, loop: asyncio.AbstractEventLoop) -> None:
        """Bind the listener. Raises ListenError."""
        self._loop = loop
        self._is_broker = config.roles.is_broker
        self._listener = HttpListener(config, "HEALTH", HEALTH_LISTENER)
        self.address = self._listener.address
        self._pages: HealthPages | None = None
        self._opening: asyncio.Task[None] | None = None

    def open(self, broker: Broker) -> None:
        """Answer probes, from the start of the node on."""
        self._pages = HealthPages(lambda: node_health(broker, is_broker=self._is_broker), self._loop.time)
        self._opening = self._loop.create_task(self._listener.open(Endpoint(self._pages, self._loop)))
        logger.info("Serving probes at %s/health/live and /health/ready", self._listener.url())

    def enter(self, phase: Phase) -> None:
        """Report the node as running or stopping; a node that stops before it has started goes on starting."""
        if self._pages is not None and (phase == "running" or self._pages.phase == "running"):
            self._pages.phase = phase

    async def close(self) -> None:
        """Close the listener and all connections."""
        if self._opening is not None:
            await self._opening
        self._listener.close()
