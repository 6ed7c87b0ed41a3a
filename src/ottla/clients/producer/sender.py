"""The I/O of the producer: runs the core on one event loop and executes its effects.

Only the loop's thread calls `run_core` and the methods after it. Other threads hold `lock` while they call the core,
and call `wake` afterwards if `core.accumulator.needs_step` is set. The lock is never held while a batch is compressed
or sent, or while a callback runs.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

from ottla.clients.errors import ClientError, ConnectionLost, error_for
from ottla.clients.events import Throttled
from ottla.clients.network import TRANSACTION, Cluster
from ottla.clients.network_errors import client_error
from ottla.clients.network_settings import read_network_settings
from ottla.clients.producer._encoder import Delivery, in_callback
from ottla.clients.producer.batch import Batch, call_back
from ottla.clients.producer.core import ProducerCore, metrics
from ottla.clients.producer.effects import (
    AskCoordinator,
    Effect,
    Finished,
    Outcome,
    RequestMetadata,
    RequestProducerId,
    Send,
    Wake,
)
from ottla.clients.producer.partitioner import Choice
from ottla.clients.producer.requests import outcomes_of, produce_request, version_limit
from ottla.clients.producer.settings import ProducerSettings
from ottla.clients.telemetry import Role, Telemetry, Times
from ottla.network.client import ClientConnection, NetworkError
from ottla.protocol.message import Message
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from ottla.protocol.wire import EncodeError

logger = logging.getLogger("ottla.clients.producer")

NO_TRANSACTION_TIMEOUT_MS = 2**31 - 1
WITHOUT_RESPONSE = Outcome()
# How long `close` waits for callbacks that are coroutines.
CALLBACKS_S = 5.0
FINISH_POLL_S = 0.02


async def _run_in_order(coroutines: list[Coroutine[Any, Any, object]], then: Callable[[], object]) -> None:
    token = in_callback.set(True)
    try:
        for coroutine in coroutines:
            try:
                await coroutine
            except Exception:  # the program's callback may raise anything; the other callbacks must run
                logger.exception("A delivery callback failed")
    finally:
        in_callback.reset(token)
        for coroutine in coroutines:
            coroutine.close()
        then()


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class _Response:
    """Takes the outcome of one request (`requests_in_flight.Completion`) and passes it to the core.

    A response in the producer's thread is handled immediately: its waiter wakes up when the loop is about to release
    the interpreter lock. All else is handled in an iteration of its own: the loop must see the exceptions of the
    program's callbacks and Ctrl-C in an asyncio program; errors and acks=0 come while their caller sends.
    """

    __slots__ = ("_answered", "_batches", "_is_done", "_lost", "_sender", "is_sent")

    def __init__(
        self,
        sender: Sender,
        answered: Callable[[Message | None], None],
        lost: Callable[[ClientError], None],
        batches: Sequence[Batch] = (),
    ) -> None:
        self._sender = sender
        self._answered = answered
        self._lost = lost
        self._batches = batches
        self._is_done = False
        self.is_sent = False

    def done(self) -> bool:
        return self._is_done

    def set_result(self, response: Message | None) -> None:
        self._is_done = True
        if self.is_sent and self._sender.loop is None and not any(batch.callbacks for batch in self._batches):
            self._answered(response)
        else:
            asyncio.get_running_loop().call_soon(self._answered, response)

    def set_exception(self, error: NetworkError) -> None:
        self._is_done = True
        asyncio.get_running_loop().call_soon(self._lost, client_error(error))

    def cancel(self) -> None:
        self._is_done = True


class Sender:
    """The core of one producer, its lock, and its connections."""

    def __init__(
        self,
        options: Mapping[str, Any],
        settings: ProducerSettings,
        choose: Choice | None = None,
    ) -> None:
        self.settings = settings
        self.cluster = Cluster(read_network_settings(options))
        self.core = ProducerCore(settings, self.cluster.view, Random(), choose)
        self.core.runtime.add_callback = self._add_callback
        self.core.runtime.run_coroutines = self._run_coroutines
        self.core.runtime.report_unread_error = self._report_unread_error
        if options["enable_metrics_push"]:
            self.cluster.telemetry = Telemetry(self.cluster, Role("producer", lambda: metrics(self.core)))
        self.lock = threading.Lock()
        self.call_soon: Callable[[Callable[[], None]], object]  # has the loop call a function; set by the producer
        self._allow_auto_create: bool = options["allow_auto_create_topics"]
        self._queued: dict[int, list[Send]] = {}  # by broker, while its connection is being established
        self._tasks: set[asyncio.Task[None]] = set()
        self.loop: asyncio.AbstractEventLoop | None = None  # of an asyncio producer, from its first call on
        self._callbacks: set[asyncio.Task[None]] = set()
        self._reported_unread_error = False
        self._begun = False
        self._is_run_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None

    @property
    def _timeout_s(self) -> float:
        return self.settings.request_timeout_ms / 1000

    def window(self, topic: str, partitions: int) -> int:
        """The bytes of batches that keep every broker of the topic busy."""
        leaders = {self.cluster.view.leader(topic, partition) for partition in range(partitions)}
        return (self.settings.max_in_flight + 1) * self.settings.max_request_size * len(leaders)

    def available(self, topic: str, partitions: int) -> list[int]:
        return [index for index in range(partitions) if self.cluster.view.leader(topic, index) is not None]

    def describe(self) -> str:
        return f"producer with {self.core.pending_records()} records to send"

    def check_loop(self) -> None:
        """Bind an asyncio producer to the running loop in the first call. Raises ClientError on another loop."""
        running = asyncio.get_running_loop()
        if self.loop is None:
            self.loop = running
        elif self.loop is not running:
            raise ClientError(
                "This producer belongs to the event loop on which it was first used, and that is not the running one: "
                "create a producer in each asyncio.run()"
            )

    def wake(self) -> None:
        """Have the loop call `run_core` soon. Any thread may call this, with or without the lock.

        Calls between two runs of the core are merged into one. `send().result()` calls this twice (a new batch, then
        its waiter): the second call finds the run scheduled and costs no system call. The order matters: a caller
        changes the state before it reads `_is_run_scheduled`, and `run_core` clears that before it reads the state.
        """
        if not self._is_run_scheduled:
            self._is_run_scheduled = True
            try:
                self.call_soon(self.run_core)
            except BaseException:
                self._is_run_scheduled = False
                raise

    def run_core(self) -> None:
        self._is_run_scheduled = False
        if not self._begun:
            self._begun = True
            self.cluster.begin_statistics(lambda: (metrics(self.core), {}))
        self._tell(self.core.step)

    def _tell(self, event: Callable[..., list[Effect]], *what: object) -> None:
        """Report an event to the core, and execute the effects."""
        with self.lock:
            effects = event(*what, now_ms())
        self.execute(effects)

    def execute(self, effects: list[Effect]) -> None:
        """Execute effects, on the loop and without the lock."""
        for effect in effects:
            if isinstance(effect, Send):
                self._send(effect)
            elif isinstance(effect, Finished):
                for batch in effect.batches:
                    batch.announce()
            elif isinstance(effect, Wake):
                for wake in effect.wakers:
                    wake()
            elif isinstance(effect, RequestMetadata):
                self._spawn(self._refresh(effect))
            elif isinstance(effect, AskCoordinator):
                self._ask_coordinator(effect)
            elif isinstance(effect, RequestProducerId):
                self._spawn(self._request_producer_id())
        self._set_timer()

    def _set_timer(self) -> None:
        """Have the core run when its timer is due, or earlier: most records do not move the timer (3 µs each time).

        A single record has a short linger until its waiter comes, then only its delivery timeout. The core computes its
        timer again in each run, so a run that is too early changes nothing.
        """
        due_ms = self.core.next_timer_ms()
        if due_ms is None or (self._timer_ms is not None and self._timer_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = due_ms
        delay_s = max(0, due_ms - now_ms()) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = self._timer_ms = None
        self.run_core()

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- outcomes -----------------------------------------------------------------------------------------------

    def _add_callback(self, delivery: Delivery, callback: Callable[[Delivery], object]) -> None:
        with self.lock:  # without it, the batch could be split between these lines
            batch: Any = delivery._batch.leaf(delivery._index)[0]  # noqa: SLF001
            is_added = batch.add_callback(delivery, callback)
        if not is_added:
            coroutine = call_back(callback, delivery, batch.queue)
            if coroutine is not None:
                asyncio.get_running_loop().create_task(coroutine)

    def _run_coroutines(self, coroutines: list[Coroutine[Any, Any, object]], then: Callable[[], object]) -> None:
        task = asyncio.get_running_loop().create_task(_run_in_order(coroutines, then))
        self._callbacks.add(task)
        task.add_done_callback(self._callbacks.discard)

    def _report_unread_error(self, batch: Batch) -> None:
        """Log the first failure without a callback or `result()`. Called in any thread, by the garbage collector."""
        if self._reported_unread_error:
            return
        self._reported_unread_error = True
        logger.error(
            "%d records for %s were not delivered, and the program did not ask for the outcome: %s. Later failures "
            "are not logged; look at each delivery's result(), or give send() a callback",
            batch.count, batch.queue, batch.error,
        )  # fmt: skip

    async def finish(self, error: ClientError) -> None:
        """Wait at most delivery.timeout.ms for all outcomes, and close a producer that the program dropped.

        An open transaction is aborted.
        """
        with self.lock:
            call = self.core.begin_close()
            batches = self.core.begin_flush()
        self.run_core()
        deadline = time.monotonic() + self.settings.delivery_timeout_ms / 1000

        def waits() -> bool:
            return any(not batch.announced for batch in batches) or (call is not None and not call.done)

        while waits() and time.monotonic() < deadline:
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
            self._spawn(self._connect(send.node_id))

    async def _connect(self, node_id: int) -> None:
        try:
            connection = await self.cluster.connection(node_id, timeout_s=self._timeout_s)
        except ClientError as error:
            for send in self._queued.pop(node_id):
                self.lose(send, error)
            return
        for send in self._queued.pop(node_id):
            self._transmit(connection, send)

    def _transmit(self, connection: ClientConnection, send: Send) -> None:
        if any(batch.done for batch in send.batches):
            # Expired or aborted while the request waited for the connection. The other batches are sent again.
            self.lose(send, ConnectionLost("The request was not sent: a batch in it has expired or was aborted"))
            return
        completion = _Response(self, partial(self.respond, send), partial(self.lose, send), send.batches)
        try:
            ids = send.topic_ids = {
                batch.queue.topic: self.cluster.view.topic_id(batch.queue.topic) for batch in send.batches
            }
            transactions = self.core.transactions
            transactional_id = None if transactions is None else transactions.transactional_id
            request = produce_request(send.batches, self.settings, ids, transactional_id)
            version = connection.highest_version(ProduceRequest.API_KEY, version_limit(ids, transactions))
            connection.send_to(completion, request, version=version, timeout_s=self._timeout_s)
            completion.is_sent = True
            self._add_queue_times(send)
        except NetworkError as error:
            completion.cancel()
            self.lose(send, client_error(error))
        except Exception as error:  # an unhandled error: the records must fail, or they would wait until their timeout
            completion.cancel()
            logger.exception("Cannot encode %d batches", len(send.batches))
            self.lose(send, ClientError(f"The records cannot be encoded: {error}"))

    def _times(self) -> Times | None:
        telemetry = self.cluster.telemetry
        return None if telemetry is None else telemetry.times

    def _add_queue_times(self, send: Send) -> None:
        """Add how long each batch waited until it was sent, if a subscription asks for metrics."""
        times = self._times()
        if times is not None:
            # A batch has `delivery_timeout_ms` from its creation on.
            latest_ms = now_ms() + self.settings.delivery_timeout_ms
            for batch in send.batches:
                times["record.queue.time"].add(max(0.0, latest_ms - batch.deadline_ms) / 1000)

    def respond(self, send: Send, response: Message | None) -> None:
        if isinstance(response, ProduceResponse):
            outcomes = outcomes_of(response, send.topic_ids, self.cluster.view)
            throttle_ms = response.throttle_time_ms
            if throttle_ms:
                self.cluster.reporter.report(Throttled(self.cluster.reporter.client_id, send.node_id, throttle_ms))
            times = self._times()
            if times is not None:
                times["produce.throttle.time"].add(throttle_ms / 1000)
        else:
            keys = ((batch.queue.topic, batch.queue.partition) for batch in send.batches)
            outcomes, throttle_ms = dict.fromkeys(keys, WITHOUT_RESPONSE), 0
        self._tell(self.core.responded, send.request_id, outcomes, throttle_ms)

    def lose(self, send: Send, error: ClientError) -> None:
        self._tell(self.core.lost, send.request_id, error)

    # --- metadata and producer id -------------------------------------------------------------------------------

    async def _refresh(self, effect: RequestMetadata) -> None:
        # The first timeouts are short: the core retries, and in between waiting senders can see the problem.
        timeout_s = min(self._timeout_s, 2.0 ** min(effect.failures, 10))
        try:
            await self.cluster.refresh(effect.topics, timeout_s=timeout_s, allow_auto_create=self._allow_auto_create)
        except ClientError as error:
            self.cluster.reporter.problem(error)
            self._tell(self.core.metadata_failed, error)
        else:
            self._tell(self.core.metadata_changed)

    async def _request_producer_id(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=NO_TRANSACTION_TIMEOUT_MS)
        try:
            response: InitProducerIdResponse = await self.cluster.send(None, request, timeout_s=self._timeout_s)
            if response.error_code:
                raise error_for(response.error_code)
        except ClientError as error:
            self.cluster.reporter.problem(error)
            self._tell(self.core.producer_id_failed, error)
        else:
            self._tell(self.core.producer_id_given, response.producer_id, response.producer_epoch)

    def _ask_coordinator(self, effect: AskCoordinator) -> None:
        """Send a request to a coordinator, at once if it is connected: a task would take several iterations."""
        if effect.forget:
            self.cluster.forget_coordinator(effect.key, key_type=effect.key_type)
        node = self.cluster.known_coordinator(effect.key, effect.key_type)
        connection = None if node is None else self.cluster.connected(node)
        if connection is None:
            self._spawn(self._connect_to_coordinator(effect))
        else:
            self._transmit_to_coordinator(connection, effect)

    async def _connect_to_coordinator(self, effect: AskCoordinator) -> None:
        cluster, timeout_s = self.cluster, self._timeout_s
        try:
            node = await cluster.coordinator(effect.key, key_type=effect.key_type, timeout_s=timeout_s)
            connection = await cluster.connection(node, timeout_s=timeout_s)
        except ClientError as error:
            self.coordinator_lost(error)
        else:
            self._transmit_to_coordinator(connection, effect)

    def _transmit_to_coordinator(self, connection: ClientConnection, effect: AskCoordinator) -> None:
        answered = partial(self.coordinator_answered, effect, connection)
        completion = _Response(self, answered, self.coordinator_lost)
        try:
            version = connection.highest_version(effect.request.API_KEY, effect.newest, effect.oldest)
            connection.send_to(completion, effect.request, version=version, timeout_s=self._timeout_s)
            completion.is_sent = True
        except (NetworkError, EncodeError) as error:
            completion.cancel()
            self.coordinator_lost(client_error(error))

    def coordinator_answered(
        self, effect: AskCoordinator, connection: ClientConnection, response: Message | None
    ) -> None:
        assert response is not None
        level = connection.features.get("transaction.version", 0) if effect.key_type == TRANSACTION else None
        self._tell(self.core.coordinator_answered, response, level)

    def coordinator_lost(self, error: ClientError) -> None:
        self.cluster.reporter.problem(error)
        self._tell(self.core.coordinator_lost, error)

    # --- close --------------------------------------------------------------------------------------------------

    async def close(self, error: ClientError) -> None:
        """Fail the unacknowledged records with `error`, and close the connections."""
        with self.lock:
            effects = self.core.stop(error)
        self.execute(effects)
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
