"""The output of commands: tables for people, or JSON lines with `--json`, one object per row, on standard output.

Notes, warnings and progress go to standard error, so that standard output holds only the result. A column has a heading
for tables and a key for JSON. Times in JSON are milliseconds, sizes are bytes.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TextIO, TypeVar

import click

from ottla.cli.commands import Option, Options, section
from ottla.common import units
from ottla.common.style import Style
from ottla.tools.progress import Progress, terminal_columns

_GAP = "  "
_SHORTEST = 10
T = TypeVar("T")


class Column(NamedTuple):
    """One column of a table: the key of its value in a row, and the heading (default: the key in capitals).

    - `show` formats the value. By default None becomes "-", and the items of a list are joined by commas.
    - `cell` formats the whole row instead of the value.
    - `colour` returns the name of one of Style's colours for a value ("green", "yellow", "red", "dim", "bold").
    - `right` aligns the column to the right, `narrow` allows a terminal to cut it.
    - `optional` omits the column from a table in which it is empty or zero in every row.
    """

    key: str
    heading: str | None = None
    show: Callable[[Any], str] | None = None
    right: bool = False
    narrow: bool = False
    colour: Callable[[Any], str | None] | None = None
    cell: Callable[[Mapping[str, Any]], str] | None = None
    optional: bool = False

    def title(self) -> str:
        return self.key.replace("_", " ").upper() if self.heading is None else self.heading

    def colour_of(self, row: Mapping[str, Any]) -> str | None:
        """Return the colour of the value of a row; None without one."""
        return self.colour(row.get(self.key)) if self.colour else None

    def text(self, row: Mapping[str, Any]) -> str:
        """Format the value of a row as one line."""
        if self.cell is not None:
            return one_line(self.cell(row))
        value = row.get(self.key)
        return one_line(self.show(value) if self.show is not None else plain(value))


def number(key: str, heading: str | None = None) -> Column:
    """Return a column of whole numbers: `1,234`."""
    return Column(key, heading, units.count, right=True)


def size(key: str, heading: str | None = None) -> Column:
    """Return a column of sizes in bytes: `1.4 MiB`."""
    return Column(key, heading, units.size, right=True)


def moment(key: str, heading: str | None = None) -> Column:
    """Return a column of timestamps in milliseconds since the epoch."""
    return Column(key, heading, units.moment)


def plain(value: object) -> str:
    """Format a value for people."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, (list, tuple)):
        return ",".join(plain(item) for item in value) or "-"
    return str(value)


