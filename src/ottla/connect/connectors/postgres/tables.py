"""Which tables are captured, and which of them a snapshot reads."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.connect.connectors.capture.filters import Filters
from ottla.connect.connectors.postgres.catalog import Table
from ottla.connect.connectors.postgres.settings import Options


def captured(tables: Sequence[Table], filters: Filters, options: Options) -> list[Table]:
    """Return the tables whose events are emitted: partitions, or their roots with `publish.via.partition.root`."""
    return [each for each in readable(tables, options) if filters.captures(each.schema, each.name)]


def readable(tables: Sequence[Table], options: Options) -> list[Table]:
    """Return the tables whose rows the stream names: a snapshot that read both would emit rows of partitions twice."""
    if options.flag("publish.via.partition.root"):
        return [each for each in tables if not each.partition]
    return [each for each in tables if each.kind == "r"]
