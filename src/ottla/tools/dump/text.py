"""Rows of dumped files as text: headings, columns of fixed width, escaped records, or fields for JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from ottla.common import units
from ottla.common.style import Style
from ottla.tools.dump.rows import Row
from ottla.tools.formats.escaping import escaped_text, for_terminal
from ottla.tools.formats.record_writer import header_text

_BATCH_HEAD = (
    f"{'POSITION':>10}  {'OFFSETS':<17}  {'RECORDS':>7}  {'SIZE':>9}  {'CODEC':<6}  {'MAX TIMESTAMP':<23}  EPOCH"
)


def json_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Convert fields for JSON: bytes become text if they are UTF-8, else base64."""
    converted: dict[str, Any] = {}
    for name, value in fields.items():
        if name == "headers":
            converted[name] = [json_fields({"name": key, "value": each}) for key, each in value]
        elif isinstance(value, bytes):
            try:
                converted[name] = value.decode()
            except UnicodeDecodeError:
                converted[f"{name}_base64"] = base64.b64encode(value).decode()
        elif name == "meaning":
            converted["record"] = value
        else:
            converted[name] = value
    return converted


class Printer:
    """Formats rows as lines; without `entries` only totals and problems."""

    def __init__(self, style: Style, *, entries: bool) -> None:
        self._style = style
        self._entries = entries
        self._path = ""
        self._headed = False

    def heading(self, path: str) -> str:
        """Return the heading of a file; "" if only totals are shown, whose lines contain it."""
        gap = "\n" if self._path else ""
        self._path, self._headed = self._style.bold(for_terminal(path)), False
        return f"{gap}{self._path}\n" if self._entries else ""

    def text(self, row: Row) -> str:
        """Return the lines of a row; "" for a row that is not shown."""
        if row.kind == "damage":
            return f"{self._where()}{self._style.red('damage: ' + for_terminal(self._problem(row.fields)))}\n"
        if row.kind == "warning":
            return f"{self._where()}{self._style.yellow('warning: ' + for_terminal(self._problem(row.fields)))}\n"
        if row.kind == "end":
            end = self._style.dim(self._end(row.fields))
            if self._entries:
                return f"  {end}\n"
            return f"{self._path}  {end}\n" if row.fields.get("records") or row.fields.get("entries") else ""
        if not self._entries:
            return ""
        if row.kind == "record":
            return f"{self._record(row.fields)}\n"
        if row.kind == "line":
            return f"  {for_terminal(row.fields['text'])}\n"
        head = "" if self._headed else self._head(row)
        self._headed = True
        return f"{head}{self._batch(row.fields) if row.kind == 'batch' else self._entry(row.fields)}\n"

    def _problem(self, fields: Mapping[str, Any]) -> str:
        where = f" (at byte {fields['position']:,})" if "position" in fields else ""
        return f"{fields['problem']}{where}"

    def _where(self) -> str:
        return "  " if self._entries else f"{self._path}  "

    def _head(self, row: Row) -> str:
        if row.kind == "batch":
            return f"  {self._style.dim(_BATCH_HEAD)}\n"
        names = "".join(_cell(name, name.replace("_", " ").upper()) for name in row.fields)
        return f"  {self._style.dim(names.rstrip())}\n"

    def _batch(self, f: Mapping[str, Any]) -> str:
        first, last = f["base_offset"], f["last_offset"]
        offsets = f"{first}-{last}" if last != first else str(first)
        line = (
            f"{f['position']:>10}  {offsets:<17}  {f['records']:>7}  {units.size(f['size']):>9}  {f['codec']:<6}  "
            f"{units.moment(f['max_timestamp']):<23}  {f['leader_epoch']:>5}"
        )
        if f["producer_id"] >= 0:
            line += f"  producer {f['producer_id']}/{f['producer_epoch']}"
            if f["base_sequence"] >= 0:
                line += f" seq {f['base_sequence']}-{f['last_sequence']}"
        flags = [name for name in ("transactional", "control") if f[name]]
        flags += ["append time"] if f["timestamp_type"] == "append" else []
        flags += [f"delete horizon {units.moment(f['delete_horizon'])}"] if f["delete_horizon"] is not None else []
        return f"  {line}  {', '.join(flags)}".rstrip()

    def _entry(self, fields: Mapping[str, Any]) -> str:
        return f"  {''.join(_cell(name, _value(name, value)) for name, value in fields.items()).rstrip()}"

    def _record(self, f: Mapping[str, Any]) -> str:
        start = self._style.dim(f"{f['offset']:>14}  {units.moment(f['timestamp'])}")
        meaning = f.get("meaning")
        if meaning is not None:
            return f"  {start}  {for_terminal(_meaning(meaning))}"
        words = [] if f["key"] is None else [self._style.green(escaped_text(f["key"]) or '""')]
        words.append(
            self._style.dim("null") if f["value"] is None else escaped_text(f["value"]) or self._style.dim('""')
        )
        if f["headers"]:
            texts = ", ".join(header_text(name, value).decode() for name, value in f["headers"])
            words.append(self._style.yellow(f"[{texts}]"))
        return f"  {start}  {'  '.join(words)}"

    def _end(self, f: Mapping[str, Any]) -> str:
        if "batches" in f:
            text = f"{units.plural(f['batches'], 'batch', 'batches')}, {units.plural(f['records'], 'record')}"
            text += f", {units.size(f['size'])}"
            if f["batches"]:
                text += f", offsets {f['first_offset']} to {f['next_offset'] - 1}"
        else:
            text = units.plural(f["entries"], "entry", "entries")
        return text


_WIDTHS = {"topic": 30, "partition": 11, "timestamp": 43, "last_timestamp": 43}


def _cell(name: str, text: str) -> str:
    return f"{text:<{max(_WIDTHS.get(name, 14), len(name) + 2)}}"


def _value(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name.endswith("timestamp"):
        return f"{value} ({units.moment(value)})"
    return for_terminal(str(value))


def _meaning(meaning: Mapping[str, Any]) -> str:
    if "problem" in meaning:
        return f"cannot be read: {meaning['problem']}"
    key = meaning.get("key")
    if not isinstance(key, dict):
        return (
            f"{meaning['type']} {_pairs({name: value for name, value in meaning.items() if name != 'type'})}".rstrip()
        )
    value = meaning["value"]
    return f"{meaning['type']} {_pairs(key)} -> {'deleted' if value is None else _pairs(value)}"


def _pairs(fields: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={_short(value)}" for name, value in fields.items())


def _short(value: Any) -> str:
    if isinstance(value, str) and value and value.isprintable() and not set(value) & set(' "{}[]=,'):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