def one_line(text: str) -> str:
    """Escape control characters: text from other users must not control the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def output_options() -> list[click.Parameter]:
    """Return the option `--json`."""
    return list(section("Output", Option("--json", "JSON, one object per line, for programs")))


class Output:
    """Prints the results of one command, as JSON lines if `json` is set."""

    def __init__(self, options: Options, stream: TextIO | None = None) -> None:
        self.json: bool = getattr(options, "json", False)
        self.quiet: bool = getattr(options, "quiet", False)
        self.stream = sys.stdout if stream is None else stream
        self.style = Style.of(self.stream)

    def table(self, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], *, empty: str = "") -> None:
        """Print the rows as a table, or each row as a JSON object. `empty` is the note for people without a row."""
        if self.json:
            for row in rows:
                self.object(row)
            return
        if empty and not rows:
            self.note(empty)
            return
        columns = [column for column in columns if not column.optional or any(row[column.key] for row in rows)]
        titles = [column.title() for column in columns]
        texts = [[column.text(row) for column in columns] for row in rows]
        widths = [max(map(len, cells)) for cells in zip(titles, *texts, strict=True)]
        self._fit(columns, widths)
        self._write(self._line(columns, titles, widths, ["dim"] * len(columns)))
        for row, cells in zip(rows, texts, strict=True):
            self._write(self._line(columns, cells, widths, [column.colour_of(row) for column in columns]))

    def listing(self, name: str, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], *, empty: str) -> None:
        """Print a table; with the option `--quiet` only the column `name`, unchanged for scripts."""
        if not self.quiet or self.json:
            self.table(columns, rows, empty=empty)
            return
        for row in rows:  # a terminal must not be controlled by the names that other users choose
            self._write(one_line(row[name]) if self.stream.isatty() else row[name])

    def parts(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items, with an empty line before each but the first one."""
        for index, item in enumerate(items):
            if index:
                self.line()
            yield item

    def record(self, row: Mapping[str, Any], columns: Sequence[Column]) -> None:
        """Print one row: as a line per column, or as a JSON object."""
        if self.json:
            self.object(row)
            return
        names = [column.key.replace("_", " ") if column.heading is None else column.heading for column in columns]
        width = max(map(len, names), default=0)
        for name, column in zip(names, columns, strict=True):
            text = self._coloured(column.text(row), column.colour_of(row))
            self._write(f"{self.style.dim(name.ljust(width))}{_GAP}{text}")

    def object(self, row: Mapping[str, Any]) -> None:
        """Print a JSON object on a line."""
        self._write(json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=str))

    def done(self, text: str, row: Mapping[str, Any]) -> None:
        """Print the result of a change: `text` for people, or `row` as JSON."""
        if self.json:
            self.object(row)
        else:
            self._write(text)

    def changed(self, text: str, row: Mapping[str, Any], *, made: bool = True) -> None:
        """Print a change: in green if it was made, and not only checked."""
        self.done(self.style.green(text) if made else text, row)

    def line(self, text: str = "") -> None:
        """Print a line, such as a heading, that JSON output does not have."""
        if not self.json:
            self._write(text)

    def note(self, text: str) -> None:
        """Print a note for people on standard error."""
        if not self.json:
            self.stream.flush()
            print(Style.of(sys.stderr).dim(text), file=sys.stderr)

    def warn(self, text: str) -> None:
        """Print a warning on standard error, also with `--json`."""
        self.stream.flush()
        print(Style.of(sys.stderr).yellow(f"ottla: {text}"), file=sys.stderr)

    @contextmanager
    def progress(self, total: int | None, unit: str) -> Iterator[Progress]:
        """`with output.progress(total, "topics") as bar: bar.advance()`: a bar where standard error is a terminal."""
        bar = Progress(unit, total=total, shown=not self.json)
        with bar.cleared():
            yield bar

    def _write(self, text: str) -> None:
        self.stream.write(f"{text}\n")

    def _coloured(self, text: str, colour: str | None) -> str:
        return text if colour is None else str(getattr(self.style, colour)(text))

    def _line(
        self, columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int], colours: Sequence[str | None]
    ) -> str:
        parts = []
        for index, (column, text, width, colour) in enumerate(zip(columns, cells, widths, colours, strict=True)):
            cut = text if len(text) <= width else _without_its_middle(text, width)
            if column.right:
                cut = cut.rjust(width)
            pad = "" if column.right or index == len(columns) - 1 else " " * (width - len(cut))
            parts.append(self._coloured(cut, colour) + pad)
        return _GAP.join(parts).rstrip()

    def _fit(self, columns: Sequence[Column], widths: list[int]) -> None:
        """Narrow the columns that may be cut to the width of the terminal, the widest first."""
        if not self.stream.isatty():
            return
        available = terminal_columns() - len(_GAP) * (len(columns) - 1)
        cuttable = [index for index, column in enumerate(columns) if column.narrow]
        while sum(widths) > available and cuttable:
            widest = max(cuttable, key=widths.__getitem__)
            if widths[widest] <= max(_SHORTEST, len(columns[widest].title())):
                return
            widths[widest] -= 1


def _without_its_middle(text: str, width: int) -> str:
    """Shorten a text to `width` columns. The end stays, because similar names often differ only there."""
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"
