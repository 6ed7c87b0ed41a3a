"""A record that somebody waits for goes to the broker from the thread that waits, and the answer comes back to it.

Two handovers between threads would cost more than all else that is done for one record. So where a batch is alone in
its partition, the thread in `result()` takes it from the core as a request of its own and does the I/O on a socket
that belongs to nobody else: `deliver`. All that is not as it should be (no answer soon, a lost connection, an error)
goes back to the loop, which knows what to do; `deliver` then ends without the batch being done.

Only after a few such records, only without TLS and SASL, one thread at a time: the others go by the loop. While it goes
on like this, new batches do not wake the loop either, since they are gone before it would look; an alarm that every new
batch sets anew wakes it if one is not waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
import threading
from time import perf_counter
from typing import TYPE_CHECKING

from ottla.clients.driver import Driver
from ottla.clients.errors import ClientError, ConnectionLost, RequestTimedOut
from ottla.clients.producer.batch import Batch, Queue
from ottla.clients.producer.events import Send
from ottla.clients.producer.requests import encode, produce_request, version_limit
from ottla.clients.producer.settings import ProducerSettings
from ottla.clients.producer.template import Template
from ottla.common.ids import Uuid
from ottla.network.client import ClientConnection, NetworkError
from ottla.protocol.frames import decode_response_header
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from ottla.protocol.wire import DecodeError

if TYPE_CHECKING:
    from ottla.clients.producer.sender import Sender
    from ottla.clients.producer.timer import Alarm

logger = logging.getLogger("ottla.clients.producer")

SINGLES_BEFORE = 3  # that many waits for single records go by the loop: a short program makes no second connection
MAY_SPIN = (os.cpu_count() or 1) > 1
LARGEST_BATCH = 32_768  # bytes that a socket takes at once
PATIENCE_S = 0.25
SPIN_S = 0.0003  # a quick broker answers before a processor that went to sleep would be awake again
CONNECT_TIMEOUT_S = 0.25
FRESH_MS = 1000  # a socket that was used so lately is not asked whether it is still open
REST_MS = 10_000  # after a failure to connect
RECEIVE_BYTES = 4096
TEMPLATES = 64
SIZE_BYTES = 4


class _Unanswered(Exception):
    """No whole answer within PATIENCE_S; `data` came of it."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.data = data


