"""Which tables, columns, messages and operations are captured, and how columns are hidden.

Lists have regular expressions that match a whole name, without regard to case, as Debezium's do.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.connect.connectors.capture.settings import Options

Change = Callable[[str], str]
_MASK: Final = re.compile(r"column\.mask\.with\.(\d+)\.chars")
_TRUNCATE: Final = re.compile(r"column\.truncate\.to\.(\d+)\.chars")
_HASH: Final = re.compile(r"column\.mask\.hash\.(v2\.)?([^.]+)\.with\.salt\.(.+)")


def patterns(expressions: Sequence[str]) -> re.Pattern[str] | None:
    """Return one pattern for a list; None for an empty list. Raises re.error."""
    if not expressions:
        return None
    for each in expressions:
        re.compile(each)
    return re.compile("|".join(f"(?:{each})" for each in expressions), re.IGNORECASE)


@dataclass(frozen=True)
class Lists:
    """An include list and an exclude list; an empty include list has everything."""

    include: re.Pattern[str] | None
    exclude: re.Pattern[str] | None

    @classmethod
    def of(cls, options: Options, what: str) -> Lists:
        """Read WHAT.include.list and WHAT.exclude.list."""
        return cls(patterns(options.names(f"{what}.include.list")), patterns(options.names(f"{what}.exclude.list")))

    def has(self, name: str) -> bool:
        """Whether a name is captured."""
        if self.include is not None:
            return self.include.fullmatch(name) is not None
        return self.exclude is None or self.exclude.fullmatch(name) is None


class Filters:
    """All filters of a configuration."""

    def __init__(self, options: Options) -> None:
        self._schemas, self._tables = Lists.of(options, "schema"), Lists.of(options, "table")
        self._columns = Lists.of(options, "column")
        self._prefixes = Lists.of(options, "message.prefix")
        self._snapshot = patterns(options.names("snapshot.include.collection.list"))
        self._types = patterns(options.names("datatype.propagate.source.type"))
        self._propagated = patterns(options.names("column.propagate.source.type"))
        self._changes = _changes(options.raw)
        self._keys = _keys(options.text("message.key.columns"))
        self.signals = options.text("signal.data.collection")

    def captures(self, schema: str, table: str) -> bool:
        """Whether the events of a table are emitted."""
        name = f"{schema}.{table}"
        return name != self.signals and self._schemas.has(schema) and self._tables.has(name)

    def reads(self, schema: str, table: str) -> bool:
        """Whether a captured table is read by the first snapshot."""
        return self._snapshot is None or self._snapshot.fullmatch(f"{schema}.{table}") is not None

    def has_column(self, table: str, column: str) -> bool:
        """Whether a column of a table (SCHEMA.TABLE) has a field."""
        return self._columns.has(f"{table}.{column}")

    def has_message(self, prefix: str) -> bool:
        """Whether a logical decoding message is emitted."""
        return self._prefixes.has(prefix)

    def change(self, table: str, column: str) -> Change | None:
        """Return how the text of a column is hidden, or None."""
        for pattern, change in self._changes:
            if pattern.fullmatch(f"{table}.{column}"):
                return change
        return None

    def propagates(self, table: str, column: str, type_name: str) -> bool:
        """Whether the schema of a column names its database type."""
        if self._propagated is not None and self._propagated.fullmatch(f"{table}.{column}"):
            return True
        return self._types is not None and self._types.fullmatch(f"{table.partition('.')[0]}.{type_name}") is not None

    def key(self, table: str, columns: Sequence[str]) -> tuple[str, ...] | None:
        """Return the columns that `message.key.columns` gives to a table, or None."""
        for pattern, wanted in self._keys:
            if pattern.fullmatch(table):
                return tuple(name for each in wanted for name in columns if each.fullmatch(name))
        return None


def _keys(text: str) -> list[tuple[re.Pattern[str], list[re.Pattern[str]]]]:
    found = []
    for part in text.split(";"):
        if not part.strip():
            continue
        table, _, columns = part.strip().rpartition(":")
        names = [re.compile(each.strip()) for each in columns.split(",") if each.strip()]
        found.append((re.compile(table.strip(), re.IGNORECASE), names))
    return found


def _changes(raw: Mapping[str, str]) -> list[tuple[re.Pattern[str], Change]]:
    found: list[tuple[re.Pattern[str], Change]] = []
    for name, value in raw.items():
        change = _change_of(name)
        columns = patterns([each.strip() for each in value.split(",") if each.strip()]) if change else None
        if change is not None and columns is not None:
            found.append((columns, change))
    return found


def _change_of(setting: str) -> Change | None:
    if mask := _MASK.fullmatch(setting):
        return _masking(int(mask[1]))
    if cut := _TRUNCATE.fullmatch(setting):
        return _truncating(int(cut[1]))
    if digest := _HASH.fullmatch(setting):
        return hashing(digest[2], digest[3], whole=bool(digest[1]))
    return None


def _masking(length: int) -> Change:
    mask = "*" * length
    return lambda _: mask


def _truncating(length: int) -> Change:
    return lambda text: text[:length]


def hashing(algorithm: str, salt: str, *, whole: bool) -> Change:
    """Return a function to the hexadecimal hash of a text and a salt. Raises ValueError for an unknown algorithm."""
    name = algorithm.replace("-", "").lower()
    hashlib.new(name, usedforsecurity=False)

    def change(text: str) -> str:
        # Debezium's version 1 hashes the text as Java serializes it; version 2 hashes its UTF-8 bytes.
        raw = text.encode()
        if not whole:
            raw = b"\xac\xed\x00\x05t" + len(raw).to_bytes(2, "big") + raw
        return hashlib.new(name, salt.encode() + raw, usedforsecurity=False).hexdigest()

    return change


def faults(options: Options) -> dict[str, str]:
    """Return a sentence for each setting with a regular expression or a hash that is not valid."""
    found: dict[str, str] = {}
    for setting, value in options.raw.items():
        if setting.endswith((".include.list", ".exclude.list", "propagate.source.type")):
            try:
                patterns([each.strip() for each in value.split(",") if each.strip()])
            except re.error as error:
                found[setting] = f"{setting} has a regular expression that is not valid: {error}."
    for setting, read in (
        ("message.key.columns", lambda: _keys(options.text("message.key.columns"))),
        ("", lambda: _changes(options.raw)),
    ):
        try:
            read()
        except (re.error, ValueError) as error:
            name = setting or next((each for each in options.raw if each.startswith("column.")), "column.mask")
            found[name] = f"{name} is not valid: {error}."
    for what in ("schema", "table", "column", "message.prefix"):
        if options.names(f"{what}.include.list") and options.names(f"{what}.exclude.list"):
            found[f"{what}.exclude.list"] = (
                f"{what}.include.list and {what}.exclude.list exclude each other: set one of them."
            )
    return found
