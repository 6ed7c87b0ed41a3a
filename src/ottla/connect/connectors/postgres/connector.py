"""The connector: one task, its settings, and checks of the database before it starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ottla import __version__
from ottla.connect.api import Config, Connector, ExactlyOnce, Finding, Kind, SourceOffset, TransactionBoundaries
from ottla.connect.connectors.capture.topic_verification import verify_tables
from ottla.connect.connectors.postgres import checks
from ottla.connect.connectors.postgres.positions import StreamPosition
from ottla.connect.connectors.postgres.settings import CONFIG, Options
from ottla.connect.connectors.postgres.task import PostgresTask
from ottla.connect.connectors.postgres.verification import tables_of
from ottla.connect.errors import BadRequestError


class PostgresConnector(Connector):
    """Captures the changes of a PostgreSQL database, as Debezium's connector does."""

    kind = Kind.SOURCE
    version = __version__
    config_def = CONFIG
    task_class = PostgresTask

    def task_configs(self, most_tasks: int) -> Sequence[Config]:
        """Return one task: a slot has one reader."""
        del most_tasks
        return [self.config]

    @classmethod
    def problems(cls, config: Config) -> Mapping[str, Sequence[str]]:
        """Check filters, connection, rights, publication, slot and replica identities, all at once."""
        return checks.problems(config)

    @classmethod
    def exactly_once(cls, config: Config) -> ExactlyOnce:
        """Each record has an exact offset, and the stream is repeatable: exactly once."""
        del config
        return ExactlyOnce.SUPPORTED

    @classmethod
    def can_define_transaction_boundaries(cls, config: Config) -> TransactionBoundaries:
        """Transactions of the database are whole in transactions of Kafka."""
        del config
        return TransactionBoundaries.SUPPORTED

    @classmethod
    def alter_offsets(cls, config: Config, offsets: Sequence[SourceOffset] | None) -> None:
        """Accept offsets with a number `lsn` of the partition {"server": topic.prefix}."""
        partition = {"server": Options.of(config).prefix}
        for each in offsets or ():
            if dict(each.partition) != partition:
                raise BadRequestError(
                    f"{dict(each.partition)} is not a source partition of this connector: use {partition}."
                )
            if each.offset is not None:
                StreamPosition.of(each.offset)

    @classmethod
    def verify(cls, config: Config, clients: Mapping[str, object]) -> Iterator[Finding]:
        """Compare each captured table with its topic by ranges of the key."""
        options = Options.of(config)
        return verify_tables(config, options, tables_of(options), clients)
