"""The files of `ottla log dump`, printed one after another.

It imports the readers of all files, which takes 180 ms.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ottla.common import units
from ottla.common.style import Style
from ottla.tools.dump.files import Found, dump_file, files_below, topic_of
from ottla.tools.dump.record_text import TOPICS, meaning_for
from ottla.tools.dump.rows import Row, damage
from ottla.tools.dump.segment import Depth
from ottla.tools.dump.text import Printer, json_fields
from ottla.tools.progress import Progress

__all__ = ["Files", "Found", "files_below"]


class Files:
    """Prints files one after another and counts their defects."""

    def __init__(self, bar: Progress, *, deep: bool, verify: bool, as_json: bool, kind: str | None) -> None:
        """`kind` is the kind of all records; None: by the name of the directory."""
        self._deep, self._verify, self._json, self._kind = deep, verify, as_json, kind
        self._bar = bar
        self._files = 0
        self._out = sys.stdout
        self._style = Style.of(sys.stdout)
        self._printer = Printer(self._style, entries=deep or not verify)
        self._damaged = 0
        self._follows: tuple[Path, int] | None = None

    def show(self, found: Found, size: int) -> None:
        """Print one file of `size` bytes."""
        if not self._json:
            self._write(self._printer.heading(str(found.path)))
        directory = found.path.parent
        follows = self._follows[1] if found.kind == "log" and self._follows and self._follows[0] == directory else None
        try:
            for row in dump_file(found, self._depth(found), follows):
                self._row(found, row)
                if row.kind == "batch":
                    self._bar.advance(row.fields["size"])
                    size -= row.fields["size"]
                if row.kind == "end" and found.kind == "log" and row.fields["next_offset"] is not None:
                    self._follows = (directory, row.fields["next_offset"])
        except OSError as error:
            self._row(found, damage(f"the file cannot be read: {error.strerror}"))
        self._files += 1
        self._bar.advance(max(0, size))

    def _depth(self, found: Found) -> Depth:
        kind = self._kind
        if kind is None:
            kind = "metadata" if found.kind == "metadata snapshot" else TOPICS.get(topic_of(found.path) or "", "data")
        return Depth(self._deep, self._verify, meaning_for(kind))

    def _row(self, found: Found, row: Row) -> None:
        self._damaged += row.kind == "damage"
        if not self._json:
            self._write(self._printer.text(row))
        elif self._deep or not self._verify or row.kind in ("damage", "warning", "end"):
            fields = {"file": str(found.path), "kind": row.kind, **json_fields(row.fields)}
            self._write(json.dumps(fields, ensure_ascii=not self._out.isatty(), separators=(",", ":")) + "\n")

    def _write(self, text: str) -> None:
        if text:
            self._bar.clear()
            self._out.write(text)

    def end(self, interrupted_of: int | None = None) -> int:
        """Print the totals of a check, which an interrupt may have ended early; returns the exit code."""
        if self._verify and not self._json:
            found = f"{self._damaged:,} damaged places" if self._damaged != 1 else "1 damaged place"
            text = f"{units.plural(self._files, 'file')}, {found if self._damaged else 'nothing damaged'}"
            if interrupted_of is not None:
                text += f" (interrupted: {units.plural(interrupted_of - self._files, 'file')} not checked)"
            good = not self._damaged and interrupted_of is None
            self._write((self._style.green if good else self._style.red)(text) + "\n")
        return 1 if self._damaged and self._verify else 0
