"""The producer's shell: runs the core on one loop and does its I/O.

Only the loop's thread calls `turn` and the methods after it. Other threads hold `lock` while they call the core, and
call `wake` afterwards if `core.needs_step` is set. The lock is never held while a batch is encoded or sent, or while a
callback runs.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any

from ottla.clients.errors import ClientError, error_for
from ottla.clients.events import Throttled
from ottla.clients.network import Cluster, client_error
from ottla.clients.network_settings import read_network_settings
from ottla.clients.producer.batch import Batch, Delivery, call_back, in_callback
from ottla.clients.producer.core import ProducerCore
from ottla.clients.producer.events import AskProducerId, Effect, Finished, Outcome, RefreshMetadata, Send, Wake
from ottla.clients.producer.metrics import metrics
from ottla.clients.producer.partitioner import Choice
from ottla.clients.producer.requests import outcomes_of, produce_request, version_limit
from ottla.clients.producer.settings import ProducerSettings
from ottla.network.client import ClientConnection, NetworkError
from ottla.protocol.message import Message
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse

logger = logging.getLogger("ottla.clients.producer")

CallSoon = Callable[[Callable[[], None]], object]

NO_TRANSACTION_TIMEOUT_MS = 2**31 - 1
ACKNOWLEDGED_BY_NOBODY = Outcome()
# How long `close` waits for callbacks that are coroutines.
CALLBACKS_S = 5.0
FINISH_POLL_S = 0.02


async def _run_in_order(coroutines: list[Coroutine[Any, Any, object]], then: Callable[[], object]) -> None:
    token = in_callback.set(True)
    try:
        for coroutine in coroutines:
            try:
                await coroutine
            except Exception:
                logger.exception("A delivery callback failed")
    finally:
        in_callback.reset(token)
        for coroutine in coroutines:
            coroutine.close()
        then()


def now_ms() -> int:
    """The steady clock that the core goes by."""
    return time.monotonic_ns() // 1_000_000


class Sender:
    """One producer's core, its lock, its cluster."""

    def __init__(
        self,
        options: Mapping[str, Any],
        settings: ProducerSettings,
        choose: Choice | None,
        call_soon: CallSoon,
    ) -> None:
        self.settings = settings
        self.cluster = Cluster(read_network_settings(options))
        self.core = ProducerCore(settings, self.cluster.view, Random(), choose)
        self.core.shell.add_callback = self._add_callback
        self.core.shell.run_coroutines = self._run_coroutines
        self.core.shell.report_unheard = self._report_unheard
        self.lock = threading.Lock()
        self.now_ms = now_ms
        self._allow_auto_create: bool = options["allow_auto_create_topics"]
        self._timeout_s = settings.request_timeout_ms / 1000
        self._queued: dict[int, list[Send]] = {}  # for nodes that a connection is being made to
        self._tasks: set[asyncio.Task[None]] = set()
        self.loop: asyncio.AbstractEventLoop | None = None  # of an asyncio producer, once it was used
        self._callbacks: set[asyncio.Task[None]] = set()
        self._reported_unheard = False
        self._begun = False
        self._call_soon = call_soon
        self._is_turn_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None

    def window(self, topic: str, partitions: int) -> int:
        """Bytes of batches that keep every broker of the topic busy."""
        leaders = {self.cluster.view.leader(topic, partition) for partition in range(partitions)}
        return (self.settings.max_in_flight + 1) * self.settings.max_request_size * len(leaders)

    def available(self, topic: str, partitions: int) -> list[int]:
        """The partitions that have a leader."""
        return [index for index in range(partitions) if self.cluster.view.leader(topic, index) is not None]

    def describe(self) -> str:
        """The producer in a warning; needs no lock."""
        return f"producer with {self.core.pending_records()} records to send"

    def check_loop(self) -> None:
        """Bind an asyncio producer to the running loop, at the first call. Raises ClientError on another loop."""
        running = asyncio.get_running_loop()
        if self.loop is None:
            self.loop = running
        elif self.loop is not running:
            raise ClientError(
                "This producer belongs to the event loop on which it was first used, and that is not the running one: "
                "make a producer in each asyncio.run()"
            )

    def wake(self) -> None:
        """Have the loop call `turn` soon. Any thread may call this, with or without the lock.

        Calls between two turns are merged into one. `send().result()` calls this twice (a new batch, then its waiter):
        the second call finds the turn scheduled and costs no system call. The order matters: a caller changes the state
        before it reads `_is_turn_scheduled`, and `turn` clears that before it reads the state.
        """
        if not self._is_turn_scheduled:
            self._is_turn_scheduled = True
            try:
                self._call_soon(self.turn)
            except BaseException:
                self._is_turn_scheduled = False
                raise

    def turn(self) -> None:
        """Let the core step, and execute its effects."""
        self._is_turn_scheduled = False
        if not self._begun:
            self._begun = True
            self.cluster.begin_statistics(lambda: (metrics(self.core), {}))
        with self.lock:
            effects = self.core.step(now_ms())
        self.obey(effects)

    def obey(self, effects: list[Effect]) -> None:
        """Do what the core says, on the loop and without the lock."""
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

    # --- outcomes -----------------------------------------------------------------------------------------------

    def _add_callback(self, delivery: Delivery, callback: Callable[[Delivery], object]) -> None:
        with self.lock:  # or the batch could be split meanwhile
            batch = delivery._batch.leaf(delivery._index)[0]  # noqa: SLF001
            is_added = batch.add_callback(delivery, callback)
        if not is_added:
            coroutine = call_back(callback, delivery, batch.queue)
            if coroutine is not None:
                asyncio.get_running_loop().create_task(coroutine)

    def _run_coroutines(self, coroutines: list[Coroutine[Any, Any, object]], then: Callable[[], object]) -> None:
        """Run callbacks that are coroutines, in order, and then call `then`."""
        task = asyncio.get_running_loop().create_task(_run_in_order(coroutines, then))
        self._callbacks.add(task)
        task.add_done_callback(self._callbacks.discard)

    def _report_unheard(self, batch: Batch) -> None:
        """Log the first failure for which there was no callback and nobody asked. Any thread, also the collector's."""
        if self._reported_unheard:
            return
        self._reported_unheard = True
        logger.error(
            "%d records for %s were not delivered, and the program did not ask for the outcome: %s. Later failures "
            "are not logged; look at each delivery's result(), or give send() a callback",
            batch.count, batch.queue, batch.error,
        )  # fmt: skip

    async def finish(self, error: ClientError) -> None:
        """Wait until every record has its end, at most delivery.timeout.ms, and close: nobody uses the producer."""
        with self.lock:
            batches = self.core.begin_flush()
        self.turn()
        deadline = time.monotonic() + self.settings.delivery_timeout_ms / 1000
        while any(not batch.announced for batch in batches) and time.monotonic() < deadline:
            await asyncio.sleep(FINISH_POLL_S)
        await self.close(error)

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
            if throttle_ms:
                self.cluster.reporter.report(Throttled(self.cluster.reporter.client_id, send.node_id, throttle_ms))
        else:
            keys = ((batch.queue.topic, batch.queue.partition) for batch in send.batches)
            outcomes, throttle_ms = dict.fromkeys(keys, ACKNOWLEDGED_BY_NOBODY), 0
        with self.lock:
            effects = self.core.responded(send.request_id, outcomes, throttle_ms, now_ms())
        self.obey(effects)

    def lose(self, send: Send, error: ClientError) -> None:
        """No answer will come."""
        with self.lock:
            effects = self.core.lost(send.request_id, error, now_ms())
        self.obey(effects)

    # --- metadata and producer id -------------------------------------------------------------------------------

    async def _refresh(self, asked: RefreshMetadata) -> None:
        # Short at first: the core tries again, and meanwhile can tell who waits what the problem is.
        timeout_s = min(self._timeout_s, 2.0 ** min(asked.failures, 10))
        try:
            await self.cluster.refresh(asked.topics, timeout_s=timeout_s, allow_auto_create=self._allow_auto_create)
        except ClientError as error:
            self.cluster.reporter.problem(error)
            with self.lock:
                effects = self.core.metadata_failed(error, now_ms())
        else:
            with self.lock:
                effects = self.core.metadata_changed(now_ms())
        self.obey(effects)

    async def _ask_producer_id(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=NO_TRANSACTION_TIMEOUT_MS)
        try:
            response: InitProducerIdResponse = await self.cluster.send(None, request, timeout_s=self._timeout_s)
            if response.error_code:
                raise error_for(response.error_code)
        except ClientError as error:
            self.cluster.reporter.problem(error)
            with self.lock:
                effects = self.core.producer_id_failed(error, now_ms())
        else:
            with self.lock:
                effects = self.core.producer_id_given(response.producer_id, response.producer_epoch, now_ms())
        self.obey(effects)

    # --- end ----------------------------------------------------------------------------------------------------

    async def close(self, error: ClientError) -> None:
        """What is not acknowledged fails with `error`; connections are closed."""
        with self.lock:
            effects = self.core.stop(error)
        self.obey(effects)
        if self._timer is not None:
            self._timer.cancel()
        if self._callbacks:
            await asyncio.wait(self._callbacks, timeout=CALLBACKS_S)
        await self.cluster.close()
        tasks = [*self._tasks, *self._callbacks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)
