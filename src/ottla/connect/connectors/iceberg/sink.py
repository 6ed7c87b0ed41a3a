"""The Iceberg sink: rows, offsets and new columns are one transaction of the catalog.

The next offset of a partition is the table property `ottla.offsets.CONNECTOR.TOPIC.PARTITION`, which survives the
expiry of snapshots. The catalog accepts the transaction only if the table still has the snapshot that was checked.
The library's own retries would put the rows of a delayed task behind its successor's, so they are disabled for this
writer, not in the table.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla import __version__
from ottla.connect.api import Config, Connector, Kind, TopicPartition
from ottla.connect.config.definition import ConfigDef
from ottla.connect.connectors.table_sink import (
    TABLE_SETTINGS,
    Offsets,
    Table,
    TableSinkTask,
    fitted,
)
from ottla.connect.errors import ConnectError, RetriableError

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

SETTINGS: Final = ConfigDef(TABLE_SETTINGS)
CATALOG: Final = "catalog."
"""Settings with this prefix are the catalog's properties, for example `catalog.uri`; `catalog.name` names it."""
_RETRIES: Final = "commit.retry.num-retries"


class IcebergSinkTable(Table):
    """An Iceberg table by name. It is created by its first commit."""

    def __init__(self, catalog: Any, name: str, application: str, values: Mapping[str, Any]) -> None:
        super().__init__(name)
        self._catalog, self._application, self._values = catalog, application, values

    def _property(self, tp: TopicPartition) -> str:
        return f"ottla.offsets.{self._application}.{tp.topic}.{tp.partition}"

    def _loaded(self) -> Any:
        """Return the newest metadata, or None if the table does not exist."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError  # noqa: PLC0415 - optional package

        try:
            return self._catalog.load_table(self.name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except Exception as error:  # each catalog has its own exceptions
            raise RetriableError(f"{self.name} cannot be read: {type(error).__name__}: {error}") from error

    def _offsets(self, table: Any, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        properties = table.metadata.properties
        found = {tp: properties.get(self._property(tp)) for tp in partitions}
        return {tp: int(value) for tp, value in found.items() if value is not None}

    def _failures(self) -> tuple[type[Exception], ...]:
        return (Exception,)  # each catalog has its own exceptions

    def _created(self, rows: pa.Table) -> Any:
        try:
            namespace = self.name.rpartition(".")[0]
            if namespace:
                self._catalog.create_namespace_if_not_exists(namespace)
            return self._catalog.create_table_if_not_exists(self.name, rows.schema)
        except Exception as error:  # each catalog has its own exceptions
            raise RetriableError(f"{self.name} cannot be created: {type(error).__name__}: {error}") from error

    def _write(self, table: Any, rows: pa.Table, new: Offsets) -> None:
        properties = {**table.metadata.properties, _RETRIES: "0"}
        table.metadata = table.metadata.model_copy(update={"properties": properties})
        transaction = table.transaction()
        if self._values["schema.evolution"] != "none":
            self._evolve(transaction, rows)
        fitting = fitted(rows, transaction.table_metadata.schema().as_arrow())
        transaction.append(fitting, snapshot_properties={"ottla.commit": str(uuid.uuid4())})
        transaction.set_properties({self._property(tp): str(offset) for tp, offset in new.items()})
        transaction.commit_transaction()

    def _evolve(self, transaction: Any, rows: pa.Table) -> None:
        """Add missing columns; widen int to long and float to double."""
        import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
        from pyiceberg.types import DoubleType, LongType  # noqa: PLC0415

        current = transaction.table_metadata.schema().as_arrow()
        missing = [each for each in rows.schema if each.name not in current.names]
        wide = {pa.int64(): (pa.int32(), LongType()), pa.float64(): (pa.float32(), DoubleType())}
        widened = {
            each.name: wide[each.type][1]
            for each in rows.schema
            if each.type in wide and each.name in current.names and current.field(each.name).type == wide[each.type][0]
        }
        if self._values["schema.evolution"] != "widen":
            widened = {}
        if not missing and not widened:
            return
        with transaction.update_schema() as update:
            if missing:
                update.union_by_name(pa.schema(missing))
            for name, kind in widened.items():
                update.update_column(name, field_type=kind)


class IcebergSinkTask(TableSinkTask):
    """Writes Iceberg tables."""

    config_def = SETTINGS
    _catalog: Any = None

    def table(self, name: str) -> Table:
        """Return a table by name. Raises ConnectError for a catalog that cannot be used."""
        from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - an optional package

        if self._catalog is None:
            properties = {
                each.removeprefix(CATALOG): value for each, value in self.config.items() if each.startswith(CATALOG)
            }
            try:
                self._catalog = load_catalog(properties.pop("name", "ottla"), **properties)
            except Exception as error:  # each catalog has its own exceptions
                raise ConnectError(f"The catalog cannot be used: {type(error).__name__}: {error}") from error
        return IcebergSinkTable(self._catalog, name, self.context.connector, self.values)

    def stop(self) -> None:
        """Close the catalog."""
        super().stop()
        if self._catalog is not None:
            self._catalog.close()


class IcebergSinkConnector(Connector):
    """Topics as Iceberg tables."""

    kind = Kind.SINK
    version = __version__
    config_def = SETTINGS
    task_class = IcebergSinkTask

    @classmethod
    def problems(cls, config: Config) -> Mapping[str, Sequence[str]]:
        """Check that there is a catalog and a namespace."""
        faults: dict[str, list[str]] = {}
        if not any(each.startswith(CATALOG) for each in config):
            faults["table"] = ["Set the catalog's properties, for example catalog.type=sql and catalog.uri"]
        if "." not in config.get("table", "."):
            faults["table"] = [*faults.get("table", []), "table must be NAMESPACE.TABLE"]
        return faults
