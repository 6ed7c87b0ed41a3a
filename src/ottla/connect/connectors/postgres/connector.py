"""The connector: one task, its settings, and checks of the database before it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.connect.api import Config
from ottla.connect.connectors.capture.connector import CaptureConnector, Database
from ottla.connect.connectors.postgres import checks, verification
from ottla.connect.connectors.postgres.positions import StreamPosition
from ottla.connect.connectors.postgres.settings import CONFIG, Options
from ottla.connect.connectors.postgres.task import PostgresTask


class PostgresConnector(CaptureConnector):
    """Captures the changes of a PostgreSQL database, as Debezium's connector does."""

    config_def = CONFIG
    task_class = PostgresTask
    database = Database(Options.of, StreamPosition.of, verification.table_names, verification.table_rows)

    @classmethod
    def problems(cls, config: Config) -> Mapping[str, Sequence[str]]:
        """Check filters, connection, rights, publication, slot and replica identities, all at once."""
        return checks.problems(config)
