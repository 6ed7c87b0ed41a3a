"""Batches questions to other brokers: while one request is in flight to a broker, the next questions wait for it.

As in Kafka, one request of a kind is in flight to a broker. Questions that arrive meanwhile are sent in one request, so
that a thousand transactions that end at the same time cost each broker a few requests. A question gets its answer
exactly once, also when the connection is lost: then the broker may have executed it, and the caller decides what to
repeat.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.coordination.peers.channels import Peers
    from ottla.protocol.message import Message


MOST_IN_REQUEST = 500
MOST_WAITING = 50_000
DEFAULT_TIMEOUT_S = 30.0

Q = TypeVar("Q")
A = TypeVar("A")


class Kind(Protocol[Q, A]):
    """How questions of one kind are asked."""

    least_version: int

    def group(self, question: Q) -> object:
        """Questions of the same group may be in one request."""
        ...

    def key(self, question: Q) -> object:
        """A request has one question of each key, because the response does not tell them apart."""
        ...

    def request(self, batch: list[Q]) -> Message:
        """The request of a batch."""
        ...

    def answers(self, batch: list[Q], response: Message) -> list[A]:
        """The answer to each question of the batch, from the response."""
        ...

    def failure(self, question: Q, error: KafkaError) -> A:
        """The answer to a question if there is no response."""
        ...


class PeerQueue(Generic[Q, A]):
    """The questions of one kind to all brokers."""

    def __init__(self, kind: Kind[Q, A], peers: Peers, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """`timeout_s` limits each request (request.timeout.ms)."""
        self._kind = kind
        self._timeout_s = timeout_s
        self._peers = peers
        self._waiting: dict[int, deque[tuple[Q, Completion[A]]]] = {}
        self._in_flight: set[int] = set()

    def ask(self, node_id: int, question: Q) -> Completion[A]:
        """Ask a broker; completes with the answer and never fails."""
        answer: Completion[A] = Completion()
        waiting = self._waiting.setdefault(node_id, deque())
        if len(waiting) >= MOST_WAITING:
            text = f"{MOST_WAITING} questions to broker {node_id} are waiting"
            answer.complete(self._kind.failure(question, KafkaError(ErrorCode.NETWORK_EXCEPTION, text)))
            return answer
        waiting.append((question, answer))
        self._send(node_id)
        return answer

    def _send(self, node_id: int) -> None:
        while node_id not in self._in_flight:
            batch = self._take(node_id)
            if not batch:
                return
            questions = [question for question, _ in batch]
            sent = self._peers.ask(
                node_id,
                self._kind.request(questions),
                timeout_s=self._timeout_s,
                least_version=self._kind.least_version,
            )
            if sent.done:
                self._finish(batch, sent)
            else:
                self._in_flight.add(node_id)
                sent.on_done(partial(self._answered, node_id, batch))

    def _take(self, node_id: int) -> list[tuple[Q, Completion[A]]]:
        """The questions of the next request: the first one that waits, and those that fit."""
        waiting = self._waiting.get(node_id)
        if not waiting:
            self._waiting.pop(node_id, None)
            return []
        kind = self._kind
        batch = [waiting.popleft()]
        group, keys = kind.group(batch[0][0]), {kind.key(batch[0][0])}
        others: deque[tuple[Q, Completion[A]]] = deque()
        while waiting and len(batch) < MOST_IN_REQUEST and len(others) < MOST_IN_REQUEST:
            row = waiting.popleft()
            key = kind.key(row[0])
            if kind.group(row[0]) == group and key not in keys:
                batch.append(row)
                keys.add(key)
            else:
                others.append(row)
        waiting.extendleft(reversed(others))
        return batch

    def _answered(self, node_id: int, batch: list[tuple[Q, Completion[A]]], sent: Completion[Message]) -> None:
        self._in_flight.discard(node_id)
        self._finish(batch, sent)
        self._send(node_id)

    def _finish(self, batch: list[tuple[Q, Completion[A]]], sent: Completion[Message]) -> None:
        questions = [question for question, _ in batch]
        try:
            answers = self._kind.answers(questions, sent.result())
        except KafkaError as error:
            answers = [self._kind.failure(question, error) for question in questions]
        for (_, completion), answer in zip(batch, answers, strict=True):
            completion.complete(answer)
