"""Signals: rows of the signal table that ask for ad-hoc snapshots (`execute-snapshot` and `stop-snapshot`)."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.connect.connectors.postgres.catalog import Table
from ottla.connect.connectors.postgres.rows import Row

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Request:
    """A wish for a snapshot of tables."""

    kind: str
    """incremental, blocking, or stop."""
    tables: tuple[str, ...]
    """Regular expressions of SCHEMA.TABLE; none: all (stop)."""
    conditions: tuple[tuple[str, str], ...] = ()
    """Conditions by regular expression of the table."""

    def chosen(self, tables: Sequence[Table]) -> list[Table]:
        """Return the tables that are meant, in the order of the wish."""
        found: list[Table] = []
        for pattern in self.tables:
            found += [each for each in tables if each not in found and re.fullmatch(pattern, each.full_name)]
        return found

    def condition(self, table: Table) -> str:
        """Return the SQL condition of a table, or an empty text."""
        for pattern, condition in self.conditions:
            if re.fullmatch(pattern, table.full_name):
                return condition
        return ""


def request_of(row: Row) -> Request | None:
    """Return the wish of a signal row, or None with a warning: a wrong signal must not stop the stream."""
    values = list(row.values())
    name, kind, text = (values + [None] * 3)[:3]
    try:
        data: Mapping[str, Any] = json.loads(text) if text else {}
        tables = tuple(str(each) for each in data.get("data-collections", []))
        for each in tables:
            re.compile(each)
        if kind == "stop-snapshot":
            return Request("stop", tables)
        if kind == "execute-snapshot":
            wanted = str(data.get("type", "incremental")).lower()
            if wanted in ("incremental", "blocking") and tables:
                return Request(wanted, tables, _conditions(data, tables))
    except (ValueError, AttributeError, TypeError, KeyError, re.error) as error:
        logger.warning("Ignored signal %s: its data is not valid: %s", name, error)
        return None
    if kind == "log":
        logger.info("Signal %s: %s", name, data.get("message", ""))
    else:
        logger.warning("Ignored signal %s: type %s with %s is not known", name, kind, text)
    return None


def _conditions(data: Mapping[str, Any], tables: Sequence[str]) -> tuple[tuple[str, str], ...]:
    found = [(str(each["data-collection"]), str(each["filter"])) for each in data.get("additional-conditions") or []]
    old = data.get("additional-condition")
    if old:  # before Debezium 2.5: one condition for all tables
        found += [(each, str(old)) for each in tables]
    return tuple(found)
