"""The share consumer for asyncio. It runs on the event loop of the code that creates it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from ottla.clients.consumer.reader import CLOSE_S
from ottla.clients.consumer.record import K, Record, V
from ottla.clients.share.interface import CommitResults, ShareInterface
from ottla.clients.typed_settings import ShareConsumerConfig
from ottla.clients.waits import AsyncContext, AsyncWaits


class AsyncShareConsumer(ShareInterface[K, V], AsyncContext):
    """Shares the records of topics with the other members of its group; `ShareConsumer` with `await`."""

    def __init__(self, settings: Mapping[str, object] | None = None, /, **options: Unpack[ShareConsumerConfig]) -> None:
        super().__init__(settings, options, AsyncWaits())
        self._run_on_loop()

    async def poll(self, timeout_s: float = 1.0, *, max_records: int | None = None) -> list[Record[K, V]]:
        """Return the next records, at most `max_records` (max.poll.records); an empty list after `timeout_s` seconds.

        The poll accepts the records of the previous one, or sends their explicit acknowledgements. Raises ClientError
        if explicit acknowledgements are missing, CorruptRecords or DeserializationFailed, once, for records that cannot
        be read (they are released), and the errors that prevent the consumer from reading.
        """
        self._begin()
        try:
            records = await self._poll(timeout_s, max_records or self._settings.acquire.max_records)
            return await self._deserialized(records)
        finally:
            self._turn.release()

    async def client_instance_id(self, timeout_s: float = 30.0) -> str:
        """The id of this consumer in the metrics that it pushes (KIP-714); brokers assign it.

        Raises ClientError without enable.metrics.push, UnsupportedByBroker if brokers take no metrics, RequestTimedOut.
        """
        return await self._waits.run(self._client.runner.cluster.client_instance_id(timeout_s))

    async def commit_sync(self, timeout_s: float | None = None) -> CommitResults:
        """Send the acknowledgements and return the result of each partition: None, or the error.

        With implicit acknowledgement it accepts all records that polls returned. After an error the records may be
        delivered again. Waits at most `timeout_s` (default.api.timeout.ms); raises RequestTimedOut.
        """
        return await self._waits.run(self._client.wait(self._commit(), timeout_s))

    async def close(self, timeout_s: float = CLOSE_S) -> None:
        """Send the acknowledgements (implicit: accept the records of the last poll), release all others, leave.

        Takes at most `timeout_s` seconds, also if no broker responds. A second call does nothing.
        """
        await self._close(timeout_s, settle=True)
