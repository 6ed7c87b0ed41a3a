"""The interface between connectors and workers: `Connector`, `SourceTask` and `SinkTask`.

It is Kafka Connect's (org.apache.kafka.connect.connector, source and sink), without its history: the methods of a task
are called by one thread, which belongs to the task. Most connectors are simpler as functions; see `functions`.

Settings are strings by name, as in the REST API; `ConfigDef.parse` converts them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

from ottla.connect.config.definition import ConfigDef
from ottla.connect.converters.api import Converter, Plain
from ottla.connect.errors import BadRequestError
from ottla.connect.records import Position, SinkRecord, SourceRecord

Config: TypeAlias = Mapping[str, str]


class Kind(StrEnum):
    """The direction of a connector; the texts are from the REST API."""

    SOURCE = "source"
    SINK = "sink"


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class SourceOffset(NamedTuple):
    """A source partition, and where its source goes on."""

    partition: Position
    offset: Position | None


class Finding(NamedTuple):
    """A step of a verification: progress, or a difference between the other system and the topics."""

    text: str
    is_difference: bool = False


@dataclass(frozen=True)
class ConnectorContext:
    """The worker, as a connector sees it."""

    name: str
    request_task_reconfiguration: Callable[[], None]
    """Have `task_configs` called again, from any thread: tables or files were added."""
    fail: Callable[[Exception], None]
    """Stop the connector with state FAILED, from any thread."""
    offset: Callable[[Position], Position | None]
    """Read the committed offset of a source partition (sources only)."""


class TransactionContext(Protocol):
    """The transactions of a source task with `transaction.boundary=connector`: the task says where they end (KIP-618).

    Records stay in the open transaction until the task ends it. A transaction that is open when the task stops or is
    paused is aborted, and the task starts again at the last committed offset. One that stays open for three quarters of
    its timeout (five minutes, or `producer.override.transaction.timeout.ms`) stops the task.
    """

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        """Commit after this record, which a call of `poll` returns; None: after the records of the next `poll`."""
        ...

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        """Abort after this record, or after the records of the next `poll`: they are discarded, and not read again.

        Their offsets are committed at once, in a transaction of their own. Raise an error instead to have the records
        read again.
        """
        ...


@dataclass(frozen=True)
class SourceTaskContext:
    """The worker, as a source task sees it."""

    connector: str
    task: int
    offset: Callable[[Position], Position | None]
    """Read the committed offset of a source partition."""
    is_stopping: Callable[[], bool]
    """Whether `poll` should return soon."""
    report: Callable[[Mapping[str, object]], None]
    """Publish facts for `describe` and `why` (lag, snapshot progress); a later call replaces facts by name."""
    converters: tuple[Converter, Converter] | None = None
    """Of keys and values, if there is no transformation: a task may return `EncodedRecord`s and `EncodedBatch`es."""
    transaction_context: TransactionContext | None = None
    """Ends transactions; None unless the worker writes exactly once and `transaction.boundary` is `connector`."""

    @property
    def has_plain_text(self) -> bool:
        """Whether text in UTF-8 without a key may be returned as an `EncodedBatch`."""
        found = self.converters
        return found is not None and found[0].plain is not None and found[1].plain is Plain.TEXT


@dataclass(frozen=True)
class SinkTaskContext:
    """The worker, as a sink task sees it."""

    connector: str
    task: int
    seek: Callable[[Mapping[TopicPartition, int]], None]
    """Go on at other offsets, before the next `put`: for sinks that keep their own offsets (exactly once)."""
    reject: Callable[[SinkRecord, Exception], None]
    """Hand a record that cannot be written to the dead letter topic (KIP-610). Raises if none is configured."""
    is_stopping: Callable[[], bool]
    report: Callable[[Mapping[str, object]], None]
    """Publish facts for `describe` and `why`; a later call replaces facts by name."""


class SourceTask(ABC):
    """Reads from another system."""

    java_class: ClassVar[str] = ""
    """The Java class of the same tasks, so that stock workers can run their configurations; empty: there is none."""

    @abstractmethod
    def start(self, context: SourceTaskContext, config: Config) -> None:
        """Connect. Raises RetriableError to be started again later."""

    @abstractmethod
    def poll(self) -> Sequence[SourceRecord]:
        """Return the next records, or none after at most about a second. Records of one call are written together.

        Without exactly-once support a record may be returned again after a restart, from the last committed offset.
        Records without a topic have just an offset. If a call returns no others, it is committed before the next call.
        """

    def commit(self, offsets: Sequence[SourceOffset]) -> None:  # noqa: B027 - optional
        """Learn that everything up to these offsets is durable in Kafka, with the offsets: free it at the source."""

    def stop(self) -> None:  # noqa: B027 - optional
        """Close connections. Called once after `start` was called, even if it failed."""


class SinkTask(ABC):
    """Writes to another system."""

    java_class: ClassVar[str] = ""
    """The Java class of the same tasks, so that stock workers can run their configurations; empty: there is none."""

    @abstractmethod
    def start(self, context: SinkTaskContext, config: Config) -> None:
        """Connect. Raises RetriableError to be started again later."""

    def open(self, partitions: Sequence[TopicPartition]) -> None:  # noqa: B027 - optional
        """Learn which partitions were added to the task. A sink with offsets of its own calls `seek` here."""

    @abstractmethod
    def put(self, records: Sequence[SinkRecord]) -> None:
        """Accept records, in the order of each partition. May buffer until `flush`. RetriableError: the same again."""

    def flush(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Write what is buffered; return the next offsets to commit (Connect's preCommit)."""
        return offsets

    def close(self, partitions: Sequence[TopicPartition]) -> None:  # noqa: B027 - optional
        """Learn which partitions were taken from the task. `flush` was called before."""

    def stop(self) -> None:  # noqa: B027 - optional
        """Close connections. Called once after `start` was called, even if it failed."""


