"""The store of a worker on Connect's topics of configurations and statuses; implements `runtime.Store`.

Reads are local. The leader's writes return when they are read back, so that the next decision sees them. `start` reads
both topics to their ends before it returns; listeners learn only later changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.clients import Record
from ottla.connect.api import Config
from ottla.connect.cluster import keys, values
from ottla.connect.cluster.config_state import (
    ConfigState,
    ConnectorChanged,
    Ignored,
    LoggerChanged,
    RestartRequested,
    SessionKeyChanged,
)
from ottla.connect.cluster.config_writer import ConfigWriter
from ottla.connect.cluster.status_state import StatusState, is_newest, may_replace
from ottla.connect.cluster.status_writer import StatusWriter
from ottla.connect.cluster.topic_log import TopicLog
from ottla.connect.cluster.topics import TopicSettings, prepare_topic
from ottla.connect.cluster.values import SessionKey, TopicUse
from ottla.connect.errors import ConnectError
from ottla.connect.runtime import Status, StoreListener, TargetState, TaskId

logger = logging.getLogger(__name__)

_FLUSH_S: Final = 30.0


class StoreSettings(NamedTuple):
    """The clients and the topics of a store."""

    clients: Mapping[str, Any]
    configs: TopicSettings
    statuses: TopicSettings
    transactional_id: str | None = None
    """The leader's transactional id, if exactly once is enabled or prepared."""
    reads_committed: bool = False
    """Whether exactly once is enabled: records of fenced leaders are skipped."""
    timeout_s: float = 60.0


