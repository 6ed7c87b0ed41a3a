"""Parts of pages as data: tables, facts, forms, text. Templates render them, and escape each text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from ottla.common import units


class Cell(NamedTuple):
    """A cell of a table. `tone` is ok, warning, critical, dim or ""."""

    text: str
    href: str | None = None
    tone: str = ""
    title: str | None = None
    bar: float | None = None
    """A share from 0 to 1, drawn as a bar."""


class Column(NamedTuple):
    """A column of a table."""

    name: str
    right: bool = False
    mono: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table; `empty` is shown instead of no rows."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    empty: str = "None."
    note: str = ""
    kind: str = "table"


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values."""

    rows: Sequence[tuple[str, Cell]]
    title: str = ""
    kind: str = "facts"


@dataclass(frozen=True, slots=True)
class Text:
    """Text with its line breaks."""

    text: str
    title: str = ""
    kind: str = "text"


class Field(NamedTuple):
    """A field of a form. `type` is text, password, number, area, select, checkbox or hidden."""

    name: str
    label: str
    value: str = ""
    type: str = "text"
    options: Sequence[tuple[str, str]] = ()
    hint: str = ""
    required: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class Form:
    """A form. A change is a POST; `method` "get" is a search."""

    action: str
    button: str
    fields: Sequence[Field] = ()
    title: str = ""
    note: str = ""
    tone: str = ""
    method: str = "post"
    kind: str = "form"


def confirmation(action: str, button: str, what: str, note: str) -> Form:
    """Return a form that asks for the name of something that a POST deletes (`Call.check_confirmed`)."""
    fields = [Field("confirm", f"Type the {what}'s name", required=True)]
    return Form(action, button, fields, note=note, tone="danger")


class Link(NamedTuple):
    """A link of a row of links: actions or tabs."""

    text: str
    href: str
    tone: str = ""
    current: bool = False


@dataclass(slots=True)
class Page:
    """An answer: `data` is the JSON, `parts` are the HTML, `command` does the same in a terminal."""

    title: str
    data: dict[str, Any]
    parts: Sequence[Any] = ()
    command: str = ""
    crumbs: Sequence[tuple[str, str]] = ()
    tabs: Sequence[Link] = ()
    actions: Sequence[Link] = ()
    lead: str = ""
    tone: str = ""
    template: str = "page.html"
    status: int = 200
    section: str = ""
    more: dict[str, Any] = field(default_factory=dict)


def url(*segments: object, **query: object) -> str:
    """Return a path of the console. Segments and values are quoted; values that are None or "" are omitted."""
    path = "/" + "/".join(quote(str(segment), safe="") for segment in segments)
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def number(value: float | None) -> Cell:
    """A whole number with separators; a dash if it is unknown."""
    return Cell("-", tone="dim") if value is None else Cell(f"{value:,}")


def size(value: int | None) -> Cell:
    """A size in bytes."""
    return Cell("-", tone="dim") if value is None else Cell(units.size(value), title=f"{value:,} bytes")


def text(value: object, href: str | None = None, tone: str = "") -> Cell:
    """Any text; a dash for None."""
    return Cell("-", tone="dim") if value is None or value == "" else Cell(str(value), href, tone)


def moment(timestamp_ms: int | None) -> Cell:
    """A time, in UTC."""
    if timestamp_ms is None or timestamp_ms < 0:
        return Cell("-", tone="dim")
    try:
        return Cell(units.moment_utc(timestamp_ms), title=str(timestamp_ms))
    except (OverflowError, ValueError, OSError):
        return Cell(f"{timestamp_ms} ms")