class ExactlyOnce(StrEnum):
    """Whether a source supports exactly once (KIP-618)."""

    SUPPORTED = "SUPPORTED"
    UNSUPPORTED = "UNSUPPORTED"


class TransactionBoundaries(StrEnum):
    """Whether a source can say where its transactions end (KIP-618, Kafka's ConnectorTransactionBoundaries)."""

    SUPPORTED = "SUPPORTED"
    UNSUPPORTED = "UNSUPPORTED"


class Life(Protocol):
    """One life of a task that a worker does not run as a SourceTask or SinkTask."""

    def run(self) -> None:
        """Run until the task should stop. Raises the error that ends this life."""
        ...


class Connector(ABC):
    """Divides the work over tasks. A plugin is a class; an instance is one connector by name."""

    kind: ClassVar[Kind]
    version: ClassVar[str]
    config_def: ClassVar[ConfigDef]
    """The settings of the connector alone; settings of all connectors (`name`, `tasks.max`, ...) are added."""
    task_class: ClassVar[type[SourceTask | SinkTask]]

    def start(self, context: ConnectorContext, config: Config) -> None:
        """Begin to watch the source, if its tasks depend on it."""
        self.context, self.config = context, config

    def task_configs(self, most_tasks: int) -> Sequence[Config]:
        """Return the settings of each task, at most `tasks.max`: by default one task of a source, equal ones of a sink.

        The group of a sink's consumers divides the partitions over its tasks.
        """
        return [self.config] * (most_tasks if self.kind is Kind.SINK else 1)

    def stop(self) -> None:  # noqa: B027 - optional
        """End what `start` began."""

    @classmethod
    def life(cls, environment: Any) -> Life | None:
        """Create a life of a task from the worker's `TaskEnvironment`. None: the worker calls `task_class`."""
        del environment
        return None

    @classmethod
    def problems(cls, config: Config) -> Mapping[str, Sequence[str]]:
        """Check what one setting alone does not show (connection, tables): messages by the name of the setting.

        Called for configurations that `config_def` accepts. May connect to the other system, for at most 10 s.
        """
        del config
        return {}

    @classmethod
    def exactly_once(cls, config: Config) -> ExactlyOnce:
        """Whether this source supports exactly once with this configuration."""
        del config
        return ExactlyOnce.UNSUPPORTED

    @classmethod
    def can_define_transaction_boundaries(cls, config: Config) -> TransactionBoundaries:
        """Whether the tasks of this source use `transaction_context` with this configuration."""
        del config
        return TransactionBoundaries.UNSUPPORTED

    @classmethod
    def alter_offsets(cls, config: Config, offsets: Sequence[SourceOffset] | None) -> None:
        """Check new offsets before they are written (KIP-875), None for a reset. Raises BadRequestError."""
        del config, offsets

    @classmethod
    def verify(cls, config: Config, clients: Mapping[str, object]) -> Iterator[Finding]:
        """Compare the other system with the topics, for `ottla connect verify`: yield progress and differences.

        `clients` are the settings of Kafka clients. Called in a process of its own. Raises ConnectError.
        """
        del config, clients
        raise BadRequestError("This connector cannot compare its system with its topics")
