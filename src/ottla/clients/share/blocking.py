"""The share consumer for threads. It derives its methods from `AsyncShareConsumer`, and waits in the caller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from ottla.clients.consumer.record import K, V
from ottla.clients.share.asynchronous import AsyncShareConsumer
from ottla.clients.share.interface import ShareInterface
from ottla.clients.typed_settings import ShareConsumerConfig
from ottla.clients.waits import BlockingContext, BlockingWaits, blocking


class ShareConsumer(ShareInterface[K, V], BlockingContext):
    """Shares the records of topics with the other members of its group, like a queue; blocks the calling thread.

    Each record is delivered to one member at a time, and again if it is released or its lock times out, up to the
    group's delivery limit. With share.acknowledgement.mode=implicit the next poll accepts the records of the previous
    one; with explicit, `acknowledge` decides about each record. If a `with` block ends with an exception, the records
    of the last poll are released, unless they were acknowledged explicitly.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **options: Unpack[ShareConsumerConfig]) -> None:
        waits = BlockingWaits()
        super().__init__(settings, options, waits)
        self._run_in_thread(waits, "ottla-share-consumer")

    client_instance_id = blocking(AsyncShareConsumer[K, V].client_instance_id)
    poll = blocking(AsyncShareConsumer[K, V].poll)
    commit_sync = blocking(AsyncShareConsumer[K, V].commit_sync)
    close = blocking(AsyncShareConsumer[K, V].close)
