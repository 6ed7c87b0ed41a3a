"""Publishes the statuses of a run to `__ottla_streams`, in a thread: a pipeline neither waits for it nor fails with it.

The thread creates the topic. While the brokers cannot be reached, it retries with growing delays, and later statuses
replace earlier ones, so that it has at most one of each query.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Final

from ottla.clients import Admin, ClientError, Producer
from ottla.clients.errors import TopicAlreadyExists
from ottla.common.ids import TopicPartition
from ottla.streams.status import TOPIC, Status, is_due

logger = logging.getLogger("ottla.streams")

SETTINGS: Final = {
    "cleanup.policy": "compact",
    # Compaction omits the active segment. Statuses of a busy query are 100 MB a day.
    "segment.bytes": str(8 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}
FIRST_RETRY_S: Final = 1.0
LONGEST_RETRY_S: Final = 60.0
DELIVERY: Final = {"delivery.timeout.ms": "10000", "request.timeout.ms": "5000"}
SEND_S: Final = 15.0
CLOSE_S: Final = 5.0
"""How long the end of a run waits for its last statuses."""
COMMIT_S: Final = 5.0


def commit_offsets(client: Mapping[str, str], statuses: Iterable[Status]) -> None:
    """Commit to the groups of stopped queries how far their checkpoints are. Blocks for a few seconds.

    A query commits the end of a micro-batch when it looks for the next one, so a stop between two of them would leave
    the last one as lag. Nothing depends on these offsets: a failure is logged.
    """
    ends: dict[str, dict[TopicPartition, int]] = {}
    for status in statuses:
        if status.batches:
            ends[status.run.query] = {
                TopicPartition(given.topic, each.partition): each.offset
                for given in status.inputs
                for each in given.partitions
            }
    if not ends:
        return
    limit_ms = str(round(COMMIT_S * 1000))
    deadline_s = time.monotonic() + COMMIT_S
    try:
        with Admin({**client, "default.api.timeout.ms": limit_ms, "request.timeout.ms": limit_ms}) as admin:
            for group, offsets in ends.items():
                admin.alter_group_offsets(group, offsets, timeout_s=max(0.1, deadline_s - time.monotonic()))
    except ClientError as error:
        logger.warning("Offsets of the last micro-batches not committed: %s", error)


class Publisher:
    """Call `offer` often, from one thread, and at last `close`."""

    def __init__(self, client: Mapping[str, str]) -> None:
        self._client = dict(client)
        self._published: dict[str, Status] = {}
        self._lock = threading.Lock()
        self._waiting: dict[str, Status] = {}
        self._wake = threading.Event()
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ottla-streams-status", daemon=True)
        self._thread.start()

    def offer(self, status: Status) -> None:
        """Publish a status, unless one of its query was published a moment ago. Does not block."""
        if not is_due(self._published.get(status.key), status):
            return
        self._published[status.key] = status
        with self._lock:
            self._waiting[status.key] = status
        self._wake.set()

    def close(self) -> None:
        """Publish what waits. Blocks for at most 5 seconds."""
        self._is_closing.set()
        self._wake.set()
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        retry_s, deadline_s = FIRST_RETRY_S, None
        while True:
            self._wake.wait()
            if deadline_s is None and self._is_closing.is_set():
                deadline_s = time.monotonic() + CLOSE_S
            try:
                self._publish()
            except (ClientError, OSError) as error:
                level = logging.WARNING if retry_s == FIRST_RETRY_S else logging.DEBUG
                logger.log(level, "Status of pipelines not published, retry in %g s: %s", retry_s, error)
            else:
                return
            if deadline_s is not None and time.monotonic() >= deadline_s:
                return
            self._is_closing.wait(retry_s)
            retry_s = min(LONGEST_RETRY_S, 2 * retry_s)

    def _publish(self) -> None:
        """Publish until `close`. Raises exceptions of clients."""
        self._create_topic()
        with Producer(self._client | DELIVERY) as producer:
            while True:
                self._wake.wait()
                self._wake.clear()
                is_last = self._is_closing.is_set()
                with self._lock:
                    taken, self._waiting = self._waiting, {}
                try:
                    sent = [producer.send(TOPIC, each.dumps(), key=key.encode()) for key, each in taken.items()]
                    for delivery in sent:
                        delivery.result(SEND_S)
                except (ClientError, OSError):
                    with self._lock:
                        self._waiting = taken | self._waiting
                    self._wake.set()
                    raise
                if is_last:
                    return

    def _create_topic(self) -> None:
        with Admin(self._client) as admin:
            if TOPIC in {each.name for each in admin.list_topics(include_internal=True)}:
                return
            try:
                admin.create_topic(TOPIC, partitions=1, config=SETTINGS)
            except TopicAlreadyExists:
                logger.debug("Another run created %s", TOPIC)
