"""The common part of the connectors that capture changes of a database: one task, and exact offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

from ottla import __version__
from ottla.connect.api import Config, Connector, ExactlyOnce, Finding, Kind, SourceOffset, TransactionBoundaries
from ottla.connect.connectors.capture.settings import Options
from ottla.connect.connectors.capture.topic_verification import verify_tables
from ottla.connect.connectors.capture.verification import Converted, Rows, TableName, Tables
from ottla.connect.errors import BadRequestError
from ottla.connect.records import Position


class Database(NamedTuple):
    """The functions of one kind of database. They raise SettingError, BadRequestError and ConnectError."""

    options_of: Callable[[Config], Options]
    position_of: Callable[[Position], object]
    table_names: Callable[[Any], Sequence[TableName]]
    table_rows: Callable[[Any, TableName, Converted], Rows]


class CaptureConnector(Connector):
    """A connector with one task: a log of changes has one order."""

    kind: ClassVar[Kind] = Kind.SOURCE
    version: ClassVar[str] = __version__

    database: ClassVar[Database]

    @classmethod
    def exactly_once(cls, config: Config) -> ExactlyOnce:
        """Each record has an exact offset, and the log is repeatable: exactly once."""
        del config
        return ExactlyOnce.SUPPORTED

    @classmethod
    def can_define_transaction_boundaries(cls, config: Config) -> TransactionBoundaries:
        """Transactions of the database are whole in transactions of Kafka."""
        del config
        return TransactionBoundaries.SUPPORTED

    @classmethod
    def alter_offsets(cls, config: Config, offsets: Sequence[SourceOffset] | None) -> None:
        """Accept offsets of the partition {"server": topic.prefix}."""
        partition = {"server": cls.database.options_of(config).prefix}
        for each in offsets or ():
            if dict(each.partition) != partition:
                raise BadRequestError(
                    f"{dict(each.partition)} is not a source partition of this connector: use {partition}."
                )
            if each.offset is not None:
                cls.database.position_of(each.offset)

    @classmethod
    def verify(cls, config: Config, clients: Mapping[str, object]) -> Iterator[Finding]:
        """Compare each captured table with its topic by ranges of the key."""
        options = cls.database.options_of(config)
        tables = Tables(partial(cls.database.table_names, options), partial(cls.database.table_rows, options))
        return verify_tables(config, options, tables, clients)
