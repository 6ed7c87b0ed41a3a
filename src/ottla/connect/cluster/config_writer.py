"""Writes the topic of configurations on behalf of the leader.

With `exactly.once.source.support` enabled or preparing, the leader writes in transactions of the transactional id
`connect-cluster-GROUP`, and a new leader fences the old one, which may believe that it still leads (KIP-618). Without,
a record of an old leader can follow records of the new one, as in Kafka Connect.

Target states and levels of loggers are written by any worker, outside of transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from ottla.clients import AsyncProducer
from ottla.clients.errors import ClientError
from ottla.connect.errors import ConnectError, NotLeaderError, RetriableError

WRITE_TIMEOUT_S: Final = 30.0
_CLOSE_S: Final = 1.0
_TRANSACTION_TIMEOUT_MS: Final = 10_000

Record: TypeAlias = tuple[str, bytes | None]


class LeaderFencedError(RetriableError):
    """The outcome of a write is unknown, or another leader has fenced this one. The caller may send it again."""


class ConfigWriter:
    """The producers of one worker. Belongs to one event loop."""

    def __init__(self, clients: Mapping[str, Any], topic: str, transactional_id: str | None) -> None:
        """`transactional_id`: the leader writes in transactions; None: like the other workers."""
        self._clients = {**clients, "acks": "all", "linger.ms": 0}
        self._topic = topic
        self._transactional_id = transactional_id
        self.lost: Callable[[], None] = lambda: None
        """Called when the claim was lost with a write that failed."""
        self._plain: AsyncProducer[bytes, bytes] = AsyncProducer(self._clients)
        self._leading: AsyncProducer[bytes, bytes] | None = None
        self._lock = asyncio.Lock()

    @property
    def may_lead(self) -> bool:
        """Whether the leader's records can be written: no claim is needed, or it was not lost."""
        return self._transactional_id is None or self._leading is not None

    async def claim(self) -> None:
        """Fence earlier leaders; after it, this worker writes. Raises RetriableError."""
        if self._transactional_id is None:
            return
        async with self._lock:
            if self._leading is not None:
                return
            producer: AsyncProducer[bytes, bytes] = AsyncProducer(
                {
                    **self._clients,
                    "transactional.id": self._transactional_id,
                    "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
                }
            )
            try:
                await producer.init_transactions(WRITE_TIMEOUT_S)
            except ClientError as error:
                await producer.close(_CLOSE_S)
                raise RetriableError(f"Cannot fence the previous leader: {error}") from error
            self._leading = producer

    async def release(self) -> None:
        """Stop to write as the leader."""
        async with self._lock:
            await self._release()

    async def _release(self) -> None:
        producer, self._leading = self._leading, None
        if producer is not None:
            await producer.close(0.0)

    async def close(self) -> None:
        """Close the producers."""
        await self.release()
        await self._plain.close(_CLOSE_S)

    async def write(self, records: Sequence[Record]) -> None:
        """Write the leader's records: all or none, if it uses transactions.

        Raises NotLeaderError without a claim, and LeaderFencedError after which another claim is needed.
        """
        if self._transactional_id is None:
            await self.write_any(records)
            return
        async with self._lock:
            producer = self._leading
            if producer is None:
                raise NotLeaderError("Cannot produce to config topic without claiming write privileges first", None)
            sent = []
            try:
                async with asyncio.timeout(WRITE_TIMEOUT_S):
                    await producer.begin_transaction()
                    for key, value in records:
                        sent.append(await producer.send(self._topic, value, key.encode(), partition=0))
                    await producer.commit_transaction()
            except (ClientError, TimeoutError) as error:
                await self._release()
                await asyncio.gather(*sent, return_exceptions=True)  # they have the same error
                self.lost()
                raise LeaderFencedError(
                    "Failed to write to config topic; this may be due to a transient error and the request can be "
                    f"safely retried: {error}"
                ) from error

    async def write_any(self, records: Sequence[Record]) -> None:
        """Write records in their order, outside of transactions. Raises ConnectError."""
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                sent = [await self._plain.send(self._topic, value, key.encode(), partition=0) for key, value in records]
                for each in sent:
                    await each
        except (ClientError, TimeoutError) as error:
            raise ConnectError(f"Failed to write to the topic {self._topic}: {error}") from error
