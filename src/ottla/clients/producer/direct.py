"""A record that somebody waits for goes to the broker from the thread that waits, and the answer comes back to it.

Two handovers between threads would cost more than all else that is done for one record. So where a batch is alone in
its partition, the thread in `result()` takes it from the core as a request of its own and does the I/O on a socket
that belongs to nobody else: `deliver`. All that is not as it should be (no answer soon, a lost connection, an error)
goes back to the loop, which knows what to do; `deliver` then ends without the batch being done.

Only after a few such records, only without TLS and SASL, one thread at a time: the others go by the loop. While it goes
on like this, new batches do not wake the loop either, since most are gone before it looks: it looks by itself, every
`PATROL_MS`, until one of these looks finds that nothing was delivered so since the one before.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING

from ottla.clients.driver import Driver
from ottla.clients.errors import ClientError, ConnectionLost, RequestTimedOut
from ottla.clients.producer.batch import Batch, Queue
from ottla.clients.producer.events import Outcome, Send
from ottla.clients.producer.requests import LAST_VERSION_WITH_NAMES, encode, outcomes_of, produce_request
from ottla.clients.producer.settings import ProducerSettings
from ottla.clients.producer.template import Template
from ottla.network.client import ClientConnection, NetworkError
from ottla.protocol.frames import decode_response_header
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from ottla.protocol.wire import DecodeError

if TYPE_CHECKING:
    from ottla.clients.producer.sender import Sender

SINGLES_BEFORE = 3  # that many waits for single records go by the loop: a short program makes no second connection
LARGEST_BATCH = 32_768  # bytes that a socket takes at once
PATIENCE_S = 0.25
CONNECT_TIMEOUT_S = 0.25
FRESH_S = 1.0  # a socket that was used so lately is not asked whether it is still open
PATROL_MS = 5
REST_S = 10.0  # after a failure to connect
RECEIVE_BYTES = 4096
TEMPLATES = 64
_SIZE = struct.Struct(">i")


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
        self.used_at_s = 0.0
        self._client_id = client_id
        self._correlation_id = 0
        self._templates: dict[tuple[Queue, int], Template] = {}

    def is_open(self) -> bool:
        """Whether the broker has not closed it meanwhile."""
        try:
            return bool(self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def send(self, send: Send, settings: ProducerSettings) -> Template:
        """Send a request; gives what its answer is read by. Raises OSError."""
        (batch,) = send.batches
        records = encode(batch, settings.codec, settings.level)
        template = self._templates.get((batch.queue, len(records)))
        if template is None:
            if len(self._templates) >= TEMPLATES:
                self._templates.clear()
            template = Template(produce_request(send.batches, settings), self.version, self._client_id)
            self._templates[batch.queue, len(records)] = template
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        self.socket.sendall(template.frame(self._correlation_id, records))
        return template

    def receive(self) -> bytes:
        """The whole frame of an answer. Raises _Unanswered, OSError."""
        data = b""
        while not (size := frame_size(data)) or len(data) < size:
            try:
                more = self.socket.recv(RECEIVE_BYTES)
            except BlockingIOError:
                raise _Unanswered(data) from None
            if not more:
                raise ConnectionError("the broker closed the connection")
            data += more
        return data

    def decode(self, data: bytes) -> ProduceResponse:
        """The answer to the last request. Raises DecodeError."""
        correlation_id, position = decode_response_header(data, ProduceRequest.API_KEY, self.version, _SIZE.size)
        if correlation_id != self._correlation_id:
            raise DecodeError(f"{self._correlation_id} was asked, {correlation_id} is answered")
        response, _ = ProduceResponse.decode_from(data, position, self.version)
        return response

    def outcomes(self, template: Template, data: bytes) -> tuple[dict[tuple[str, int], Outcome], int]:
        """What an answer says, and the throttle time in ms. Raises DecodeError."""
        outcome = template.outcome(self._correlation_id, data)
        if outcome is not None:
            return {template.key: outcome}, 0
        response = self.decode(data)
        return outcomes_of(response), response.throttle_time_ms


def frame_size(data: bytes) -> int:
    """How many bytes the frame takes that begins `data`; 0 while that is not known."""
    return _SIZE.size + int(_SIZE.unpack_from(data)[0]) if len(data) >= _SIZE.size else 0


class Direct:
    """The sockets of one blocking producer. `deliver` may be called by any thread but the loop's."""

    def __init__(self, sender: Sender, driver: Driver, *, is_allowed: bool, client_id: str) -> None:
        self.is_patrolled = False  # new batches need not wake the loop
        self._sender = sender
        self._core = sender.core
        self._driver = driver
        self._is_allowed = is_allowed
        self._client_id = client_id
        self._lines: dict[int, _Line] = {}
        self._singles = 0
        self._delivered = self._seen = 0
        self._not_before_s = 0.0
        self._mutex = threading.Lock()

    def deliver(self, batch: Batch) -> None:
        """Send the batch and wait for its end, if it can be done here; at most about PATIENCE_S."""
        if not self._is_allowed or batch.size > LARGEST_BATCH or not self._mutex.acquire(blocking=False):
            return
        try:
            line = self._line_for(batch)
            if line is not None:
                self._deliver(batch, line)
        finally:
            self._mutex.release()

    def _deliver(self, batch: Batch, line: _Line) -> None:
        now_ms = self._sender.now_ms
        with self._sender.lock:
            send = self._core.take_alone(batch, now_ms())
        if send is None:
            return
        try:
            template = line.send(send, self._sender.settings)
            outcomes, throttle_ms = line.outcomes(template, line.receive())
        except BaseException as error:
            # What is half done goes on in the loop, also if this is Ctrl-C.
            self._give_up(send, line, error)
            if not isinstance(error, (_Unanswered, OSError, DecodeError)):
                raise
            return
        with self._sender.lock:
            ended = self._core.settle(send.request_id, outcomes, throttle_ms, now_ms())
        self._delivered += 1
        for done in ended:
            done.announce()
        if not self._core.woken:
            self._driver.call_soon(self._sender.turn)
        elif not self.is_patrolled and self._sender.settings.linger_ms >= PATROL_MS:
            self.is_patrolled = True
            self._driver.call_soon(self._start_patrol)

    def _line_for(self, batch: Batch) -> _Line | None:
        cluster = self._sender.cluster
        node = cluster.view.leader(batch.queue.topic, batch.queue.partition)
        connection = None if node is None else cluster.connected(node)
        if node is None or connection is None:
            return None
        line = self._lines.get(node)
        now_s = self._sender.now_ms() / 1000
        if line is not None:
            if line.beside is connection and (now_s - line.used_at_s < FRESH_S or line.is_open()):
                line.used_at_s = now_s
                return line
            self._lines.pop(node).socket.close()
        self._singles += 1
        address = connection.peer
        if address is None or self._singles <= SINGLES_BEFORE or now_s < self._not_before_s:
            return None
        try:
            version = connection.highest_version(ProduceRequest.API_KEY, LAST_VERSION_WITH_NAMES)
            line = self._lines[node] = _Line(connection, address, version, self._client_id)
        except (OSError, NetworkError):
            self._not_before_s = now_s + REST_S
            return None
        line.used_at_s = now_s
        return line

    # --- back to the loop ---------------------------------------------------------------------------------------

    def _give_up(self, send: Send, line: _Line, error: BaseException) -> None:
        for node, known in list(self._lines.items()):
            if known is line:
                del self._lines[node]
        received = error.data if isinstance(error, _Unanswered) else None
        if received is None and not isinstance(error, (OSError, DecodeError, Exception)):
            received = b""  # interrupted: there may be an answer yet
        try:
            self._driver.call_soon(self._adopt, send, line, received, str(error))
        except ClientError:  # closed: the core has ended the batch
            line.socket.close()

    def _adopt(self, send: Send, line: _Line, received: bytes | None, problem: str) -> None:
        """On the loop: wait for the rest of an answer, or say that none will come."""
        if received is None:
            line.socket.close()
            host, port = line.address[:2]
            self._sender.lose(send, ConnectionLost(f"{host}:{port}: {problem}"))
        else:
            self._sender.spawn(self._finish(send, line, received))
            self._sender.turn()  # for the time that the batch has left

    async def _finish(self, send: Send, line: _Line, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        timeout_s = self._sender.settings.request_timeout_ms / 1000
        line.socket.setblocking(False)
        try:
            async with asyncio.timeout(timeout_s):
                while not (size := frame_size(data)) or len(data) < size:
                    more = await loop.sock_recv(line.socket, RECEIVE_BYTES)
                    if not more:
                        raise ConnectionError("the broker closed the connection")
                    data += more
            response = line.decode(data)
        except TimeoutError:
            self._sender.lose(send, RequestTimedOut(f"{line.address} did not answer within {timeout_s:g} s"))
        except (OSError, DecodeError) as error:
            self._sender.lose(send, ConnectionLost(f"{line.address}: {error}"))
        else:
            self._sender.answer(send, response)
        finally:
            line.socket.close()

    # --- patrol -------------------------------------------------------------------------------------------------

    def _start_patrol(self) -> None:
        self._core.late_ms = PATROL_MS
        self._seen = self._delivered
        asyncio.get_running_loop().call_later(PATROL_MS / 1000, self._patrol)

    def _patrol(self) -> None:
        if self._delivered == self._seen:
            # In this order: a batch that comes after the look wakes the loop.
            self.is_patrolled = False
            self._core.late_ms = 0
        else:
            self._seen = self._delivered
            asyncio.get_running_loop().call_later(PATROL_MS / 1000, self._patrol)
        if not self._core.woken:
            self._sender.turn()

    def close(self) -> None:
        """Close the sockets; a thread that waits on one goes on with the loop."""
        self._is_allowed = False
        for line in list(self._lines.values()):
            with contextlib.suppress(OSError):
                line.socket.shutdown(socket.SHUT_RDWR)
        if self._mutex.acquire(timeout=2 * PATIENCE_S):
            for line in self._lines.values():
                line.socket.close()
            self._lines.clear()
            self._mutex.release()
