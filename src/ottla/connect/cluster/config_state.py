"""The topic of configurations as a state: `apply` each record, in order, and read the state at any time.

Task configurations are written one by one, then a commit record with their number. They take effect together at the
commit record, and only if the whole set was read before it. Compaction may have removed a part of an older set: then
the connector has no tasks until its tasks are written again (`is_inconsistent`).

`apply` returns what a worker should learn of a record, and never raises: a record that cannot be read has no effect,
as in Kafka Connect. No I/O. Source: KafkaConfigBackingStore of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.connect.api import Config
from ottla.connect.cluster import keys, values
from ottla.connect.cluster.values import SessionKey
from ottla.connect.runtime import TargetState


class ConnectorChanged(NamedTuple):
    """The configuration, the target state or the tasks of a connector changed, or it was deleted."""

    name: str


class RestartRequested(NamedTuple):
    """A connector should be restarted."""

    name: str
    only_failed: bool
    include_tasks: bool


class LoggerChanged(NamedTuple):
    """A logger should have another level."""

    logger: str
    level: str


class SessionKeyChanged(NamedTuple):
    """The workers sign with another key."""

    key: SessionKey


class Ignored(NamedTuple):
    """A record that has no effect, and why."""

    key: str
    reason: str


Event: TypeAlias = ConnectorChanged | RestartRequested | LoggerChanged | SessionKeyChanged | Ignored
_Fields: TypeAlias = Mapping[str, Any] | None
_BAD: Final = Ignored("", "")


class ConfigState:
    """All connectors as the topic has them so far."""

    def __init__(self) -> None:
        self.next_offset = 0
        """The offset after the last record that was applied; members of the group compare it."""
        self.session_key: SessionKey | None = None
        self._configs: dict[str, Config] = {}
        self._targets: dict[str, TargetState] = {}
        self._tasks: dict[str, tuple[Config, ...]] = {}
        self._applied: dict[str, Config] = {}
        self._pending: dict[str, dict[int, Config]] = {}
        self._generations: dict[str, int] = {}
        self._task_counts: dict[str, int] = {}
        self._inconsistent: set[str] = set()
        self._unfenced: set[str] = set()

    # -- reading ------------------------------------------------------------------------------------------------

    def connectors(self) -> Sequence[str]:
        """The names of all connectors, sorted."""
        return sorted(self._configs)

    def config(self, name: str) -> Config | None:
        """The configuration of a connector."""
        return self._configs.get(name)

    def target(self, name: str) -> TargetState:
        """The target state of a connector."""
        return self._targets.get(name, TargetState.STARTED)

    def task_configs(self, name: str) -> Sequence[Config]:
        """The configurations of its tasks, complete or empty."""
        return () if name in self._inconsistent else self._tasks.get(name, ())

    def applied_config(self, name: str) -> Config | None:
        """The configuration of the connector for which its task configurations were written."""
        return self._applied.get(name)

    def task_generation(self, name: str) -> int:
        """A number that grows with each write of task configurations. It is this worker's own count."""
        return self._generations.get(name, -1)

    def is_inconsistent(self, name: str) -> bool:
        """Whether the task configurations are incomplete, and must be written again."""
        return name in self._inconsistent

    def task_count(self, name: str) -> int | None:
        """How many transactional producers exist since the last fencing."""
        return self._task_counts.get(name)

    def needs_fencing(self, name: str) -> bool:
        """Whether task configurations were written after the last fencing."""
        return name in self._unfenced

    # -- applying -----------------------------------------------------------------------------------------------

    def apply(self, key: bytes | None, value: bytes | None, offset: int) -> Event | None:
        """Apply the record at `offset`."""
        self.next_offset = offset + 1
        try:
            text = (key or b"").decode()
        except UnicodeDecodeError:
            return Ignored(repr(key), "the key is not UTF-8")
        # The longer prefixes begin with other words than the shorter ones, except for `task-` and `tasks-fencing-`.
        for prefix, method in _METHODS.items():
            if text.startswith(prefix):
                fields = None if value is None else values.parsed(value)
                if value is not None and fields is None:
                    return Ignored(text, "the value is not a JSON object")
                event = method(self, text, text[len(prefix) :], fields)
                return Ignored(text, "a field is missing or has another type") if event is _BAD else event
        return Ignored(text, "the key has no known prefix")

    def _connector(self, _key: str, name: str, fields: _Fields) -> Event | None:
        if fields is None:
            self._remove(name)
            return ConnectorChanged(name)
        config = values.read_config(fields)
        if config is None:
            return _BAD
        self._configs[name] = config
        return ConnectorChanged(name)

    def _remove(self, name: str) -> None:
        # The number of producers stays: they must be fenced if a connector of this name is created again.
        for by_name in (self._configs, self._tasks, self._pending, self._applied):
            by_name.pop(name, None)
        self._inconsistent.discard(name)

    def _target(self, _key: str, name: str, fields: _Fields) -> Event | None:
        if fields is None:
            self._targets.pop(name, None)
            return ConnectorChanged(name)
        target = values.read_target(fields)
        if target is None:
            return _BAD
        self._targets[name] = target
        return ConnectorChanged(name)

    def _task(self, key: str, _rest: str, fields: _Fields) -> Event | None:
        task = keys.task_of(key, keys.TASK)
        config = None if fields is None else values.read_config(fields)
        if task is None or config is None:
            return _BAD
        self._pending.setdefault(task.connector, {})[task.task] = config
        return None

    def _commit(self, _key: str, name: str, fields: _Fields) -> Event | None:
        count = None if fields is None else values.read_number(fields, "tasks")
        if count is None:
            return _BAD
        if name not in self._configs:
            # The connector was deleted, and compaction has removed its configuration and the tombstone.
            self._remove(name)
            return None
        known = name in self._pending
        pending = self._pending.get(name, {})
        if all(number in pending for number in range(count)):
            self._tasks[name] = tuple(pending[number] for number in range(count))
            if known:
                self._generations[name] = self._generations.get(name, -1) + 1
            self._applied[name] = self._configs[name]
            self._inconsistent.discard(name)
        else:
            self._inconsistent.add(name)
        if known:
            # An incomplete set is of no use: the next commit record has a complete one before it.
            self._pending[name] = {}
        self._unfenced.add(name)
        return ConnectorChanged(name)

    def _task_count(self, _key: str, name: str, fields: _Fields) -> Event | None:
        count = None if fields is None else values.read_number(fields, "task-count")
        if count is None:
            return _BAD
        self._task_counts[name] = count
        self._unfenced.discard(name)
        return None

    def _restart(self, _key: str, name: str, fields: _Fields) -> Event | None:
        if fields is None:
            return None
        return RestartRequested(name, fields.get("only-failed") is True, fields.get("include-tasks") is True)

    def _session_key(self, key: str, _rest: str, fields: _Fields) -> Event | None:
        found = None if fields is None or key != keys.SESSION_KEY else values.read_session_key(fields)
        if found is None:
            return _BAD
        self.session_key = found
        return SessionKeyChanged(found)

    def _logger(self, _key: str, logger: str, fields: _Fields) -> Event | None:
        level = None if fields is None else fields.get("level")
        return LoggerChanged(logger, level) if isinstance(level, str) else _BAD


_Method: TypeAlias = Callable[[ConfigState, str, str, _Fields], Event | None]
_METHODS: Final[Mapping[str, _Method]] = {
    keys.TARGET: ConfigState._target,  # noqa: SLF001 - the table of this class
    keys.CONNECTOR: ConfigState._connector,  # noqa: SLF001
    keys.TASK: ConfigState._task,  # noqa: SLF001
    keys.COMMIT: ConfigState._commit,  # noqa: SLF001
    keys.RESTART: ConfigState._restart,  # noqa: SLF001
    keys.TASK_COUNT: ConfigState._task_count,  # noqa: SLF001
    keys.SESSION_KEY: ConfigState._session_key,  # noqa: SLF001
    keys.LOGGER: ConfigState._logger,  # noqa: SLF001
}
