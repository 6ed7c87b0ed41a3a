"""The Delta sink: each commit has a `txn` action for each partition, with the next offset as its version.

The commit goes to the version after the snapshot that was checked, without retries of the library: another commit in
between is a conflict, after which the offsets are checked again. Source: PROTOCOL.md of Delta, "Transaction
Identifiers". Data files of a failed commit are removed by VACUUM.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ottla import __version__
from ottla.connect.api import Connector, Kind, TopicPartition
from ottla.connect.config.definition import ConfigDef, Importance, Password, Setting, SettingType
from ottla.connect.connectors.files.storage import S3_SETTINGS
from ottla.connect.connectors.table_sink import (
    TABLE_SETTINGS,
    Offsets,
    Table,
    TableSinkTask,
    fitted,
)
from ottla.connect.errors import DataError, RetriableError

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

SETTINGS = ConfigDef(
    [
        *TABLE_SETTINGS,
        Setting("partition.by", SettingType.LIST, "Partition columns of a new table.", [], Importance.LOW),
        *S3_SETTINGS,
    ]
)


class DeltaSinkTable(Table):
    """A Delta table by its path or URL. It is created by its first commit."""

    def __init__(self, path: str, application: str, values: Mapping[str, Any]) -> None:
        super().__init__(path)
        self._application, self._values = application, values
        self._options = _storage_options(values) if path.startswith("s3://") else None

    def _app_id(self, tp: TopicPartition) -> str:
        return f"ottla-{self._application}-{tp.topic}-{tp.partition}"

    def _loaded(self) -> Any:
        """Return the newest version, or None if the table does not exist."""
        from deltalake import DeltaTable  # noqa: PLC0415 - an optional package
        from deltalake.exceptions import DeltaError, TableNotFoundError  # noqa: PLC0415

        try:
            return DeltaTable(self.name, storage_options=self._options)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise RetriableError(f"{self.name} cannot be read: {error}") from error

    def _offsets(self, table: Any, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        found = {tp: table.transaction_version(self._app_id(tp)) for tp in partitions}
        return {tp: version for tp, version in found.items() if version is not None}

    def _failures(self) -> tuple[type[Exception], ...]:
        from deltalake.exceptions import DeltaError  # noqa: PLC0415

        return DeltaError, OSError

    def _created(self, rows: pa.Table) -> Any:
        from deltalake import DeltaTable  # noqa: PLC0415
        from deltalake.exceptions import CommitFailedError, DeltaError  # noqa: PLC0415

        try:
            DeltaTable.create(
                self.name,
                rows.schema,
                mode="ignore",
                partition_by=self._values["partition.by"] or None,
                storage_options=self._options,
            )
        except CommitFailedError as error:
            if self._loaded() is None:
                raise RetriableError(f"{self.name} cannot be created: {error}") from error
        except (DeltaError, OSError) as error:
            raise RetriableError(f"{self.name} cannot be created: {error}") from error
        return self._loaded()

    def _write(self, table: Any, rows: pa.Table, new: Offsets) -> None:
        import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
        from deltalake import CommitProperties, Transaction, write_deltalake  # noqa: PLC0415
        from deltalake.exceptions import SchemaMismatchError  # noqa: PLC0415

        target = pa.schema(table.schema().to_arrow())
        evolves = self._values["schema.evolution"] != "none"
        if evolves:
            target = pa.schema([*target, *(each for each in rows.schema if each.name not in target.names)])
        properties = CommitProperties(
            app_transactions=[Transaction(self._app_id(tp), offset) for tp, offset in new.items()],
            max_commit_retries=0,
        )
        mode: Any = "merge" if evolves else None
        fitting = fitted(rows, target)
        try:
            write_deltalake(table, fitting, mode="append", schema_mode=mode, commit_properties=properties)
        except SchemaMismatchError as error:
            raise DataError(f"Records do not fit the schema of {self.name}: {error}") from error


def _storage_options(values: Mapping[str, Any]) -> dict[str, str]:
    secret = values["s3.secret.access.key"]
    options = {
        "AWS_ENDPOINT_URL": values["s3.endpoint"],
        "AWS_REGION": values["s3.region"],
        "AWS_ACCESS_KEY_ID": values["s3.access.key.id"],
        "AWS_SECRET_ACCESS_KEY": secret.secret if isinstance(secret, Password) else "",
        "AWS_ALLOW_HTTP": "true" if values["s3.endpoint"].startswith("http://") else "",
        "conditional_put": "etag",
    }
    return {name: value for name, value in options.items() if value}


class DeltaSinkTask(TableSinkTask):
    """Writes Delta tables."""

    config_def = SETTINGS

    def table(self, name: str) -> Table:
        """Return a table by path."""
        return DeltaSinkTable(name, self.context.connector, self.values)


class DeltaSinkConnector(Connector):
    """Topics as Delta tables."""

    kind = Kind.SINK
    version = __version__
    config_def = SETTINGS
    task_class = DeltaSinkTask
