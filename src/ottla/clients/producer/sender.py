"""The producer's shell: runs the core on one loop and does its I/O.

`turn` and everything after it belong to the loop. Other threads take `lock` to call `core.append` and friends, and then
have the loop call `turn` if `core.woken` is false. The lock is never held while something is encoded, sent or called.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Mapping
from random import Random
from typing import Any

from ottla.clients.errors import ClientError, error_for
from ottla.clients.network import Cluster, client_error
from ottla.clients.producer.core import ProducerCore
from ottla.clients.producer.events import AskProducerId, Effect, Finished, Outcome, RefreshMetadata, Send, Wake
from ottla.clients.producer.requests import outcomes_of, produce_request, version_limit
from ottla.clients.producer.settings import ProducerSettings
from ottla.network.client import ClientConnection, NetworkError
from ottla.protocol.message import Message
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse

logger = logging.getLogger("ottla.clients.producer")

NO_TRANSACTION_TIMEOUT_MS = 2**31 - 1
ACKNOWLEDGED_BY_NOBODY = Outcome()


def now_ms() -> int:
    """The steady clock that the core goes by."""
    return time.monotonic_ns() // 1_000_000


class Sender:
    """One producer's core, its lock, its cluster."""

    def __init__(self, options: Mapping[str, Any], settings: ProducerSettings) -> None:
        self.settings = settings
        self.cluster = Cluster(options)
        self.core = ProducerCore(settings, self.cluster.view, Random())
        self.lock = threading.Lock()
        self.now_ms = now_ms
        self._allow_auto_create: bool = options["allow_auto_create_topics"]
        self._timeout_s = settings.request_timeout_ms / 1000
        self._queued: dict[int, list[Send]] = {}  # for nodes that a connection is being made to
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None

    def window(self, topic: str, partitions: int) -> int:
        """Bytes of batches that keep every broker of the topic busy."""
        leaders = {self.cluster.view.leader(topic, partition) for partition in range(partitions)}
        return (self.settings.max_in_flight + 1) * self.settings.max_request_size * len(leaders)

    def available(self, topic: str, partitions: int) -> list[int]:
        """The partitions that have a leader."""
        return [index for index in range(partitions) if self.cluster.view.leader(topic, index) is not None]

    def turn(self) -> None:
        """Look what is to be done, and do it."""
        with self.lock:
            effects = self.core.step(now_ms())
        self._obey(effects)

    def _obey(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._send(effect)
            elif isinstance(effect, Finished):
                for batch in effect.batches:
                    batch.announce()
            elif isinstance(effect, Wake):
                for wake in effect.wakers:
                    wake()
            elif isinstance(effect, RefreshMetadata):
                self.spawn(self._refresh(effect))
            elif isinstance(effect, AskProducerId):
                self.spawn(self._ask_producer_id())
        self._set_timer()

    def _set_timer(self) -> None:
        due_ms = self.core.next_timer_ms()
        if due_ms == self._timer_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._timer_ms = due_ms
        if due_ms is not None:
            delay_s = max(0, due_ms - now_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = self._timer_ms = None
        self.turn()

    def spawn(self, coroutine: Any) -> None:
        """Run a coroutine until `close`."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- produce ------------------------------------------------------------------------------------------------

    def _send(self, send: Send) -> None:
        queued = self._queued.get(send.node_id)
        if queued is not None:
            queued.append(send)
            return
        connection = self.cluster.connected(send.node_id)
        if connection is not None:
            self._transmit(connection, send)
        else:
            self._queued[send.node_id] = [send]
            self.spawn(self._connect(send.node_id))

    async def _connect(self, node_id: int) -> None:
        """Send what is queued for a node, or report it lost."""
        try:
            connection = await self.cluster.connection(node_id, timeout_s=self._timeout_s)
        except ClientError as error:
            for send in self._queued.pop(node_id):
                self.lose(send, error)
            return
        for send in self._queued.pop(node_id):
            self._transmit(connection, send)

    def _transmit(self, connection: ClientConnection, send: Send) -> None:
        try:
            ids = send.topic_ids = {
                batch.queue.topic: self.cluster.view.topic_id(batch.queue.topic) for batch in send.batches
            }
            request = produce_request(send.batches, self.settings, ids)
            version = connection.highest_version(ProduceRequest.API_KEY, version_limit(ids))
            future = connection.send_nowait(request, version=version, timeout_s=self._timeout_s)
        except NetworkError as error:
            self.lose(send, client_error(error))
        except Exception as error:
            logger.exception("Cannot encode %d batches", len(send.batches))
            self.lose(send, ClientError(f"The records cannot be encoded: {error}"))
        else:
            future.add_done_callback(lambda done: self._answered(send, done))

    def _answered(self, send: Send, future: asyncio.Future[Message | None]) -> None:
        if future.cancelled():
            self.lose(send, ClientError("The request was cancelled"))
            return
        error = future.exception()
        if error is not None:
            self.lose(send, client_error(error))
            return
        self.answer(send, future.result())

    def answer(self, send: Send, response: Message | None) -> None:
        """The broker's answer; None with acks=0."""
        if isinstance(response, ProduceResponse):
            outcomes = outcomes_of(response, send.topic_ids, self.cluster.view)
            throttle_ms = response.throttle_time_ms
        else:
            keys = ((batch.queue.topic, batch.queue.partition) for batch in send.batches)
            outcomes, throttle_ms = dict.fromkeys(keys, ACKNOWLEDGED_BY_NOBODY), 0
        with self.lock:
            effects = self.core.responded(send.request_id, outcomes, throttle_ms, now_ms())
        self._obey(effects)

    def lose(self, send: Send, error: ClientError) -> None:
        """No answer will come."""
        with self.lock:
            effects = self.core.lost(send.request_id, error, now_ms())
        self._obey(effects)

    # --- metadata and producer id -------------------------------------------------------------------------------

    async def _refresh(self, asked: RefreshMetadata) -> None:
        # Short at first: the core tries again, and meanwhile can tell who waits what the problem is.
        timeout_s = min(self._timeout_s, 2.0 ** min(asked.failures, 10))
        try:
            await self.cluster.refresh(asked.topics, timeout_s=timeout_s, allow_auto_create=self._allow_auto_create)
        except ClientError as error:
            with self.lock:
                effects = self.core.metadata_failed(error, now_ms())
        else:
            with self.lock:
                effects = self.core.metadata_changed(now_ms())
        self._obey(effects)

    async def _ask_producer_id(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=NO_TRANSACTION_TIMEOUT_MS)
        try:
            response: InitProducerIdResponse = await self.cluster.send(None, request, timeout_s=self._timeout_s)
            if response.error_code:
                raise error_for(response.error_code)
        except ClientError as error:
            with self.lock:
                effects = self.core.producer_id_failed(error, now_ms())
        else:
            with self.lock:
                effects = self.core.producer_id_given(response.producer_id, response.producer_epoch, now_ms())
        self._obey(effects)

    # --- end ----------------------------------------------------------------------------------------------------

    async def close(self, error: ClientError) -> None:
        """What is not acknowledged fails with `error`; connections are closed."""
        with self.lock:
            effects = self.core.stop(error)
        self._obey(effects)
        if self._timer is not None:
            self._timer.cancel()
        await self.cluster.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)