class KafkaStore:
    """The store of one worker. Belongs to one event loop."""

    def __init__(self, settings: StoreSettings, now_ms: Callable[[], int]) -> None:
        self.listener: StoreListener | None = None
        """Learns changes, from the end of `start` on."""
        self._settings = settings
        self._now_ms = now_ms
        self._configs = ConfigState()
        self._statuses = StatusState()
        self._is_started = False
        name, committed = settings.configs.name, settings.reads_committed
        self._config_log = TopicLog(settings.clients, name, self._apply_config, committed=committed)
        self._status_log = TopicLog(settings.clients, settings.statuses.name, self._apply_status, committed=False)
        self.writer = ConfigWriter(settings.clients, name, settings.transactional_id)
        self._status_writer = StatusWriter(settings.clients, settings.statuses.name)

    async def start(self) -> None:
        """Prepare both topics and read them, at the same time. Raises Failure, ConnectError, ClientError."""
        results = await asyncio.gather(
            self._read_topic(self._config_log, self._settings.configs),
            self._read_topic(self._status_log, self._settings.statuses),
            return_exceptions=True,
        )
        for result in results:
            if result is not None:
                raise result
        self._status_writer.start()
        self._is_started = True

    async def _read_topic(self, log: TopicLog, topic: TopicSettings) -> None:
        limit_s = self._settings.timeout_s
        await log.start(await prepare_topic(self._settings.clients, topic, limit_s), limit_s)

    async def close(self) -> None:
        """Write waiting statuses, and stop to read and to write."""
        await self._status_writer.close()
        await self.writer.close()
        await self._config_log.close()
        await self._status_log.close()

    @property
    def offset(self) -> int:
        """The offset after the last record of the topic of configurations that was read."""
        return self._configs.next_offset

    @property
    def failed(self) -> list[asyncio.Future[None]]:
        """Complete with an error when a topic is not read any more: the worker has to stop."""
        return [each.failed for each in (self._config_log, self._status_log) if each.failed is not None]

    @property
    def session_key(self) -> SessionKey | None:
        """The key with which internal requests are signed."""
        return self._configs.session_key

    # -- reading ------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        await self._config_log.read_to_end(_FLUSH_S)

    async def refresh_statuses(self) -> None:
        """Read the topic of statuses to its end."""
        await self._status_log.read_to_end(_FLUSH_S)

    def connectors(self) -> Sequence[str]:
        return self._configs.connectors()

    def config(self, name: str) -> Config | None:
        return self._configs.config(name)

    def target(self, name: str) -> TargetState:
        return self._configs.target(name)

    def task_configs(self, name: str) -> Sequence[Config]:
        return self._configs.task_configs(name)

    def applied_config(self, name: str) -> Config | None:
        return self._configs.applied_config(name)

    def is_inconsistent(self, name: str) -> bool:
        return self._configs.is_inconsistent(name)

    def task_generation(self, name: str) -> int:
        return self._configs.task_generation(name)

    def task_count(self, name: str) -> int | None:
        return self._configs.task_count(name)

    def needs_fencing(self, name: str) -> bool:
        return self._configs.needs_fencing(name)

    def status(self, name: str) -> Status | None:
        return self._statuses.status(name)

    def task_status(self, task: TaskId) -> Status | None:
        return self._statuses.task_status(task)

    def topics(self, name: str) -> Sequence[str]:
        return sorted(self._statuses.topics(name))

    # -- the leader's writes ------------------------------------------------------------------------------------

    async def put_config(self, name: str, config: Config, target: TargetState | None = None) -> None:
        before = [] if target is None else [(keys.TARGET + name, values.target(target))]
        await self._write([*before, (keys.CONNECTOR + name, values.config(config))])

    async def delete(self, name: str) -> None:
        """See `Store`. Statuses are deleted again when the workers have stopped it: see `delete_leftovers`."""
        await self._write([(keys.CONNECTOR + name, None), (keys.TARGET + name, None)])
        self._delete_statuses(name)

    async def put_task_configs(self, name: str, configs: Sequence[Config]) -> None:
        await self.refresh()
        tasks = [(f"{keys.TASK}{name}-{number}", values.config(config)) for number, config in enumerate(configs)]
        await self._write([*tasks, (keys.COMMIT + name, values.commit(len(configs)))])

    async def put_restart(self, name: str, *, only_failed: bool, include_tasks: bool) -> None:
        value = values.restart(only_failed=only_failed, include_tasks=include_tasks)
        await self._write([(keys.RESTART + name, value)])

    async def put_task_count(self, name: str, count: int) -> None:
        await self._write([(keys.TASK_COUNT + name, values.task_count(count))])

    async def put_session_key(self, key: SessionKey) -> None:
        """Write the key with which all workers sign from now on."""
        await self._write([(keys.SESSION_KEY, values.session_key(key))])

    async def _write(self, records: Sequence[tuple[str, bytes | None]]) -> None:
        await self.writer.write(records)
        await self.refresh()

    # -- writes of all workers ----------------------------------------------------------------------------------

    async def put_target(self, name: str, target: TargetState) -> None:
        await self.writer.write_any([(keys.TARGET + name, values.target(target))])
        await self.refresh()

    async def put_logger(self, logger: str, level: str) -> None:
        await self.writer.write_any([(keys.LOGGER + logger, values.logger(level))])
        await self.refresh()

    def put_status(self, name: str, status: Status) -> None:
        if may_replace(self.status(name), status):
            self._status_writer.put(
                keys.STATUS_CONNECTOR + name, values.status(status), lambda: is_newest(self.status(name), status)
            )

    def put_task_status(self, task: TaskId, status: Status) -> None:
        if may_replace(self.task_status(task), status):
            self._status_writer.put(
                f"{keys.STATUS_TASK}{task}", values.status(status), lambda: is_newest(self.task_status(task), status)
            )

    def put_topic(self, name: str, topic: str) -> None:
        if topic not in self._statuses.topics(name):
            use = TopicUse(topic, name, 0, self._now_ms())
            self._status_writer.put(keys.topic_status(topic, name), values.topic_use(use))

    async def reset_topics(self, name: str) -> None:
        for topic in self.topics(name):
            self._status_writer.put(keys.topic_status(topic, name), None)
        await self.flush()
        await self.refresh_statuses()

    async def flush(self) -> None:
        """Wait until the statuses that were put are written. Raises ConnectError."""
        if not await self._status_writer.flush(_FLUSH_S):
            raise ConnectError(f"The statuses of this worker were not written within {_FLUSH_S:g} s")

    def delete_leftovers(self) -> None:
        """Delete the statuses of connectors and tasks that do not exist any more: the leader's duty."""
        known = set(self.connectors())
        for name in self._statuses.connectors():
            if name not in known:
                self._delete_statuses(name)
                continue
            count = len(self.task_configs(name))
            for task in self._statuses.tasks(name):
                if task.task >= count:
                    self._status_writer.put(f"{keys.STATUS_TASK}{task}", None)

    def _delete_statuses(self, name: str) -> None:
        for task in self._statuses.tasks(name):
            self._status_writer.put(f"{keys.STATUS_TASK}{task}", None)
        if self._statuses.status(name) is not None:
            self._status_writer.put(keys.STATUS_CONNECTOR + name, None)
        for topic in self._statuses.topics(name):
            self._status_writer.put(keys.topic_status(topic, name), None)

    # -- applying -----------------------------------------------------------------------------------------------

    def _apply_config(self, record: Record[bytes, bytes]) -> None:
        event = self._configs.apply(record.key, record.value, record.offset)
        if isinstance(event, Ignored):
            logger.warning("Ignoring the record %s at offset %d: %s", event.key, record.offset, event.reason)
        if not self._is_started or self.listener is None:
            return
        match event:
            case ConnectorChanged(name):
                self.listener.changed(name)
            case RestartRequested(name, only_failed, include_tasks):
                self.listener.restart_requested(name, only_failed=only_failed, include_tasks=include_tasks)
            case LoggerChanged(name, level):
                self.listener.logger_changed(name, level)
            case SessionKeyChanged() | Ignored() | None:
                pass

    def _apply_status(self, record: Record[bytes, bytes]) -> None:
        if not self._statuses.apply(record.key, record.value):
            logger.warning("Ignoring the status %r at offset %d", record.key, record.offset)