class _Line:
    """A blocking socket to one broker, for one request at a time."""

    def __init__(self, beside: ClientConnection, address: tuple[str, int], version: int, client_id: str) -> None:
        self.beside = beside  # the loop's connection to the same broker
        self.address = address
        self.version = version
        self.socket = socket.create_connection(address, CONNECT_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(None)
        patience = struct.pack("ll", int(PATIENCE_S), int(PATIENCE_S % 1 * 1e6))
        for which in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self.socket.setsockopt(socket.SOL_SOCKET, which, patience)
        self.used_at_ms = 0
        self._spins = MAY_SPIN
        self._client_id = client_id
        self.correlation_id = 0
        self._templates: dict[tuple[Queue, int], Template] = {}

    def is_open(self) -> bool:
        """Whether the broker has not closed it meanwhile."""
        try:
            return bool(self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def send(self, batch: Batch, settings: ProducerSettings, topic_id: Uuid) -> Template:
        """Send the batch; gives what the answer is read by. Raises OSError."""
        records = encode(batch, settings.codec, settings.level)
        template = self._templates.get((batch.queue, len(records)))
        if template is None or template.topic_id != topic_id:
            if len(self._templates) >= TEMPLATES:
                self._templates.clear()
            ids = {batch.queue.topic: topic_id}
            limit = version_limit(ids)
            version = self.version if limit is None else min(self.version, limit)
            template = Template(produce_request([batch], settings, ids), version, self._client_id)
            self._templates[batch.queue, len(records)] = template
        self.correlation_id = (self.correlation_id + 1) & 0x7FFFFFFF
        self.socket.sendall(template.frame(self.correlation_id, records))
        return template

    def receive(self) -> bytes:
        """The whole frame of an answer. Raises _Unanswered, OSError.

        Asks again and again for at most SPIN_S before it sleeps, if the last answer came within that.
        """
        data, begin_s = b"", perf_counter()
        flags = socket.MSG_DONTWAIT if self._spins else 0
        while True:
            try:
                more = self.socket.recv(RECEIVE_BYTES, flags)
            except BlockingIOError:
                if not flags:
                    raise _Unanswered(data) from None
                if perf_counter() - begin_s > SPIN_S:
                    flags = 0
                continue
            if not more:
                raise ConnectionError("the broker closed the connection")
            data = data + more if data else more
            if len(data) == frame_size(data):
                self._spins = MAY_SPIN and perf_counter() - begin_s <= SPIN_S
                return data

    def decode(self, data: bytes, version: int) -> ProduceResponse:
        """The answer to the last request, which had that version. Raises DecodeError."""
        correlation_id, position = decode_response_header(data, ProduceRequest.API_KEY, version, SIZE_BYTES)
        if correlation_id != self.correlation_id:
            raise DecodeError(f"{self.correlation_id} was asked, {correlation_id} is answered")
        response, _ = ProduceResponse.decode_from(data, position, version)
        return response


def frame_size(data: bytes) -> int:
    """How many bytes the frame takes that begins `data`; 0 while that is not known."""
    return SIZE_BYTES + int.from_bytes(data[:SIZE_BYTES], "big", signed=True) if len(data) >= SIZE_BYTES else 0


class Direct:
    """The sockets of one blocking producer. `deliver` may be called by any thread but the loop's."""

    def __init__(self, sender: Sender, driver: Driver, *, is_allowed: bool, client_id: str) -> None:
        self._sender = sender
        self._core = sender.core
        self._driver = driver
        self._is_allowed = is_allowed
        self._client_id = client_id
        self._lines: dict[int, _Line] = {}
        self._singles = 0
        self._alarm: Alarm | None = None
        self._is_watching = False
        self._now_ms = 0  # when the last batch was delivered
        self._set_at_ms = -1  # to what that was when the alarm was set
        self._not_before_ms = 0
        self._mutex = threading.Lock()

    def deliver(self, batch: Batch) -> None:
        """Send the batch and wait for its end, if it can be done here; at most about PATIENCE_S."""
        if not self._is_allowed or batch.size > LARGEST_BATCH or not self._mutex.acquire(blocking=False):
            return
        try:
            node = self._sender.cluster.view.leader(batch.queue.topic, batch.queue.partition)
            self._now_ms = now_ms = self._sender.now_ms()
            line = None if node is None else self._line_to(node, now_ms)
            if node is not None and line is not None:
                self._deliver(batch, line, node, now_ms)
        finally:
            self._mutex.release()

    def _deliver(self, batch: Batch, line: _Line, node: int, now_ms: int) -> None:
        # Sent under the lock, though that may last: what is to be noted can be noted while the broker is at work.
        with self._sender.lock:
            if not self._core.may_go_alone(batch, node, now_ms):
                return
            try:
                topic_id = self._sender.cluster.view.topic_id(batch.queue.topic)
                template = line.send(batch, self._sender.settings, topic_id)
            except Exception as error:  # noqa: BLE001 - the loop tries again and says it
                self._drop(line)
                line.socket.close()
                if not isinstance(error, OSError):
                    logger.debug("A record goes by the loop: %r", error)
                return  # the batch is where it was
            send = self._core.goes_alone(batch, node, now_ms)
        try:
            data = line.receive()
            numbers = template.numbers(line.correlation_id, data)
            response = None if numbers is not None else line.decode(data, template.version)
        except BaseException as error:
            send.topic_ids = {batch.queue.topic: topic_id}
            # What is half done goes on in the loop, also if this is Ctrl-C.
            self._give_up(send, line, template.version, error)
            if not isinstance(error, (_Unanswered, OSError, DecodeError)):
                raise
            return
        if numbers is None:
            send.topic_ids = {batch.queue.topic: topic_id}
            self._driver.call_soon(self._sender.answer, send, response)
            return
        with self._sender.lock:
            self._core.arrived_alone(send, *numbers)
        batch.announce()
        if not self._core.woken:
            self._driver.call_soon(self._sender.turn)
        elif not self._is_watching:
            self._watch()

    def _line_to(self, node: int, now_ms: int) -> _Line | None:
        connection = self._sender.cluster.connected(node)
        if connection is None:
            return None
        line = self._lines.get(node)
        if line is not None:
            if line.beside is connection and (now_ms - line.used_at_ms < FRESH_MS or line.is_open()):
                line.used_at_ms = now_ms
                return line
            self._lines.pop(node).socket.close()
        self._singles += 1
        address = connection.peer
        if address is None or self._singles <= SINGLES_BEFORE or now_ms < self._not_before_ms:
            return None
        try:
            version = connection.highest_version(ProduceRequest.API_KEY)
            line = self._lines[node] = _Line(connection, address, version, self._client_id)
        except (OSError, NetworkError):
            self._not_before_ms = now_ms + REST_MS
            return None
        line.used_at_ms = now_ms
        return line

    def _drop(self, line: _Line) -> None:
        for node, known in list(self._lines.items()):
            if known is line:
                del self._lines[node]

    # --- back to the loop ---------------------------------------------------------------------------------------

    def _give_up(self, send: Send, line: _Line, version: int, error: BaseException) -> None:
        self._drop(line)
        received = error.data if isinstance(error, _Unanswered) else None
        if received is None and not isinstance(error, (OSError, DecodeError, Exception)):
            received = b""  # interrupted: there may be an answer yet
        try:
            self._driver.call_soon(self._adopt, send, line, version, received, str(error))
        except ClientError:  # closed: the core has ended the batch
            line.socket.close()

    def _adopt(self, send: Send, line: _Line, version: int, received: bytes | None, problem: str) -> None:
        """On the loop: wait for the rest of an answer, or say that none will come."""
        if received is None:
            line.socket.close()
            host, port = line.address[:2]
            self._sender.lose(send, ConnectionLost(f"{host}:{port}: {problem}"))
        else:
            self._sender.spawn(self._finish(send, line, version, received))
            self._sender.turn()  # for the time that the batch has left

    async def _finish(self, send: Send, line: _Line, version: int, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        timeout_s = self._sender.settings.request_timeout_ms / 1000
        line.socket.setblocking(False)
        try:
            async with asyncio.timeout(timeout_s):
                while not data or len(data) != frame_size(data):
                    more = await loop.sock_recv(line.socket, RECEIVE_BYTES)
                    if not more:
                        raise ConnectionError("the broker closed the connection")
                    data += more
            response = line.decode(data, version)
        except TimeoutError:
            self._sender.lose(send, RequestTimedOut(f"{line.address} did not answer within {timeout_s:g} s"))
        except (OSError, DecodeError) as error:
            self._sender.lose(send, ConnectionLost(f"{line.address}: {error}"))
        else:
            self._sender.answer(send, response)
        finally:
            line.socket.close()

    # --- new batches --------------------------------------------------------------------------------------------

    def watches(self) -> bool:
        """Whether a new batch needs no loop to be woken: soon it is delivered here, or else the alarm rings."""
        if not self._is_watching or self._alarm is None:
            return False
        if self._set_at_ms != self._now_ms:  # the system is asked at most once in a ms
            self._set_at_ms = self._now_ms
            self._alarm.set()
        return True

    def _watch(self) -> None:
        linger_ms = self._sender.settings.linger_ms
        if self._alarm is None and linger_ms >= 1:
            from ottla.clients.producer.timer import Alarm

            try:
                alarm = Alarm(self._driver.loop, linger_ms, self._ring)
            except OSError:
                return
            self._driver.call_soon(alarm.start)
            self._alarm = alarm
        self._is_watching = True

    def _ring(self) -> None:
        """On the loop: a batch was there for as long as it may linger, or it was the last one."""
        self._set_at_ms = -1  # before the look: a batch that is not seen here sets the alarm
        if not self._core.woken:
            self._is_watching = False
            self._core.late_ms = self._sender.settings.linger_ms
            self._sender.turn()
            self._core.late_ms = 0

    def close(self) -> None:
        """Close the sockets; a thread that waits on one goes on with the loop."""
        self._is_allowed = self._is_watching = False
        if self._alarm is not None:
            self._driver.call_soon(self._alarm.close)
            self._alarm = None
        for line in list(self._lines.values()):
            with contextlib.suppress(OSError):
                line.socket.shutdown(socket.SHUT_RDWR)
        if self._mutex.acquire(timeout=2 * PATIENCE_S):
            for line in self._lines.values():
                line.socket.close()
            self._lines.clear()
            self._mutex.release()
