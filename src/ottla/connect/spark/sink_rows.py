"""The columns of a sink: from records to the rows of a format."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from ottla.connect.errors import ConnectError
from ottla.connect.spark.settings import SparkSettings
from ottla.connect.spark.values import Form, Part

_VIEW = "records"
_PLACE = ("key", "value", "topic", "partition", "offset", "timestamp")


def sink_rows(session: SparkSession, records: DataFrame, key: Part, value: Part, settings: SparkSettings) -> DataFrame:
    """Return the rows to write. Raises ConnectError for columns that do not exist.

    By default the fields of a value are the columns, and a tombstone, which has no fields, is skipped. Values without
    fields are a column beside their key and place.
    """
    rows = _typed(_typed(records, key), value)
    if settings.select:
        rows = selected(session, rows, settings.select)
    elif value.reads_fields:
        rows = rows.where(F.col("value").isNotNull()).select("value.*")
    elif settings.format != "ottla":
        rows = rows.select(*_PLACE)
    else:
        rows = rows.select("key", "value")
    missing = [name for name in settings.partition_by if name not in rows.columns]
    if missing:
        raise ConnectError(
            f"spark.partition.by has {missing[0]}, and the columns are {', '.join(rows.columns)}: extend spark.select"
        )
    return rows


def selected(session: SparkSession, rows: DataFrame, expressions: str) -> DataFrame:
    """Return the columns that SQL expressions name."""
    rows.createOrReplaceTempView(_VIEW)
    return session.sql(f"SELECT {expressions} FROM {_VIEW}")  # noqa: S608 - the settings are the operator's own SQL


def _typed(rows: DataFrame, part: Part) -> DataFrame:
    column = F.col(part.name)
    if part.form is Form.ENVELOPE and part.reads_fields:
        return rows.withColumn(part.name, F.col(f"{part.name}.payload"))
    if part.form in (Form.TEXT, Form.JSON) and not part.reads_fields:
        return rows.withColumn(part.name, column.cast("string"))
    return rows
