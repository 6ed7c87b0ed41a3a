"""The consumer for threads. It derives its methods from `AsyncConsumer`, and waits in the thread of the caller.

One thread polls; all other methods may be called from any thread. Fetched bytes are decoded in the thread that polls.
The network runs in a thread of its own, so heartbeats do not depend on polls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Unpack

from ottla.clients.consumer.asynchronous import AsyncConsumer
from ottla.clients.consumer.interface import ConsumerInterface, Offsets
from ottla.clients.consumer.record import K, Record, V
from ottla.clients.errors import ClientError
from ottla.clients.typed_settings import ConsumerConfig
from ottla.clients.waits import BlockingContext, BlockingWaits, blocking


class Consumer(ConsumerInterface[K, V], BlockingContext):
    """Reads records from Ottla or any Kafka; blocks the calling thread.

    Takes settings as keyword arguments (`bootstrap_servers=`) or as a mapping with Kafka's names
    (`"bootstrap.servers"`), and raises ConfigurationError. Connections are made when they are needed. Close it, or use
    it in a `with` block. If the block ends with an exception, auto-commit does not commit the records of the last poll.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **options: Unpack[ConsumerConfig]) -> None:
        waits = BlockingWaits()
        super().__init__(settings, options, waits)
        self._run_in_thread(waits, "ottla-consumer")

    poll = blocking(AsyncConsumer[K, V].poll)
    poll_arrow = blocking(AsyncConsumer[K, V].poll_arrow)

    def __iter__(self) -> Iterator[Record[K, V]]:
        """Yield records one at a time; blocks while there are none. Ends when the consumer is closed."""
        return self

    def __next__(self) -> Record[K, V]:
        while not self._pending:
            if self._closing:
                raise StopIteration
            self._pending.extend(self.poll(1.0))
        return self._pending.popleft()

    unsubscribe = blocking(AsyncConsumer[K, V].unsubscribe)
    commit = blocking(AsyncConsumer[K, V].commit)

    def commit_async(
        self, offsets: Offsets | None = None, callback: Callable[[ClientError | None], Any] | None = None
    ) -> None:
        """Commit without waiting. `callback` gets None or the error, in the network's thread, and must not block.

        Commits, also those by `commit`, are sent one at a time in the order of the calls. `close` waits for them.
        """
        self._waits.call(self._client.commit_later, self._commit_plan(offsets), callback)

    committed = blocking(AsyncConsumer[K, V].committed)
    position = blocking(AsyncConsumer[K, V].position)
    offsets_for_times = blocking(AsyncConsumer[K, V].offsets_for_times)
    beginning_offsets = blocking(AsyncConsumer[K, V].beginning_offsets)
    end_offsets = blocking(AsyncConsumer[K, V].end_offsets)
    partitions_of = blocking(AsyncConsumer[K, V].partitions_of)
    partitions_for = blocking(AsyncConsumer[K, V].partitions_for)
    topics = blocking(AsyncConsumer[K, V].topics)
    client_instance_id = blocking(AsyncConsumer[K, V].client_instance_id)
    close = blocking(AsyncConsumer[K, V].close)
