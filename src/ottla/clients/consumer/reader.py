"""The common part of consumers and share consumers: a client on the network, one poll at a time, start and end."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from uuid import uuid4

from ottla.clients.cluster import ClusterView
from ottla.clients.consumer.deserializers import Deserializers, deserializer
from ottla.clients.consumer.effect_runner import Core, EffectRunner, Settings
from ottla.clients.consumer.record import K, V
from ottla.clients.deferred import Deferred
from ottla.clients.driver import Driver
from ottla.clients.dropped import when_dropped, when_dropped_async
from ottla.clients.errors import ClientError, Closed, ConcurrentUse, DeserializationFailed, RequestTimedOut
from ottla.clients.network import Cluster
from ottla.clients.network_settings import read_network_settings
from ottla.clients.waits import AsyncWaits, BlockingWaits, Waits
from ottla.common.ids import uuid_to_text

if TYPE_CHECKING:
    import weakref

logger = logging.getLogger("ottla.clients.consumer")
CLOSE_S: Final = 10.0
"""How long close may take."""
GRACE_S: Final = 1.0
"""How much longer than its own deadline the closing of the client may take."""


C = TypeVar("C", bound=Core)
R = TypeVar("R")
T = TypeVar("T")


class ReaderClient(Generic[C]):
    """A core and the runner of its effects. Coroutines run on the runner's loop; other methods in any thread.

    `notify` is called in any thread when a poll may be able to make progress.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        settings: Settings,
        core_of: Callable[[ClusterView, str], C],
        notify: Callable[[], None],
    ) -> None:
        cluster = Cluster(read_network_settings(options))
        self.core = core_of(cluster.view, uuid_to_text(uuid4().bytes))
        self.runner = EffectRunner(cluster, self.core, settings, notify)
        self.change = self.runner.change
        self._api_timeout_s = settings.api_timeout_ms / 1000
        self._commits: set[asyncio.Task[None]] = set()

    @property
    def closed(self) -> bool:
        return self.runner.closed

    @abstractmethod
    def describe(self) -> str:
        """How warnings name the consumer."""

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self.runner.start(loop)

    async def _until(self, find: Callable[[], R | None], timeout_s: float | None, problem: str) -> R:
        """Call `find` after each event until it returns something other than None. Raises RequestTimedOut."""
        limit_s = self._api_timeout_s if timeout_s is None else timeout_s
        advanced = self.runner.advanced
        try:
            async with asyncio.timeout(limit_s):
                while (found := find()) is None:
                    advanced.clear()
                    await advanced.wait()
                return found
        except TimeoutError as error:
            raise RequestTimedOut(f"{problem} within {limit_s:g} s") from error

    def _commit_in_background(self, commit: Coroutine[Any, Any, None]) -> None:
        task = self.runner.spawn(commit)
        self._commits.add(task)
        task.add_done_callback(self._commits.discard)

    def _call_back(self, callback: Callable[[R], Any], result: R) -> None:
        try:
            callback(result)
        except Exception:  # a user's function may raise anything, and the loop must go on
            logger.exception("The callback of a commit failed")

    @abstractmethod
    async def close(self, timeout_s: float) -> None:
        """Leave the group, and close the connections. Does not raise if a broker does not respond."""


class Reader(Generic[K, V]):
    """The base of all consumers. Held during a poll or close, `_turn` admits one at a time."""

    _client: ReaderClient[Any]
    _dropped: weakref.finalize[Any, Any]
    _closed_text = "The consumer was closed"
    _busy_text = "poll is already running in another thread, or called this listener"

    def __init__(self, waits: Waits) -> None:
        self._waits = waits
        self._ready = waits.event()
        self._turn = threading.Lock()
        self._closing = False
        self._pid = os.getpid()

    def _read_deserializers(self, options: Mapping[str, Any], *, skip: bool = False) -> Deserializers:
        may_defer = isinstance(self._waits, AsyncWaits)
        return Deserializers(
            deserializer(options["key_deserializer"], "key.deserializer", deferring=may_defer),
            deserializer(options["value_deserializer"], "value.deserializer", deferring=may_defer),
            skip=skip,
        )

    async def _apply(
        self, apply: Callable[[T], tuple[T, DeserializationFailed | None]], records: T
    ) -> tuple[T, DeserializationFailed | None]:
        """Deserialize; wait for the schemas that are not loaded yet."""
        while True:
            try:
                return apply(records)
            except Deferred as needed:  # each schema once: then it is known, or its failure is raised
                await asyncio.to_thread(needed.resolve)

    # The finalizers must not refer to this object, or a consumer that the program dropped would never be collected.

    def _run_on_loop(self) -> None:
        """Run the network on the running event loop."""
        client, loop = self._client, asyncio.get_running_loop()
        client.start(loop)
        self._dropped = when_dropped_async(self, client.describe, lambda: loop, lambda: client.close(CLOSE_S))

    def _run_in_thread(self, waits: BlockingWaits, name: str) -> None:
        """Run the network on the loop of a new thread."""
        client = self._client
        driver = waits.driver = Driver(name)
        self._dropped = when_dropped(self, client.describe, driver, lambda: client.close(CLOSE_S))
        driver.call_soon(client.start, driver.loop)

    def _begin(self) -> None:
        """Begin a poll. Raises ConcurrentUse, Closed, or ClientError in a forked child."""
        # A forked child would read the records that the parent has buffered a second time.
        if self._pid != os.getpid():
            raise ClientError("This consumer was created before a fork: create one in each process")
        if self._closing:
            raise Closed(self._closed_text)
        if not self._turn.acquire(blocking=False):
            raise ConcurrentUse(self._busy_text)
