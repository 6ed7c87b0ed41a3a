"""The delivered connectors. Nothing is imported here."""

from __future__ import annotations

from typing import Final, NamedTuple


class Delivered(NamedTuple):
    """A connector: the Java class whose configurations it accepts, our short name, its direction, `module:class`."""

    java_name: str
    short_name: str
    kind: str
    target: str


_HERE: Final = "ottla.connect.connectors"
CONNECTORS: Final = (
    Delivered(
        "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "file-stream-source",
        "source",
        f"{_HERE}.file_stream:FileStreamSourceConnector",
    ),
    Delivered(
        "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "file-stream-sink",
        "sink",
        f"{_HERE}.file_stream:FileStreamSinkConnector",
    ),
    Delivered(
        "org.apache.kafka.connect.tools.VerifiableSourceConnector",
        "verifiable-source",
        "source",
        f"{_HERE}.verifiable:VerifiableSourceConnector",
    ),
    Delivered(
        "org.apache.kafka.connect.tools.VerifiableSinkConnector",
        "verifiable-sink",
        "sink",
        f"{_HERE}.verifiable:VerifiableSinkConnector",
    ),
    Delivered(
        "io.debezium.connector.postgresql.PostgresConnector",
        "postgres",
        "source",
        f"{_HERE}.postgres.connector:PostgresConnector",
    ),
    Delivered(
        f"{_HERE}.files.source.FilesSourceConnector",
        "files",
        "source",
        f"{_HERE}.files.source:FilesSourceConnector",
    ),
    Delivered(
        f"{_HERE}.files.sink.FilesSinkConnector",
        "files-sink",
        "sink",
        f"{_HERE}.files.sink:FilesSinkConnector",
    ),
    Delivered(
        f"{_HERE}.delta.sink.DeltaSinkConnector",
        "delta",
        "sink",
        f"{_HERE}.delta.sink:DeltaSinkConnector",
    ),
    Delivered(
        f"{_HERE}.iceberg.sink.IcebergSinkConnector",
        "iceberg",
        "sink",
        f"{_HERE}.iceberg.sink:IcebergSinkConnector",
    ),
    Delivered(
        f"{_HERE}.http.source.HttpSourceConnector",
        "http",
        "source",
        f"{_HERE}.http.source:HttpSourceConnector",
    ),
    Delivered(
        f"{_HERE}.http.sink.HttpSinkConnector",
        "http-sink",
        "sink",
        f"{_HERE}.http.sink:HttpSinkConnector",
    ),
    Delivered(
        f"{_HERE}.search.sink.SearchSinkConnector",
        "search",
        "sink",
        f"{_HERE}.search.sink:SearchSinkConnector",
    ),
    Delivered(
        "io.confluent.connect.jdbc.JdbcSourceConnector",
        "sql-source",
        "source",
        f"{_HERE}.sql.connector:SqlSourceConnector",
    ),
    Delivered(
        "io.confluent.connect.jdbc.JdbcSinkConnector",
        "sql-sink",
        "sink",
        f"{_HERE}.sql.connector:SqlSinkConnector",
    ),
    Delivered(
        "io.debezium.connector.mysql.MySqlConnector",
        "mysql",
        "source",
        f"{_HERE}.mysql.connector:MysqlConnector",
    ),
    Delivered(
        "io.debezium.connector.mariadb.MariaDbConnector",
        "mariadb",
        "source",
        f"{_HERE}.mysql.connector:MysqlConnector",
    ),
)
_BOTH: Final = ("source", "sink")
SPARK_FORMATS: Final = {
    "console": ("sink",),
    "csv": _BOTH,
    "jdbc": _BOTH,
    "json": _BOTH,
    "orc": _BOTH,
    "ottla": _BOTH,
    "parquet": _BOTH,
    "rate": ("source",),
    "text": _BOTH,
}
"""The formats that Spark has with pyspark alone, and ours: the directions of each, the usual one last."""
